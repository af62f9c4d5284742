#pragma once
/// \file
/// The CUDA driver API, opened at run time. For this folder alone: it brings cuda.h with it.

#include <cuda.h>

#include <memory>
#include <string>
#include <string_view>

#include "ce/source_location.hpp"

namespace ce::runtime::cuda {

// Every function that is called here. Names are as cuda.h spells them in source; its macros turn some into
// versioned symbols (cuMemAlloc is cuMemAlloc_v2), both as members below and when the symbol is looked up.
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

// May be null: only clusters, blocks that stay, products, and ranks that wait for each other or reach each other's memory
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

  /// An initialised driver, or why there is none.
  struct Opened {
    std::unique_ptr<const Driver> driver;  ///< null without a usable driver
    std::string problem;  ///< "no libcuda.so.1", "driver too old: ...", "cuInit: no device", ...
  };

  /// Opens libcuda.so.1 on the first call and keeps what came of it. The environment variable CE_LIBCUDA
  /// replaces that name; tests use it to see a machine without a driver.
  [[nodiscard]] static const Opened& get();

  /// \throws DeviceError with the name and text of any result but success
  void check(CUresult result, std::string_view call, SourceLocation where = SourceLocation::current()) const {
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(result, call, where);
  }

  /// \throws OutOfMemory where that is what the result says, else DeviceError
  [[noreturn]] void fail(CUresult result, std::string_view call, std::string_view message,
                         SourceLocation where = SourceLocation::current()) const;

  /// "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)".
  [[nodiscard]] std::string describe(CUresult result) const;

  /// The CUDA version that the driver implements, as "13.0".
  [[nodiscard]] std::string version() const;
  /// The same as 13000.
  [[nodiscard]] int version_number() const;

 private:
  [[noreturn]] void fail(CUresult result, std::string_view call, SourceLocation where) const;
};

/// Calls a member of a Driver and throws DeviceError, or OutOfMemory, with the text of the call when it fails.
#define CE_CUDA_CHECK(driver, call) (driver).check((driver).call, #call)

}  // namespace ce::runtime::cuda
