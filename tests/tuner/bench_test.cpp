// Which memory a kernel is timed on.
#include "tuner/bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

#include "ce/base/error.hpp"
#include "runtime/host/device.hpp"
#include "templates/arguments.cuh"
#include "tests/tuner/fixture.hpp"
#include "tuner/ranking.hpp"
#include "tuner/verify.hpp"

namespace ce::test {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;
using testing::SizeIs;

/// The host device under the name of a GPU with a small L2, which notes the input of each launch.
class NotingDevice : public DeviceDecorator {
 public:
  NotingDevice() : DeviceDecorator(runtime::open_host_device()), model_(DeviceDecorator::model()) {
    model_.capability = 90;
    model_.l2_bytes = 1 << 16;
  }
  const runtime::Model& model() const override { return model_; }
  void launch(std::span<const runtime::KernelLaunch> kernels, const void* arguments,
              std::size_t argument_bytes, Stream stream) override {
    Arguments own;
    std::memcpy(&own, arguments, sizeof own);
    if (kernels.front().function.handle == noted) {
      inputs.push_back(own.input);
      EXPECT_EQ(kept, nullptr) << "what the launch before asked L2 to keep is still there";
      kept = own.input;
    }
    DeviceDecorator::launch(kernels, arguments, argument_bytes, stream);
  }

  void reset_eviction_priority(const void* data, std::size_t bytes, Stream stream) override {
    if (kept != nullptr && !std::less<>()(kept, data) &&
        std::less<>()(kept, static_cast<const std::byte*>(data) + bytes))
      kept = nullptr;
    DeviceDecorator::reset_eviction_priority(data, bytes, stream);
  }

  void* allocate(std::size_t bytes) override {
    if (allocations-- == 0) throw DeviceError("cuMemAlloc", 2, "planted by the test");
    return DeviceDecorator::allocate(bytes);
  }

  const void* noted = nullptr;
  int allocations = -1;  ///< that succeed; less than none: all
  std::vector<const void*> inputs;
  const void* kept = nullptr;  ///< the last of these, until its priority is reset

 private:
  runtime::Model model_;
};

class BenchTest : public TunerTest {
 protected:
  BenchTest() : cache(open()) {}

  /// Of as many samples of a kernel.
  std::vector<const void*> inputs_of(int samples, std::int64_t scratch_bytes = 0) {
    tuner::Bench bench(noting, cache, small_problem(), scratch_bytes, 1);
    const tuner::Kernel kernel = noted_kernel();
    EXPECT_THAT(bench.samples(kernel, samples), SizeIs(samples));
    return noting.inputs;
  }

  tuner::Kernel noted_kernel() {
    tuner::Kernel kernel =
        tuner::build(noting, cache, small_problem(), tuner::safe_default(small_problem(), noting.model()))
            .load(noting);
    noting.noted = kernel.launches(small_problem()).all().front().function.handle;
    noting.inputs.clear();
    return kernel;
  }

  static std::map<const void*, int> counted(const std::vector<const void*>& inputs) {
    std::map<const void*, int> counts;
    for (const void* input : inputs) ++counts[input];
    return counts;
  }

  NotingDevice noting;
  cache::Cache cache;
};

TEST_F(BenchTest, SmallTensorsAreTimedInManyPlacesAlike) {
  const std::vector<const void*> inputs = inputs_of(36);
  ASSERT_THAT(inputs, SizeIs(48)) << "one of four is not counted";
  const auto counts = counted(inputs);
  EXPECT_THAT(counts, SizeIs(12));
  for (const auto& [input, count] : counts) EXPECT_EQ(count, 4);
  for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(inputs[i], inputs[i / 4 * 4]);
}

TEST_F(BenchTest, SamplesGoOnWhereTheLastEnded) {
  tuner::Bench bench(noting, cache, small_problem(), 0, 1);
  const tuner::Kernel kernel = noted_kernel();
  cache::Measurement measurement;
  for (int turn = 0; turn < 12; ++turn) bench.time(kernel, 3, measurement);
  EXPECT_THAT(measurement.samples_us, SizeIs(36));
  EXPECT_THAT(counted(noting.inputs), SizeIs(12));
}

TEST_F(BenchTest, WhatAKernelAskedL2ToKeepIsNotThereForTheNext) {
  EXPECT_THAT(inputs_of(6), SizeIs(8));  // the device looks at each of these launches
  EXPECT_EQ(noting.kept, nullptr);
  const tuner::Kernel kernel = noted_kernel();
  EXPECT_EQ(tuner::Verifier(noting, small_problem(), 1).mismatch(kernel), std::nullopt);
  EXPECT_THAT(noting.inputs, SizeIs(Ge(2)));
  EXPECT_EQ(noting.kept, nullptr);
}

TEST_F(BenchTest, PlacesAreWithinTheScratchMemory) {
  EXPECT_THAT(counted(inputs_of(36, 100'000)), SizeIs(AllOf(Ge(2), Le(3))));
  EXPECT_THAT(counted(inputs_of(36, 20'000)), SizeIs(1)) << "of fewer rows";
}

TEST_F(BenchTest, WhereMemoryIsShortThereAreFewerPlaces) {
  constexpr int many = 1000;
  noting.allocations = many;
  const tuner::TrialMemory one(noting, generator::timing_trial(small_problem(), 1));
  const int of_a_place = many - noting.allocations;
  noting.allocations = 3 * of_a_place + of_a_place / 2;
  EXPECT_THAT(counted(inputs_of(36)), SizeIs(3));
  noting.allocations = of_a_place - 1;
  EXPECT_THROW(inputs_of(36), DeviceError);
}

}  // namespace
}  // namespace ce::test
