#include "runtime/cuda/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <optional>

#include "ce/error.hpp"
#include "runtime/cuda/cublaslt.hpp"
#include "runtime/cuda/describe.hpp"
#include "runtime/cuda/eviction.hpp"
#include "runtime/cuda/module.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "runtime/cuda/scope.hpp"
#include "runtime/cuda/seen_memory.hpp"
#include "runtime/cuda/timer.hpp"
#include "runtime/split_matmuls.hpp"
#include "runtime/workers/pool.hpp"
#include "runtime/workers/settings.hpp"

namespace ce::runtime {
namespace cuda {
namespace {

CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }

/// Programmatic dependent launches exist on older versions, too, but not in stream capture.
constexpr int first_version_that_captures_overlaps = 12030;

class CudaDevice final : public Device {
 public:
  CudaDevice(const Driver& driver, CUdevice device, int ordinal, Model model)
      : driver_(driver),
        context_(std::make_shared<PrimaryContext>(driver, device)),
        can_overlap_(model.capability >= 90 && driver.cuLaunchKernelEx != nullptr &&
                     driver.version_number() >= first_version_that_captures_overlaps),
        device_(device),
        ordinal_(ordinal),
        model_(std::move(model)) {}
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  ~CudaDevice() override {
    try {
      const BlockingScope scope(*context_);
      timer_.reset();
      eviction_.reset();
      if (trial_stream_ != nullptr) static_cast<void>(driver_.cuStreamDestroy(trial_stream_));
    } catch (const Error&) {
      // After the driver has shut down, or a fault has destroyed the context, the stream is gone, too.
    }
  }

  const Model& model() const override { return model_; }
  std::string name() const override { return fmt::format("cuda:{}", ordinal_); }
  Environment environment() const override { return environment_of(driver_, device_, model_); }

  std::string compiler() const override {
    const Nvrtc& nvrtc = Nvrtc::get();
    return fmt::format("nvrtc {} {}", nvrtc.version(), nvrtc.target(model_.capability));
  }
  Binary compile(const CompileRequest& request) override;
  int parallel_compiles() const override { return std::max(1, workers_.size()); }
  std::unique_ptr<Module> load(std::span<const std::byte> image) override {
    return std::make_unique<CudaModule>(context_, model_, image);
  }

  void launch(std::span<const KernelLaunch> kernels, const void* arguments, std::size_t argument_bytes,
              Stream stream) override;
  bool fits(Function function, const Launch& launch) const override;
  int resident_blocks(Function function, const Launch& launch) const override;

  void* allocate(std::size_t bytes) override;
  void release(void* data) noexcept override;
  std::size_t free_bytes() const override;

  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void fill(void* device, unsigned char value, std::size_t bytes, Stream stream) override {
    const ContextScope scope(*context_);
    CE_CUDA_CHECK(driver_, cuMemsetD8Async(address(device), value, bytes, stream));
    count(1, stream);
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    const ContextScope scope(*context_);
    CE_CUDA_CHECK(driver_, cuMemcpyDtoDAsync(address(to), address(from), bytes, stream));
    count(1, stream);
  }
  void reset_eviction_priority(const void* data, std::size_t bytes, Stream stream) override;
  void download(void* host, const void* device, std::size_t bytes, Stream stream) override {
    const ContextScope scope(*context_);
    CE_CUDA_CHECK(driver_, cuMemcpyDtoHAsync(host, address(device), bytes, stream));
  }

  MemoryHandle share(void* data) override;
  TensorMap tensor_map(const BoxedMatrix& matrix) const override;
  void* open_shared(const MemoryHandle& handle) override;
  void close_shared(void* data) noexcept override;
  void reach(void* data) override;

  PointerKind pointer_kind(const void* pointer) const override;
  Entry enter() override { return cuda::enter(*context_); }
  std::optional<Entry> enter_where_current() override { return cuda::enter_where_current(*context_); }
  void leave(Entry entry) noexcept override { cuda::leave(*context_, entry); }
  bool capturing(Stream stream) const override;
  void synchronize(Stream stream) override {
    const BlockingScope scope(*context_);
    CE_CUDA_CHECK(driver_, cuStreamSynchronize(stream));
  }
  bool is_idle(Stream stream) override {
    if (driver_.cuStreamQuery == nullptr) return Device::is_idle(stream);
    const BlockingScope scope(*context_);
    const CUresult result = driver_.cuStreamQuery(stream);
    if (result == CUDA_ERROR_NOT_READY) return false;
    driver_.check(result, "cuStreamQuery(stream)");
    return true;
  }

  Stream trial_stream() override;
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override;
  MatmulLibrary& matmuls() override {
    const std::lock_guard lock(opening_matmuls_);
    if (matmuls_ == nullptr) matmuls_ = std::make_unique<SplitMatmuls>(open_cublaslt(context_));
    return *matmuls_;
  }

 private:
  void count(std::size_t launches, Stream stream) noexcept {
    if (stream != nullptr && stream == trial_stream_.load(std::memory_order_relaxed)) [[unlikely]]
      launches_.fetch_add(launches, std::memory_order_relaxed);
  }
  CUresult launch_one(const KernelLaunch& kernel, void** parameters, CUstream stream) const;
  int resident_clusters(Function function, const Launch& launch) const;
  [[noreturn]] void launch_failed(CUresult result, const Launch& launch) const;

  // Members that a launch reads come first: they share a line of the processor's cache.
  const Driver& driver_;
  std::shared_ptr<const PrimaryContext> context_;
  std::atomic<CUstream> trial_stream_ = nullptr;
  bool can_overlap_;  // programmatic dependent launches work, also in stream capture

  CUdevice device_;
  int ordinal_;
  Model model_;
  mutable SeenMemory seen_;
  WorkerPool workers_{worker_settings()};
  std::once_flag trial_stream_once_;
  std::atomic<std::uint64_t> launches_ = 0;  // on the trial stream, fills and copies included
  std::mutex opening_matmuls_;
  std::unique_ptr<MatmulLibrary> matmuls_;
  std::mutex evicting_;
  std::optional<EvictionPriority> eviction_;
  std::mutex timing_;  // held by time(): two timings on one stream would measure each other
  std::unique_ptr<EventTimer> timer_;
};

/// A launch in the driver's terms. The attributes live as long as the configuration.
struct ExtendedLaunch {
  ExtendedLaunch(const Launch& launch, CUstream stream, bool overlaps) {
    config.gridDimX = launch.blocks;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = launch.threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = launch.shared_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    if (launch.cluster > 1) {
      CUlaunchAttribute& cluster = attributes[config.numAttrs++];
      cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      cluster.value.clusterDim.x = launch.cluster;
      cluster.value.clusterDim.y = 1;
      cluster.value.clusterDim.z = 1;
    }
    if (overlaps) {
      CUlaunchAttribute& overlap = attributes[config.numAttrs++];
      overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      overlap.value.programmaticStreamSerializationAllowed = 1;
    }
  }
  ExtendedLaunch(const ExtendedLaunch&) = delete;
  ExtendedLaunch& operator=(const ExtendedLaunch&) = delete;

  CUlaunchAttribute attributes[2];  // only the counted ones are set
  CUlaunchConfig config = {};
};

// Opens NVRTC in this process only if no worker has it. Once it is open here, compile keys name its version, and the
// workers must have the same version.
Binary CudaDevice::compile(const CompileRequest& request) {
  NvrtcChoice chosen;
  if (const Nvrtc* nvrtc = Nvrtc::if_opened()) chosen = {nvrtc->path(), nvrtc->version()};
  if (std::optional<Binary> binary = workers_.compile(request, model_.capability, chosen))
    return *std::move(binary);
  return Nvrtc::get().compile(request, model_.capability);
}

// Every call of a warm Plan comes here: no allocation, no lock.
void CudaDevice::launch(std::span<const KernelLaunch> kernels, const void* arguments,
                        std::size_t argument_bytes, Stream stream) {
  const ContextScope scope(*context_);
  void* parameters[] = {const_cast<void*>(arguments)};
  count(kernels.size(), stream);
  for (const KernelLaunch& kernel : kernels)
    if (const CUresult result = launch_one(kernel, argument_bytes > 0 ? parameters : nullptr, stream);
        result != CUDA_SUCCESS) [[unlikely]]
      launch_failed(result, kernel.launch);
}

inline CUresult CudaDevice::launch_one(const KernelLaunch& kernel, void** parameters, CUstream stream) const {
  const auto& [function, launch] = kernel;
  const bool overlaps = launch.overlaps && can_overlap_;
  if (launch.cluster <= 1 && !overlaps)
    return driver_.cuLaunchKernel(handle_of(function), launch.blocks, 1, 1, launch.threads, 1, 1,
                                  launch.shared_bytes, stream, parameters, nullptr);
  if (driver_.cuLaunchKernelEx == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const ExtendedLaunch extended(launch, stream, overlaps);
  return driver_.cuLaunchKernelEx(&extended.config, handle_of(function), parameters, nullptr);
}

void CudaDevice::launch_failed(CUresult result, const Launch& launch) const {
  driver_.check(result, fmt::format("cuLaunchKernel(blocks={}, threads={}, cluster={}, shared_bytes={})",
                                    launch.blocks, launch.threads, launch.cluster, launch.shared_bytes));
  throw DeviceError("cuLaunchKernel", 0, "failed");
}

bool CudaDevice::fits(Function function, const Launch& launch) const {
  const ContextScope scope(*context_);
  const CUfunction handle = handle_of(function);
  const auto attribute = [&](CUfunction_attribute which) {
    return static_cast<std::uint32_t>(attribute_of(driver_, which, handle));
  };
  if (launch.blocks == 0 || launch.threads == 0) return false;
  // The first limit includes the function's registers.
  if (launch.threads > attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return false;
  if (launch.shared_bytes > attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)) return false;
  if (launch.cluster <= 1) return true;

  return launch.blocks % launch.cluster == 0 && resident_clusters(function, launch) > 0;
}

int CudaDevice::resident_clusters(Function function, const Launch& launch) const {
  if (model_.capability < 90 || driver_.cuOccupancyMaxActiveClusters == nullptr) return 0;
  const ContextScope scope(*context_);
  const ExtendedLaunch cluster(launch, nullptr, false);
  int clusters = 0;
  const CUresult result =
      driver_.cuOccupancyMaxActiveClusters(&clusters, handle_of(function), &cluster.config);
  if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE || result == CUDA_ERROR_INVALID_VALUE) return 0;
  driver_.check(result, "cuOccupancyMaxActiveClusters");
  return clusters;
}

int CudaDevice::resident_blocks(Function function, const Launch& launch) const {
  Launch one = launch;
  one.blocks = launch.cluster;
  if (!fits(function, one)) return 0;
  if (launch.cluster > 1) return resident_clusters(function, one) * static_cast<int>(launch.cluster);
  if (driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor == nullptr) return model_.multiprocessors;
  const ContextScope scope(*context_);
  int blocks = 0;
  CE_CUDA_CHECK(driver_,
                cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &blocks, handle_of(function), static_cast<int>(launch.threads), launch.shared_bytes));
  return blocks * model_.multiprocessors;
}

void* CudaDevice::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const BlockingScope scope(*context_);
  CUdeviceptr data = 0;
  if (const CUresult result = driver_.cuMemAlloc(&data, bytes); result != CUDA_SUCCESS)
    driver_.check(result, fmt::format("cuMemAlloc({} bytes)", bytes));
  return reinterpret_cast<void*>(data);
}

void CudaDevice::release(void* data) noexcept {
  if (data == nullptr) return;
  seen_.clear();
  try {
    const BlockingScope scope(*context_);
    // This only fails after a fault, which the next call reports, too.
    static_cast<void>(driver_.cuMemFree(address(data)));
  } catch (const Error&) {
    // After the driver has shut down, or a fault has destroyed the context, the memory is gone, too.
  }
}

std::size_t CudaDevice::free_bytes() const {
  const BlockingScope scope(*context_);
  std::size_t free = 0, total = 0;
  CE_CUDA_CHECK(driver_, cuMemGetInfo(&free, &total));
  return free;
}

// Blocking copies avoid the legacy default stream: using it would invalidate another stream's capture.
void CudaDevice::upload(void* device, const void* host, std::size_t bytes) {
  const CUstream stream = trial_stream();
  const BlockingScope scope(*context_);
  CE_CUDA_CHECK(driver_, cuMemcpyHtoDAsync(address(device), host, bytes, stream));
  CE_CUDA_CHECK(driver_, cuStreamSynchronize(stream));
}

void CudaDevice::download(void* host, const void* device, std::size_t bytes) {
  const CUstream stream = trial_stream();
  const BlockingScope scope(*context_);
  CE_CUDA_CHECK(driver_, cuMemcpyDtoHAsync(host, address(device), bytes, stream));
  CE_CUDA_CHECK(driver_, cuStreamSynchronize(stream));
}

TensorMap CudaDevice::tensor_map(const BoxedMatrix& matrix) const {
  if (driver_.cuTensorMapEncodeTiled == nullptr || model_.capability < 90) return Device::tensor_map(matrix);
  CUtensorMap map;
  const std::array<cuuint64_t, 2> sizes{static_cast<cuuint64_t>(matrix.columns),
                                        static_cast<cuuint64_t>(matrix.rows)};
  const std::array<cuuint64_t, 1> strides{static_cast<cuuint64_t>(matrix.row_stride * size_of(matrix.dtype))};
  const std::array<cuuint32_t, 2> box{static_cast<cuuint32_t>(matrix.box_columns),
                                      static_cast<cuuint32_t>(matrix.box_rows)};
  constexpr std::array<cuuint32_t, 2> steps{1, 1};
  const CUtensorMapDataType type =
      matrix.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  CE_CUDA_CHECK(
      driver_, cuTensorMapEncodeTiled(&map, type, 2, const_cast<void*>(matrix.data), sizes.data(),
                                      strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return std::bit_cast<TensorMap>(map);
}

MemoryHandle CudaDevice::share(void* data) {
  if (driver_.cuIpcGetMemHandle == nullptr) return Device::share(data);
  const BlockingScope scope(*context_);
  CUipcMemHandle handle;
  CE_CUDA_CHECK(driver_, cuIpcGetMemHandle(&handle, address(data)));
  return std::bit_cast<MemoryHandle>(handle);
}

void* CudaDevice::open_shared(const MemoryHandle& handle) {
  if (driver_.cuIpcOpenMemHandle == nullptr) return Device::open_shared(handle);
  const BlockingScope scope(*context_);
  CUdeviceptr data = 0;
  CE_CUDA_CHECK(driver_, cuIpcOpenMemHandle(&data, std::bit_cast<CUipcMemHandle>(handle),
                                            CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return reinterpret_cast<void*>(data);
}

void CudaDevice::close_shared(void* data) noexcept {
  if (data == nullptr || driver_.cuIpcCloseMemHandle == nullptr) return;
  try {
    const BlockingScope scope(*context_);
    static_cast<void>(driver_.cuIpcCloseMemHandle(address(data)));
  } catch (const Error&) {
    // See release().
  }
}

void CudaDevice::reach(void* data) {
  if (driver_.cuCtxEnablePeerAccess == nullptr)
    throw Unsupported(name() + ": the driver cannot reach the memory of another device");
  const BlockingScope scope(*context_);
  CUcontext owner = nullptr;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_CONTEXT;
  void* value = &owner;
  CE_CUDA_CHECK(driver_, cuPointerGetAttributes(1, &attribute, &value, address(data)));
  CUcontext own = nullptr;
  CE_CUDA_CHECK(driver_, cuCtxGetCurrent(&own));
  if (owner == own) return;
  if (const CUresult result = driver_.cuCtxEnablePeerAccess(owner, 0);
      result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    driver_.check(result, "cuCtxEnablePeerAccess");
}

PointerKind CudaDevice::pointer_kind(const void* pointer) const {
  if (seen_.contains(pointer)) return PointerKind::device;
  const ContextScope scope(*context_);
  // All attributes stay 0 for memory that CUDA did not allocate. The query for a single attribute would fail.
  unsigned int memory_type = 0, managed = 0;
  int ordinal = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&memory_type, &managed, &ordinal};
  const CUresult result = driver_.cuPointerGetAttributes(3, attributes, values, address(pointer));
  if (result == CUDA_ERROR_INVALID_VALUE) return PointerKind::host;
  driver_.check(result, "cuPointerGetAttributes");
  if (managed != 0) return PointerKind::managed;
  if (memory_type != CU_MEMORYTYPE_DEVICE) return PointerKind::host;
  if (ordinal != ordinal_) return PointerKind::other_device;
  seen_.add(pointer);
  return PointerKind::device;
}

bool CudaDevice::capturing(Stream stream) const {
  const ContextScope scope(*context_);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver_.cuStreamIsCapturing(stream, &status);
  // The result for the legacy default stream while a stream that synchronises with it is being captured.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  driver_.check(result, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Stream CudaDevice::trial_stream() {
  std::call_once(trial_stream_once_, [this] {
    const BlockingScope scope(*context_);
    CUstream stream = nullptr;
    CE_CUDA_CHECK(driver_, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    trial_stream_ = stream;
  });
  return trial_stream_;
}

void CudaDevice::reset_eviction_priority(const void* data, std::size_t bytes, Stream stream) {
  const std::lock_guard lock(evicting_);
  const ContextScope scope(*context_);
  if (!eviction_) eviction_.emplace(context_, model_);
  count(eviction_->reset(data, bytes, stream), stream);
}

std::vector<float> CudaDevice::time(int samples, const std::function<void()>& before,
                                    const std::function<void()>& timed) {
  const CUstream stream = trial_stream();
  const std::lock_guard lock(timing_);
  const BlockingScope scope(*context_);
  if (timer_ == nullptr) timer_ = std::make_unique<EventTimer>(context_, model_, stream, launches_);
  return timer_->time(samples, before, timed);
}

}  // namespace
}  // namespace cuda

std::unique_ptr<Device> open_cuda_device(int ordinal) {
  const auto& [driver, problem] = cuda::Driver::get();
  if (driver == nullptr) throw Unsupported("no GPU can be used: " + problem);
  const int count = cuda_device_count();
  if (count == 0) throw Unsupported("no GPU can be used: the CUDA driver finds none");
  if (ordinal < 0 || ordinal >= count)
    throw InvalidArgument("device", fmt::format("cuda:{}", ordinal),
                          fmt::format("cuda:0 to cuda:{}", count - 1));
  CUdevice device = 0;
  CE_CUDA_CHECK(*driver, cuDeviceGet(&device, ordinal));
  Model model = cuda::model_of(*driver, device);
  if (const std::string unusable = cuda::problem_of(model); !unusable.empty()) throw Unsupported(unusable);
  return std::make_unique<cuda::CudaDevice>(*driver, device, ordinal, std::move(model));
}

}  // namespace ce::runtime
