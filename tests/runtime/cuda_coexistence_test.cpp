// The CUDA device beside other users of CUDA in the same process: foreign contexts, streams under capture and
// memory that it did not allocate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/runtime/cuda_fixture.hpp"

namespace ce::runtime::cuda {
namespace {

class CudaCoexistenceTest : public CudaTest {
 protected:
  /// Calls every method of the device that talks to the driver, but for launches.
  void use_everything() {
    const Loaded add = build("add", add_text);
    const unsigned sent[4] = {1, 2, 3, 4};
    unsigned received[4] = {};
    Buffer buffer(*device_, sizeof sent);
    const Stream stream = device_->trial_stream();
    device_->upload(buffer.data(), sent, sizeof sent);
    launch(add.function, {.blocks = 1, .threads = 32}, AddArguments{buffer.data(), 4, 10}, stream);
    device_->download(received, buffer.data(), sizeof received);
    EXPECT_THAT(received, ::testing::ElementsAre(11, 12, 13, 14));
    device_->fill(buffer.data(), 0, buffer.size(), stream);
    device_->copy(buffer.data(), buffer.bytes() + 8, 8, stream);
    device_->download(received, buffer.data(), sizeof received, stream);
    device_->synchronize(stream);
    EXPECT_THAT(received, ::testing::Each(0));
    EXPECT_EQ(device_
                  ->time(
                      3, [] {}, [&] { device_->fill(buffer.data(), 1, buffer.size(), stream); })
                  .size(),
              3);
    EXPECT_GT(device_->free_bytes(), 0);
    EXPECT_FALSE(device_->environment().empty());
    EXPECT_TRUE(device_->fits(add.function, {.blocks = 1, .threads = 32}));
    EXPECT_GT(add.module->resources(add.function).registers, 0);
    EXPECT_FALSE(device_->capturing(stream));
    EXPECT_EQ(device_->pointer_kind(buffer.data()), PointerKind::device);
  }
};

/// A stream of the test's own.
class TestStream {
 public:
  explicit TestStream(unsigned flags) {
    CUdevice device = 0;
    CE_CUDA_CHECK(driver_, cuDeviceGet(&device, 0));
    CE_CUDA_CHECK(driver_, cuDevicePrimaryCtxRetain(&context_, device));
    CE_CUDA_CHECK(driver_, cuCtxPushCurrent(context_));
    CE_CUDA_CHECK(driver_, cuStreamCreate(&stream_, flags));
  }
  ~TestStream() {
    static_cast<void>(driver_.cuStreamDestroy(stream_));
    static_cast<void>(driver_.cuCtxPopCurrent(&context_));
    static_cast<void>(driver_.cuDevicePrimaryCtxRelease(0));
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  [[nodiscard]] CUstream get() const { return stream_; }

  void begin_capture(CUstreamCaptureMode mode) const {
    driver_.check(
        driver_function<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2")(stream_, mode),
        "cuStreamBeginCapture");
  }
  /// The number of nodes captured.
  [[nodiscard]] std::size_t end_capture() const {
    CUgraph graph = nullptr;
    std::size_t nodes = 0;
    driver_.check(driver_function<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream_, &graph),
                  "cuStreamEndCapture");
    driver_.check(driver_function<CUresult(CUgraph, CUgraphNode*, std::size_t*)>("cuGraphGetNodes")(
                      graph, nullptr, &nodes),
                  "cuGraphGetNodes");
    driver_.check(driver_function<CUresult(CUgraph)>("cuGraphDestroy")(graph), "cuGraphDestroy");
    return nodes;
  }

 private:
  const Driver& driver_ = *Driver::get().driver;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(CudaCoexistenceTest, AThreadWithoutAContextStaysWithout) {
  std::thread([this] {
    EXPECT_EQ(current_context(), nullptr);
    EXPECT_EQ(current_cuda_device(), std::nullopt);
    use_everything();
    EXPECT_EQ(current_context(), nullptr);
    EXPECT_EQ(current_cuda_device(), std::nullopt);
  }).join();
}

TEST_F(CudaCoexistenceTest, AForeignContextStaysCurrent) {
  CUcontext foreign = nullptr;
  const Driver& driver = *Driver::get().driver;
  driver.check(driver_function<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&foreign, 0, 0),
               "cuCtxCreate");
  use_everything();
  EXPECT_EQ(current_context(), foreign);
  EXPECT_EQ(current_cuda_device(), 0);
  driver.check(driver_function<CUresult(CUcontext)>("cuCtxDestroy_v2")(foreign), "cuCtxDestroy");
}

TEST_F(CudaCoexistenceTest, ThePrimaryContextStaysCurrent) {
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  const CUcontext primary = current_context();
  ASSERT_NE(primary, nullptr);
  use_everything();
  EXPECT_EQ(current_context(), primary);
  EXPECT_EQ(current_cuda_device(), 0);
}

TEST_F(CudaCoexistenceTest, AGlobalCaptureSurvivesEveryCall) {
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  Buffer buffer(*device_, 64);
  EXPECT_FALSE(device_->capturing(stream.get()));
  stream.begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_TRUE(device_->capturing(stream.get()));
  use_everything();                                  // on the capturing thread
  std::thread([this] { use_everything(); }).join();  // and on another
  device_->fill(buffer.data(), 1, buffer.size(), stream.get());
  EXPECT_TRUE(device_->capturing(stream.get()));
  EXPECT_EQ(stream.end_capture(), 1) << "the fill, and nothing of the calls before";
  EXPECT_FALSE(device_->capturing(stream.get()));
}

TEST_F(CudaCoexistenceTest, TheDefaultStreamCountsAsCapturingWithAStreamThatWaitsForIt) {
  const TestStream stream(CU_STREAM_DEFAULT);
  EXPECT_FALSE(device_->capturing(nullptr));
  stream.begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_TRUE(device_->capturing(nullptr));
  EXPECT_TRUE(device_->capturing(stream.get()));
  EXPECT_EQ(stream.end_capture(), 0);
  EXPECT_FALSE(device_->capturing(nullptr));
}

TEST_F(CudaCoexistenceTest, KnowsWhereMemoryIs) {
  const TestStream current(CU_STREAM_NON_BLOCKING);
  const Driver& driver = *Driver::get().driver;
  Buffer buffer(*device_, 4096);
  const std::vector<int> ordinary(1024);
  int local = 0;
  CUdeviceptr managed = 0;
  void* pinned = nullptr;
  driver.check(driver_function<CUresult(CUdeviceptr*, std::size_t, unsigned)>("cuMemAllocManaged")(
                   &managed, 4096, CU_MEM_ATTACH_GLOBAL),
               "cuMemAllocManaged");
  driver.check(driver_function<CUresult(void**, std::size_t, unsigned)>("cuMemHostAlloc")(&pinned, 4096, 0),
               "cuMemHostAlloc");
  EXPECT_EQ(device_->pointer_kind(buffer.data()), PointerKind::device);
  EXPECT_EQ(device_->pointer_kind(buffer.bytes() + 1001), PointerKind::device);
  EXPECT_EQ(device_->pointer_kind(ordinary.data()), PointerKind::host);
  EXPECT_EQ(device_->pointer_kind(&local), PointerKind::host);
  EXPECT_EQ(device_->pointer_kind(nullptr), PointerKind::host);
  EXPECT_EQ(device_->pointer_kind(reinterpret_cast<void*>(managed)), PointerKind::managed);
  EXPECT_EQ(device_->pointer_kind(pinned), PointerKind::host);
  driver.check(driver.cuMemFree(managed), "cuMemFree");
  driver.check(driver_function<CUresult(void*)>("cuMemFreeHost")(pinned), "cuMemFreeHost");
}

TEST_F(CudaCoexistenceTest, TellsAnotherGpusMemory) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const std::unique_ptr<Device> other = open_cuda_device(1);
  const Buffer buffer(*other, 64);
  EXPECT_EQ(other->pointer_kind(buffer.data()), PointerKind::device);
  EXPECT_EQ(device_->pointer_kind(buffer.data()), PointerKind::other_device);
}

}  // namespace
}  // namespace ce::runtime::cuda
