#pragma once
/// \file
/// What the tests on a GPU share.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "runtime/cuda/device.hpp"
#include "runtime/cuda/driver.hpp"
#include "tests/environment.hpp"

namespace ce::runtime::cuda {

/// A function of the driver that the library itself has no use for, by its exported name.
template <class Signature>
Signature* driver_function(const char* symbol) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* function = library == nullptr ? nullptr : dlsym(library, symbol);
  if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + symbol);
  return reinterpret_cast<Signature*>(function);
}

/// Skipped without a GPU; with CE_REQUIRE_GPU=1 a failure.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) {
      const std::string problem = "no GPU: " + Driver::get().problem;
      if (test::is_required("CE_REQUIRE_GPU")) FAIL() << problem;
      GTEST_SKIP() << problem;
    }
    device_ = open_cuda_device(0);
  }

  /// A module of the one text, and its entry point of the same name.
  struct Loaded {
    std::unique_ptr<Module> module;
    Function function;
  };
  Loaded build(const std::string& entry, const std::string& text) {
    const Binary binary = device_->compile({entry, text, {}, {}});
    Loaded loaded = {device_->load(binary.image), {}};
    loaded.function = loaded.module->function(entry);
    return loaded;
  }

  template <class Arguments>
  void launch(Function function, const Launch& geometry, const Arguments& arguments, Stream stream) {
    device_->launch(function, geometry, &arguments, sizeof arguments, stream);
  }

  [[nodiscard]] static CUcontext current_context() {
    CUcontext context = nullptr;
    CE_CUDA_CHECK(*Driver::get().driver, cuCtxGetCurrent(&context));
    return context;
  }

  std::unique_ptr<Device> device_;
};

/// Waits for `microseconds`.
inline constexpr const char* wait_text = R"(
struct Arguments { unsigned long long microseconds; };
__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
extern "C" __global__ void wait(const __grid_constant__ Arguments arguments) {
  const unsigned long long end = now() + 1000 * arguments.microseconds;
  while (now() < end) {}
}
)";

/// Adds `value` to each element.
inline constexpr const char* add_text = R"(
struct Arguments { unsigned* data; unsigned count; unsigned value; };
extern "C" __global__ void add(const __grid_constant__ Arguments arguments) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < arguments.count) arguments.data[i] += arguments.value;
}
)";
struct AddArguments {
  void* data;
  unsigned count;
  unsigned value;
};

}  // namespace ce::runtime::cuda
