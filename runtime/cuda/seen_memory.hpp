#pragma once
/// \file
/// Remembers addresses that were found to be device memory.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ce::runtime::cuda {

/// Granules of the address space that were found to be memory of this device. Lock-free: each granule is one word,
/// which is read and written whole.
///
/// The driver maps device memory in pages of 2 MiB and puts small allocations into such a page together, so one answer
/// holds for a whole granule. An entry becomes stale if the program frees that memory and the address is reused for
/// memory of another kind. A stale entry can only let a wrong pointer pass the check of the arguments: its kernel then
/// fails as with any dangling pointer, which the driver reports. It cannot make a correct call fail, because only that
/// check uses it.
class SeenMemory {
 public:
  [[nodiscard]] bool contains(const void* pointer) const noexcept {
    const std::uintptr_t granule = granule_of(pointer);
    for (std::size_t probe = 0; probe < probes; ++probe)
      if (slot(granule, probe).load(std::memory_order_relaxed) == granule) return granule != 0;
    return false;
  }

  /// Adds a granule. This may remove another one.
  void add(const void* pointer) noexcept {
    const std::uintptr_t granule = granule_of(pointer);
    std::size_t probe = 0;
    while (probe < probes && slot(granule, probe).load(std::memory_order_relaxed) != 0) ++probe;
    slot(granule, probe % probes).store(granule, std::memory_order_relaxed);
  }

  void clear() noexcept {
    for (auto& granule : granules_) granule.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t slots = 4096, probes = 4;

  static std::uintptr_t granule_of(const void* pointer) noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer) >> 21;
  }
  [[nodiscard]] static std::size_t index(std::uintptr_t granule, std::size_t probe) noexcept {
    return (static_cast<std::size_t>(granule * 0x9e3779b97f4a7c15u >> 40) + probe) % slots;
  }
  [[nodiscard]] const std::atomic<std::uintptr_t>& slot(std::uintptr_t granule,
                                                        std::size_t probe) const noexcept {
    return granules_[index(granule, probe)];
  }
  [[nodiscard]] std::atomic<std::uintptr_t>& slot(std::uintptr_t granule, std::size_t probe) noexcept {
    return granules_[index(granule, probe)];
  }

  std::array<std::atomic<std::uintptr_t>, slots> granules_{};  ///< 0: empty
};

}  // namespace ce::runtime::cuda
