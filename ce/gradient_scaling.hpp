#pragma once
/// \file
/// Multiplying a gradient by a number in device memory. Not installed.

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

/// The kernels of Context::scale_gradient(), each made on first use. Thread-safe.
class GradientScaling {
 public:
  GradientScaling(runtime::Device& device, cache::Cache& cache) : device_(device), cache_(cache) {}

  /// \throws InvalidArgument, CompileError, Unsupported, DeviceError
  void run(const Tensor& grad, const ConstTensor& upstream, Stream stream);
  /// Compiler runs.
  [[nodiscard]] int compiled() const noexcept { return compiled_; }

 private:
  [[nodiscard]] const tuner::Kernel& kernel(DType grad, DType upstream, bool gaps);

  runtime::Device& device_;
  cache::Cache& cache_;
  Compiled compiled_;
  std::mutex mutex_;  ///< guards what follows; kernels stay where they are
  std::map<std::tuple<DType, DType, bool>, std::unique_ptr<const tuner::Kernel>> kernels_;
};

}  // namespace ce
