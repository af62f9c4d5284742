#pragma once
/// \file
/// Multiplies a gradient by a number in device memory. Not installed.

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "cache/cache.hpp"
#include "ce/counters.hpp"
#include "ce/tensor.hpp"
#include "runtime/device.hpp"
#include "tuner/kernel.hpp"

namespace ce {

/// The kernels of Context::scale_gradient(), created at first use. Thread-safe.
class GradientScaling {
 public:
  GradientScaling(runtime::Device& device, cache::Cache& cache) : device_(device), cache_(cache) {}

  /// \throws InvalidArgument, CompileError, Unsupported, DeviceError
  void run(const Tensor& grad, const ConstTensor& upstream, Stream stream);
  /// Number of compiler runs.
  [[nodiscard]] int compiled() const noexcept { return compiled_; }

 private:
  [[nodiscard]] const tuner::Kernel& kernel(DType grad, DType upstream, bool gaps);

  runtime::Device& device_;
  cache::Cache& cache_;
  Compiled compiled_;
  std::mutex mutex_;  ///< guards the members below; kernels keep their addresses
  std::map<std::tuple<DType, DType, bool>, std::unique_ptr<const tuner::Kernel>> kernels_;
};

}  // namespace ce
