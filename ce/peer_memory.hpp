#pragma once
/// \file
/// Memory that kernels of all ranks of a host write to. Not installed.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ce/ranks.hpp"
#include "runtime/device.hpp"

namespace ce {

/// The peer memories of a Context. Thread-safe.
class CE_HIDDEN PeerMemories {
 public:
  void add(const PeerMemory::Impl& memory) {
    const std::lock_guard lock(mutex_);
    all_.insert(&memory);
  }
  void remove(const PeerMemory::Impl& memory) {
    const std::lock_guard lock(mutex_);
    all_.erase(&memory);
  }
  /// \throws DeviceError if a rank did not come in time, once for each memory
  void check() const;

 private:
  mutable std::mutex mutex_;
  std::set<const PeerMemory::Impl*> all_;
};

struct PeerMemory::Impl {
  Impl(runtime::Device& its_device, PeerMemories& those_of_context, const Options& given);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void connect(std::span<const std::byte> descriptions);
  /// A message about the rank that did not come; empty if all did.
  [[nodiscard]] std::string failure() const;
  void give_up() noexcept;

  runtime::Device& device;
  PeerMemories& of_context;
  const Options options;
  std::byte* memory = nullptr;
  std::array<std::byte, description_bytes> description{};
  std::vector<void*> opened;            ///< memory of other processes
  std::vector<std::int64_t> distances;  ///< address differences to each rank's memory; empty before connect()
  const int process;
  mutable std::atomic<bool> is_reported = false;  ///< the failure was reported
};

}  // namespace ce
