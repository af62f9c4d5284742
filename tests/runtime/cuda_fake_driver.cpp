// A CUDA driver without a GPU, strict about what is easily forgotten: the right context must be current, and
// a call that is not allowed during a capture must declare itself. Kernels do nothing but pass the time.
#include "tests/runtime/cuda_fake_driver.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

FakeCuda state;
thread_local FakeCalls calls;
thread_local std::vector<CUcontext> contexts;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
int primary_of_device[2];

CUcontext primary(int device) { return reinterpret_cast<CUcontext>(&primary_of_device[device]); }

/// What a call needs of its thread.
CUresult refusal(bool blocking) {
  if (contexts.empty() || (contexts.back() != primary(0) && contexts.back() != primary(1)))
    return CUDA_ERROR_INVALID_CONTEXT;
  if (blocking && state.global_capture && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return CUDA_SUCCESS;
}

#define FAKE_NEEDS_CONTEXT() \
  calls.add(__func__);       \
  if (const CUresult refused = refusal(false); refused != CUDA_SUCCESS) return refused
#define FAKE_NEEDS_FREEDOM() \
  calls.add(__func__);       \
  if (const CUresult refused = refusal(true); refused != CUDA_SUCCESS) return refused

struct FakeFunction {
  std::string name;
  CUcontext context;
  int dynamic_shared = 48 << 10;
};
struct FakeEvent {
  double at_us = 0;
};

FakeFunction& function_of(CUfunction handle) { return *reinterpret_cast<FakeFunction*>(handle); }

CUresult launched(CUfunction function, void** parameters) {
  if (const CUresult refused = refusal(false); refused != CUDA_SUCCESS) return refused;
  if (function_of(function).context != contexts.back()) return CUDA_ERROR_INVALID_HANDLE;
  if (state.next_launch_result != 0) return static_cast<CUresult>(std::exchange(state.next_launch_result, 0));
  const auto parameter = [&](int number) {
    std::uint64_t value = 0;
    if (parameters != nullptr) std::memcpy(&value, parameters[number], sizeof value);
    return value;
  };
  if (function_of(function).name == "ce_delay") {
    ++state.delays;
    state.delay_ns = parameter(0);
    return CUDA_SUCCESS;
  }
  ++state.launches;
  if (function_of(function).name == "work") state.clock_us += 5;
  state.argument = parameter(0);
  if (function_of(function).name == "ce_reset_eviction_priority") state.lines = parameter(1);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

FakeCuda& ce_fake_cuda() { return state; }
FakeCalls& ce_fake_cuda_calls() { return calls; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char** text) {
  return *text = error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER",
         CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "as the test asked", CUDA_SUCCESS; }

CUresult cuDeviceGetCount(int* count) { return *count = 2, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  return std::strncpy(name, "NVIDIA H200 MIG 1g.18gb", static_cast<std::size_t>(bytes)), CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  return *bytes = std::size_t{16} << 30, CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice) {
  return std::strncpy(id, "0000:FF:1F.0", static_cast<std::size_t>(bytes)), CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0xf0 + i);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state.capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state.capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 16 + 8 * device; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 8 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return ++state.primary_contexts, *context = primary(device), CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return --state.primary_contexts, CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) {
  calls.add(__func__);
  return *context = contexts.empty() ? nullptr : contexts.back(), CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  calls.add(__func__);
  return ++state.pushed, contexts.push_back(context), CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  calls.add(__func__);
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = contexts.back();
  return ++state.popped, contexts.pop_back(), CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  calls.add(__func__);
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  return *device = contexts.back() == primary(0) ? 0 : 1, CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void** values) {
  FAKE_NEEDS_FREEDOM();
  const bool is_ptx = std::memcmp(image, "\177ELF", 4) != 0;
  if (is_ptx && state.ptx_result != 0) {
    std::strcpy(static_cast<char*>(values[0]), "no compiler for this");
    return static_cast<CUresult>(state.ptx_result);
  }
  ++state.modules;
  *module = reinterpret_cast<CUmodule>(new std::vector<FakeFunction*>);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  FAKE_NEEDS_FREEDOM();
  auto* functions = reinterpret_cast<std::vector<FakeFunction*>*>(module);
  for (const FakeFunction* function : *functions) delete function;
  delete functions;
  return --state.modules, CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_NEEDS_FREEDOM();
  if (std::string_view(name) == "absent") return CUDA_ERROR_NOT_FOUND;
  auto* added = new FakeFunction{name, contexts.back()};
  reinterpret_cast<std::vector<FakeFunction*>*>(module)->push_back(added);
  return *function = reinterpret_cast<CUfunction>(added), CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  FAKE_NEEDS_CONTEXT();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function_of(function).dynamic_shared;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 512; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 40; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 8; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  FAKE_NEEDS_CONTEXT();
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    function_of(function).dynamic_shared = value;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                        unsigned, unsigned shared_bytes, CUstream, void** parameters, void**) {
  calls.add(__func__);
  if (function_of(function).name != "ce_delay") {
    state.blocks = blocks, state.threads = threads, state.cluster = 1, state.shared_bytes = shared_bytes;
  }
  return launched(function, parameters);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
  calls.add(__func__);
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      cluster = attribute.value.clusterDim.x;
    else if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      return CUDA_ERROR_INVALID_VALUE;
  }
  state.blocks = config->gridDimX, state.threads = config->blockDimX;
  state.shared_bytes = config->sharedMemBytes, state.cluster = cluster;
  return launched(function, parameters);
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig* config) {
  FAKE_NEEDS_CONTEXT();
  if (config->attrs[0].value.clusterDim.x > 16) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  return *clusters = 1, CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* data, std::size_t bytes) {
  FAKE_NEEDS_FREEDOM();
  if (bytes > std::size_t{1} << 30) return CUDA_ERROR_OUT_OF_MEMORY;
  return ++state.allocations, *data = reinterpret_cast<CUdeviceptr>(std::malloc(bytes)), CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr data) {
  FAKE_NEEDS_FREEDOM();
  return --state.allocations, std::free(reinterpret_cast<void*>(data)), CUDA_SUCCESS;
}
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  FAKE_NEEDS_FREEDOM();
  return *free = 1 << 20, *total = 1 << 21, CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream) {
  FAKE_NEEDS_CONTEXT();
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
  FAKE_NEEDS_CONTEXT();
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream) {
  FAKE_NEEDS_CONTEXT();
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream) {
  FAKE_NEEDS_CONTEXT();
  return std::memset(reinterpret_cast<void*>(to), value, bytes), CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr pointer) {
  FAKE_NEEDS_CONTEXT();
  const std::uint64_t granule = pointer >> 21;
  for (unsigned i = 0; i < count; ++i) {
    unsigned value = 0;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE && granule >= of_gpu_0 && granule <= of_gpu_1)
      value = granule == pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED) value = granule == managed;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) value = granule == of_gpu_1;
    std::memcpy(values[i], &value, sizeof value);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  FAKE_NEEDS_FREEDOM();
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return ++state.streams, *stream = reinterpret_cast<CUstream>(new int), CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  FAKE_NEEDS_CONTEXT();
  return --state.streams, delete reinterpret_cast<int*>(stream), CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) {
  FAKE_NEEDS_FREEDOM();
  return ++state.synchronised, CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_NEEDS_CONTEXT();
  *status = stream != nullptr && stream == state.captured_stream ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                                 : CU_STREAM_CAPTURE_STATUS_NONE;
  return stream == nullptr && state.legacy_stream_waits ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return std::swap(*mode, capture_mode), CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  FAKE_NEEDS_FREEDOM();
  if (flags != CU_EVENT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return ++state.events, *event = reinterpret_cast<CUevent>(new FakeEvent), CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  FAKE_NEEDS_CONTEXT();
  return --state.events, delete reinterpret_cast<FakeEvent*>(event), CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream) {
  FAKE_NEEDS_CONTEXT();
  return reinterpret_cast<FakeEvent*>(event)->at_us = state.clock_us, CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  FAKE_NEEDS_FREEDOM();
  const double us = reinterpret_cast<FakeEvent*>(end)->at_us - reinterpret_cast<FakeEvent*>(start)->at_us;
  return *milliseconds = static_cast<float>(us / 1000), CUDA_SUCCESS;
}
}
