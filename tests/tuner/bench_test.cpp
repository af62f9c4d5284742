// Which memory a kernel is timed on.
#include "tuner/bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "templates/arguments.cuh"
#include "tests/tuner/fixture.hpp"
#include "tuner/ranking.hpp"
#include "tuner/turns.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::test {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;
using testing::SizeIs;
using testing::StartsWith;

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
    launched_blocks = kernels.front().launch.blocks;
    events.push_back(kernels.front().function.handle == noted ? Event::noted : Event::other);
    if (launches_that_work-- == 0) return;
    if (kernels.front().function.handle == noted) {
      inputs.push_back(own.input);
      EXPECT_EQ(kept, nullptr) << "what the launch before asked L2 to keep is still there";
      kept = own.input;
    }
    DeviceDecorator::launch(kernels, arguments, argument_bytes, stream);
  }

  void fill(void* device, unsigned char value, std::size_t bytes, Stream stream) override {
    events.push_back(Event::set_back);
    DeviceDecorator::fill(device, value, bytes, stream);
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    events.push_back(Event::set_back);
    copied_to = to;
    copied_from = from;
    copied_bytes = bytes;
    DeviceDecorator::copy(to, from, bytes, stream);
  }
  std::size_t free_bytes() const override { return 1 << 22; }
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    std::vector<float> times = DeviceDecorator::time(samples, before, timed);
    for (float& time : times) time = us_of(launched_blocks, launches_timed++);
    return times;
  }

  void reset_eviction_priority(const void* data, std::size_t bytes, Stream stream) override {
    ++resets;
    if (kept != nullptr && !std::less<>()(kept, data) &&
        std::less<>()(kept, static_cast<const std::byte*>(data) + bytes))
      kept = nullptr;
    DeviceDecorator::reset_eviction_priority(data, bytes, stream);
  }

  void* allocate(std::size_t bytes) override {
    if (allocations-- == 0) throw DeviceError("cuMemAlloc", 2, "planted by the test");
    return DeviceDecorator::allocate(bytes);
  }

  enum class Event { set_back, noted, other };

  const void* noted = nullptr;
  std::vector<Event> events;
  std::size_t launched_blocks = 0;  ///< the last time
  /// By the number of blocks, and how many launches were timed before.
  std::function<float(std::size_t, std::size_t)> us_of = [](std::size_t, std::size_t) { return 100.F; };
  std::size_t launches_timed = 0;
  int launches_that_work = -1;  ///< before one that does nothing; less than none: all
  int resets = 0;               ///< of eviction priorities
  const void *copied_to = nullptr, *copied_from = nullptr;
  std::size_t copied_bytes = 0;  ///< the last time
  int allocations = -1;          ///< that succeed; less than none: all
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
    tuner::Kernel kernel(noting, tuner::build(noting, cache, small_problem(),
                                              tuner::safe_default(small_problem(), noting.model())));
    noting.noted = first_function(kernel, small_problem());
    noting.inputs.clear();
    return kernel;
  }

  static const void* first_function(const tuner::Kernel& kernel, const generator::Problem& problem) {
    tuner::Kernel::Launches room;
    return kernel.launches(problem, room).front().function.handle;
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

/// Which of four launches of the stream a kernel is moves it: all four count alike.
TEST_F(BenchTest, ASampleOfAShortKernelIsTheMeanOfFourLaunches) {
  tuner::Bench bench(noting, cache, small_problem(), 0, 1);
  const tuner::Kernel kernel = noted_kernel();
  noting.us_of = [](std::size_t, std::size_t launch) { return static_cast<float>(launch); };
  EXPECT_THAT(bench.samples(kernel, 4), testing::ElementsAre(2.5F, 6.5F, 10.5F, 15.5F))
      << "the first launch of each place is not counted";
  EXPECT_THAT(counted(noting.inputs), SizeIs(2));
  noting.launches_timed = 30;
  EXPECT_THAT(bench.samples(kernel, 4), testing::ElementsAre(31, 32, 33, 35)) << "no short one";
}

TEST_F(BenchTest, WhatAKernelAskedL2ToKeepIsNotThereForTheNext) {
  EXPECT_THAT(inputs_of(6), SizeIs(8));  // the device looks at each of these launches
  EXPECT_EQ(noting.kept, nullptr);
  const tuner::Kernel kernel = noted_kernel();
  EXPECT_EQ(tuner::Verifier(noting, small_problem(), 1).mismatch(kernel), std::nullopt);
  EXPECT_THAT(noting.inputs, SizeIs(Ge(2)));
  EXPECT_EQ(noting.kept, nullptr);
}

TEST_F(BenchTest, WhatOthersAskedL2ToKeepInThisMemoryIsNotThere) {
  const tuner::TrialMemory memory(noting, generator::timing_trial(small_problem(), 1));
  EXPECT_GE(noting.resets, 1);
}

TEST_F(BenchTest, TensorsAreFilledToTheEnd) {
  generator::Trial trial = generator::timing_trial(small_problem(), 1);
  generator::TrialTensor& input = trial.tensors.at(0);
  input.initial = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::vector<std::byte> expected(input.bytes);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = input.initial[i % 3];
  EXPECT_EQ(tuner::TrialMemory(noting, trial).run(noted_kernel()).at(0), expected);
}

TEST_F(BenchTest, BeforeEachSampleTensorsAreSetBackAndThenL2IsFilled) {
  using Event = NotingDevice::Event;
  for (const bool in_place : {false, true}) {
    generator::Problem problem = small_problem();
    problem.in_place = in_place;
    tuner::Bench bench(noting, cache, problem, 0, 1);
    const tuner::Kernel kernel(
        noting, tuner::build(noting, cache, problem, tuner::safe_default(problem, noting.model())));
    noting.noted = first_function(kernel, problem);
    noting.events.clear();
    EXPECT_THAT(bench.samples(kernel, 2), SizeIs(2));
    std::vector<Event> expected;
    for (int launch = 0; launch < 3; ++launch)
      expected.insert(expected.end(), {Event::set_back, Event::other, Event::noted});
    EXPECT_EQ(noting.events, expected) << in_place;
    noting.kept = nullptr;
  }
}

TEST_F(BenchTest, TheReferenceIsWhatFillsL2Twice) {
  tuner::Bench bench(noting, cache, small_problem(), 0, 1);
  EXPECT_THAT(bench.reference(), StartsWith("read f32 9 x 4096 ")) << "more than twice 64 KiB";
  noting.us_of = [](std::size_t blocks, std::size_t) { return static_cast<float>(4 * blocks); };
  EXPECT_EQ(bench.time_reference(3), 9 * 4);
  const std::vector<float> references{9 * 4};
  const runtime::Environment environment = bench.environment(references);
  EXPECT_EQ(environment.at("reference"), bench.reference());
  EXPECT_EQ(environment.at("reference_us"), "36.000");
  EXPECT_EQ(environment.at("launch_us"), "4.000") << "of one block";
  EXPECT_EQ(environment.at("places"), "12");
  EXPECT_NE(environment.at("process"), "");
  EXPECT_EQ(environment.at("process"),
            tuner::Bench(noting, cache, small_problem(), 0, 2).environment({}).at("process"));
}

TEST_F(BenchTest, AQuarterOfWhatIsFreeIsUsedAsScratchMemory) {
  EXPECT_EQ(tuner::usual_scratch(noting), 1 << 20);
}

TEST_F(BenchTest, TheDriverCopiesTheInputToTheOutput) {
  tuner::Bench bench(noting, cache, small_problem(), 20'000, 1);
  static_cast<void>(bench.time_driver_copy(1));
  EXPECT_EQ(noting.copied_bytes, static_cast<std::size_t>(bench.problem().rows * 100 * 4)) << "as is timed";
  EXPECT_LT(bench.problem().rows, small_problem().rows);
  EXPECT_NE(noting.copied_to, noting.copied_from);
}

TEST_F(BenchTest, TurnsBeginWithOneKernelAfterTheOtherAndGoOnInTheNextPlace) {
  tuner::Bench bench(noting, cache, small_problem(), 0, 1);
  const tuner::Kernel kernel = noted_kernel();
  const tuner::Kernel other(noting, tuner::build(noting, cache, small_problem(), kernel.config()));
  ASSERT_NE(first_function(other, small_problem()), noting.noted);
  const std::vector<const tuner::Kernel*> kernels{&kernel, &other};
  for (std::size_t turn = 0; turn < 12; ++turn) {
    int asked = 0;
    bool noted_was_first = false;
    const tuner::Turn taken = tuner::take_turn(bench, kernels, turn, 3, [&] {
      if (++asked == 2) noted_was_first = noting.inputs.size() == 4 * (turn + 1);
    });
    EXPECT_EQ(asked, 2) << "before each";
    EXPECT_EQ(noted_was_first, turn % 2 == 0);
    EXPECT_THAT(taken.samples, testing::Each(SizeIs(3)));
  }
  EXPECT_THAT(counted(noting.inputs), SizeIs(12));
}

TEST_F(BenchTest, AKernelMustBeRightOnAllInputs) {
  const tuner::Kernel kernel = noted_kernel();
  tuner::Verifier verifier(noting, small_problem(), 1);
  const int trials = static_cast<int>(generator::verification_trials(small_problem(), 1).size());
  ASSERT_GE(trials, 2);
  for (int broken = 0; broken < trials; ++broken) {
    noting.launches_that_work = broken;
    EXPECT_TRUE(verifier.mismatch(kernel)) << broken;
    noting.launches_that_work = -1;
    EXPECT_EQ(verifier.mismatch(kernel), std::nullopt) << broken;
  }
}

TEST(Ceilings, AreOfTheSameTraffic) {
  using generator::Operation;
  const auto kind_of = [](Operation operation, bool gradient) {
    generator::Problem problem = small_problem();
    problem.operation = operation;
    problem.gradient = gradient;
    return tuner::ceiling_kind(problem);
  };
  EXPECT_EQ(kind_of(Operation::softmax, false), Operation::copy);
  EXPECT_EQ(kind_of(Operation::softmax_backward, false), Operation::add);
  EXPECT_EQ(kind_of(Operation::cross_entropy, false), Operation::read);
  EXPECT_EQ(kind_of(Operation::cross_entropy, true), Operation::copy);
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
