#pragma once
/// \file
/// Loaded images and their entry points.

#include <memory>
#include <string>
#include <string_view>

#include "runtime/cuda/scope.hpp"
#include "runtime/device.hpp"

namespace ce::runtime::cuda {

/// The driver's handle in a Function.
[[nodiscard]] inline CUfunction handle_of(Function function) noexcept {
  return static_cast<CUfunction>(const_cast<void*>(function.handle));
}

/// A cubin or PTX, loaded in a device's primary context, which it keeps alive.
class CudaModule final : public Module {
 public:
  /// \param image  PTX must end with a NUL
  /// \throws DeviceError with the log of the driver's compiler
  CudaModule(std::shared_ptr<const PrimaryContext> context, const Model& model,
             std::span<const std::byte> image);
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;
  ~CudaModule() override;

  /// Lets the entry point use all the shared memory of a block and, from capability 9.0, clusters of more
  /// than 8 blocks.
  [[nodiscard]] Function function(std::string_view entry) const override;
  [[nodiscard]] Resources resources(Function function) const override;

 private:
  std::shared_ptr<const PrimaryContext> context_;
  int shared_bytes_per_block_;
  int capability_;
  CUmodule handle_ = nullptr;
};

/// Loads one of ce's own helper kernels, as PTX. They need no NVRTC, since the kernels that they support may come from
/// the database.
/// \param consequence  what is missing without them, for the log
/// \returns null if the driver has no compiler for PTX, or too old a one
[[nodiscard]] std::unique_ptr<const CudaModule> load_own_ptx(
    const std::shared_ptr<const PrimaryContext>& context, const Model& model, const std::string& text,
    std::string_view consequence);

[[nodiscard]] int attribute_of(const Driver& driver, CUfunction_attribute which, CUfunction function);

}  // namespace ce::runtime::cuda
