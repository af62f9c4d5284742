// A CUDA driver that does nothing, at once: what a call costs on it is what ce costs. One GPU, on which no
// kernel runs. Beyond success it answers only what a Context asks before its first launch.
#include <cuda.h>

#include <cstdlib>
#include <cstring>

namespace {

int gpu;
thread_local CUcontext current = nullptr;
CUcontext primary() { return reinterpret_cast<CUcontext>(&gpu); }

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** text) { return *text = "error", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "error", CUDA_SUCCESS; }

CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  return std::strncpy(name, "none", static_cast<std::size_t>(bytes)), CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  return *bytes = std::size_t{16} << 30, CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice) {
  return std::strncpy(id, "0000:00:00.0", static_cast<std::size_t>(bytes)), CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) { return *uuid = {}, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = primary(), CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = current, CUDA_SUCCESS; }
CUresult cuCtxPushCurrent(CUcontext context) { return current = context, CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext* context) { return *context = current, current = nullptr, CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) {
  return *device = 0, current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return *module = reinterpret_cast<CUmodule>(&gpu), CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  return *function = reinterpret_cast<CUfunction>(&gpu), CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) { return *value = 0, CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream, void**, void**) {
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  return *clusters = 1, CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* data, std::size_t bytes) {
  return *data = reinterpret_cast<CUdeviceptr>(std::malloc(bytes)), CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr data) { return std::free(reinterpret_cast<void*>(data)), CUDA_SUCCESS; }
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return *free = *total = std::size_t{16} << 30, CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr, const void*, std::size_t, CUstream) { return CUDA_SUCCESS; }
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr, std::size_t bytes, CUstream) {
  return std::memset(to, 0, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) { return CUDA_SUCCESS; }
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, std::size_t, CUstream) { return CUDA_SUCCESS; }
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr) {
  for (unsigned i = 0; i < count; ++i) {
    const unsigned value = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? CU_MEMORYTYPE_DEVICE : 0;
    std::memcpy(values[i], &value, sizeof value);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return *stream = static_cast<CUstream>(std::malloc(1)), CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) { return std::free(stream), CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* event, unsigned) { return *event = nullptr, CUDA_SUCCESS; }
CUresult cuEventDestroy(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) { return *milliseconds = 0, CUDA_SUCCESS; }
}
