#pragma once
/// \file
/// Loaded kernels of the host device.

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "runtime/device.hpp"
#include "runtime/host/scheduler.hpp"

namespace ce::runtime::host {

/// A shared object in memory, unloaded with its owner.
class SharedObject : public Module {
 public:
  /// \throws DeviceError if the image is not a whole shared object of this version's kernels; OutOfMemory if there is
  /// no room for it; Error(device) if the system lets no image be loaded
  explicit SharedObject(std::span<const std::byte> image);
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  ~SharedObject() override;

  /// The handle points to a host::Kernel.
  [[nodiscard]] Function function(std::string_view entry) const override;
  [[nodiscard]] Resources resources(Function function) const override;

 private:
  void open(std::span<const std::byte> image);
  void close() noexcept;
  [[nodiscard]] void* symbol(const std::string& name) const;

  int descriptor_ = -1;
  void* library_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Kernel, std::less<>> kernels_;  // a map, because handles point into it
};

}  // namespace ce::runtime::host
