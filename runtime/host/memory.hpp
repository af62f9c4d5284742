#pragma once
/// \file
/// Memory of the host device.

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

namespace ce::runtime::host {

/// Allocations between guard zones. Thread safe.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  /// Allocates memory that is aligned to 256 bytes like a GPU's, and filled with 0xFF: NaN for every floating type, so
  /// that an output that no kernel wrote is visible. \throws DeviceError when memory is short
  [[nodiscard]] void* allocate(std::size_t bytes);
  void release(void* data) noexcept;

  /// The size in bytes of an allocation beyond whose ends something was written since the last check.
  [[nodiscard]] std::optional<std::size_t> find_overrun();

 private:
  std::mutex mutex_;
  std::map<std::byte*, std::size_t> sizes_;
};

}  // namespace ce::runtime::host
