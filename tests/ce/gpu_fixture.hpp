#pragma once
/// \file
/// Streams and graphs of the tests on a GPU, through the driver alone.

#include <cstddef>
#include <utility>

#include "tests/runtime/cuda_fixture.hpp"

namespace ce::test {

/// A GPU's primary context, current on this thread as long as this object lives.
class CurrentGpu {
 public:
  explicit CurrentGpu(int ordinal = 0) {
    CE_CUDA_CHECK(driver_, cuDeviceGet(&device_, ordinal));
    CE_CUDA_CHECK(driver_, cuDevicePrimaryCtxRetain(&context_, device_));
    CE_CUDA_CHECK(driver_, cuCtxPushCurrent(context_));
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;
  ~CurrentGpu() {
    static_cast<void>(driver_.cuCtxPopCurrent(&context_));
    static_cast<void>(driver_.cuDevicePrimaryCtxRelease(device_));
  }
  [[nodiscard]] CUcontext handle() const noexcept { return context_; }

 private:
  const runtime::cuda::Driver& driver_ = *runtime::cuda::Driver::get().driver;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// A graph that can be launched.
class Graph {
 public:
  explicit Graph(CUgraph graph) : graph_(graph) {
    driver_.check(runtime::cuda::driver_function<CUresult(CUgraphExec*, CUgraph, unsigned long long)>(
                      "cuGraphInstantiateWithFlags")(&executable_, graph_, 0),
                  "cuGraphInstantiateWithFlags");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    static_cast<void>(
        runtime::cuda::driver_function<CUresult(CUgraphExec)>("cuGraphExecDestroy")(executable_));
    static_cast<void>(runtime::cuda::driver_function<CUresult(CUgraph)>("cuGraphDestroy")(graph_));
  }

  void launch(Stream stream) const {
    driver_.check(
        runtime::cuda::driver_function<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch")(executable_, stream),
        "cuGraphLaunch");
  }
  [[nodiscard]] std::size_t nodes() const {
    std::size_t count = 0;
    driver_.check(runtime::cuda::driver_function<CUresult(CUgraph, CUgraphNode*, std::size_t*)>(
                      "cuGraphGetNodes")(graph_, nullptr, &count),
                  "cuGraphGetNodes");
    return count;
  }

 private:
  const runtime::cuda::Driver& driver_ = *runtime::cuda::Driver::get().driver;
  CUgraph graph_;
  CUgraphExec executable_ = nullptr;
};

/// A stream that waits for no other. Needs a CurrentGpu.
class GpuStream {
 public:
  GpuStream() { CE_CUDA_CHECK(driver_, cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream() { static_cast<void>(driver_.cuStreamDestroy(stream_)); }

  [[nodiscard]] Stream get() const noexcept { return stream_; }
  void wait() const { CE_CUDA_CHECK(driver_, cuStreamSynchronize(stream_)); }

  /// In the strictest mode, which also watches what other threads call.
  void begin_capture() const {
    driver_.check(runtime::cuda::driver_function<CUresult(CUstream, CUstreamCaptureMode)>(
                      "cuStreamBeginCapture_v2")(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL),
                  "cuStreamBeginCapture");
  }
  /// Whether a capture is going on that nothing has invalidated.
  [[nodiscard]] bool captures() const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CE_CUDA_CHECK(driver_, cuStreamIsCapturing(stream_, &status));
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  /// For Graph, which then owns it.
  [[nodiscard]] CUgraph end_capture() const {
    CUgraph graph = nullptr;
    driver_.check(
        runtime::cuda::driver_function<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream_, &graph),
        "cuStreamEndCapture");
    return graph;
  }

 private:
  const runtime::cuda::Driver& driver_ = *runtime::cuda::Driver::get().driver;
  CUstream stream_ = nullptr;
};

}  // namespace ce::test
