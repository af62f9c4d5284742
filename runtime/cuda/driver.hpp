#pragma once
/// \file
/// The CUDA driver API, opened at run time. Only this folder includes it, because it includes cuda.h.

#include <cuda.h>

#include <memory>
#include <string>
#include <string_view>

#include "ce/source_location.hpp"

namespace ce::runtime::cuda {

// Every function that this folder calls. Names are spelled as in cuda.h; its macros turn some into versioned symbols
// (cuMemAlloc is cuMemAlloc_v2), both in the members below and when symbols are looked up.
// clang-format off
#define CE_CUDA_REQUIRED(X)                                                                            \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)    \
  X(cuDeviceGetUuid) X(cuDeviceGetPCIBusId) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)   \
  X(cuCtxGetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetDevice)                          \
  X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction)                                       \
  X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuLaunchKernel)                                        \
  X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)                 \
  X(cuMemcpyDtoDAsync) X(cuMemsetD8Async) X(cuPointerGetAttributes)                                    \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamIsCapturing)                   \
  X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord)             \
  X(cuEventElapsedTime)

// These may be null: only clusters, persistent kernels, products, and ranks that share memory or wait for each other
// need them.
#define CE_CUDA_OPTIONAL(X)                                                                           \
  X(cuLaunchKernelEx) X(cuOccupancyMaxActiveClusters) X(cuOccupancyMaxActiveBlocksPerMultiprocessor)  \
  X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) X(cuCtxEnablePeerAccess)          \
  X(cuTensorMapEncodeTiled) X(cuStreamQuery)
// clang-format on

/// The driver's functions. Members have the names of the API: `driver.cuMemAlloc(...)`.
class Driver {
 public:
#define CE_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  CE_CUDA_REQUIRED(CE_CUDA_MEMBER)
  CE_CUDA_OPTIONAL(CE_CUDA_MEMBER)
#undef CE_CUDA_MEMBER

  /// An initialised driver, or the reason why there is none.
  struct Opened {
    std::unique_ptr<const Driver> driver;  ///< null if there is no usable driver
    std::string problem;  ///< "no libcuda.so.1", "driver too old: ...", "cuInit: no device", ...
  };

  /// Opens libcuda.so.1 on the first call and keeps the result. The environment variable CE_LIBCUDA replaces that name;
  /// tests use it to simulate a machine without a driver.
  [[nodiscard]] static const Opened& get();

  /// \throws DeviceError with the name and text of any result but success
  void check(CUresult result, std::string_view call, SourceLocation where = SourceLocation::current()) const {
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(result, call, where);
  }

  /// \throws OutOfMemory for a result that means out of memory, else DeviceError
  [[noreturn]] void fail(CUresult result, std::string_view call, std::string_view message,
                         SourceLocation where = SourceLocation::current()) const;

  /// "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)".
  [[nodiscard]] std::string describe(CUresult result) const;

  /// The CUDA version that the driver implements, as "13.0".
  [[nodiscard]] std::string version() const;
  /// The same version as a number: 13000.
  [[nodiscard]] int version_number() const;

 private:
  [[noreturn]] void fail(CUresult result, std::string_view call, SourceLocation where) const;
};

/// Calls a member of a Driver. If it fails, throws DeviceError or OutOfMemory with the text of the call.
#define CE_CUDA_CHECK(driver, call) (driver).check((driver).call, #call)

}  // namespace ce::runtime::cuda
