// Winners timed again, and their ceilings.
#include "cli/analysis/retime.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stop_token>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/ranking.hpp"

namespace ce::test {
namespace {

using testing::Each;
using testing::SizeIs;

/// The host device under the name of a GPU with a small L2, where everything takes twice as long in some turns.
class ShakenDevice : public DeviceDecorator {
 public:
  ShakenDevice() : DeviceDecorator(runtime::open_host_device()), model_(DeviceDecorator::model()) {
    model_.capability = 90;
    model_.l2_bytes = 1 << 16;
  }
  const runtime::Model& model() const override { return model_; }
  std::vector<float> time(int samples, const std::function<void()>& /*before*/,
                          const std::function<void()>& /*timed*/) override {
    return std::vector<float>(static_cast<std::size_t>(samples), slow_turns.contains(turn) ? 20.F : 10.F);
  }

  int turn = 0;
  std::set<int> slow_turns;

 private:
  runtime::Model model_;
};

/// Notes copies of something to itself.
class CopyingDevice : public DeviceDecorator {
 public:
  CopyingDevice() : DeviceDecorator(runtime::open_host_device()) {}
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    (to == from ? to_itself : apart) += 1;
    DeviceDecorator::copy(to, from, bytes, stream);
  }

  int to_itself = 0, apart = 0;
};

/// The kernels that it meets become faster by 10 us each, from 100 us on.
class OrderedDevice : public DeviceDecorator {
 public:
  OrderedDevice() : DeviceDecorator(runtime::open_host_device()) {}
  void launch(std::span<const runtime::KernelLaunch> kernels, const void* arguments,
              std::size_t argument_bytes, Stream stream) override {
    const auto [known, is_new] =
        numbers_.emplace(kernels.front().function.handle, static_cast<int>(numbers_.size()));
    last_ = known->second;
    if (last_ != wrong) DeviceDecorator::launch(kernels, arguments, argument_bytes, stream);
  }
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    before();
    last_ = -1;
    timed();
    const float us = last_ < 0 ? driver_us : 100.F - 10.F * static_cast<float>(last_);
    return std::vector<float>(static_cast<std::size_t>(samples), us);
  }
  runtime::Binary compile(const runtime::CompileRequest& request) override {
    ++compiled;
    return DeviceDecorator::compile(request);
  }
  int parallel_compiles() const override { return 1; }

  float driver_us = 1000;  ///< of its own copy
  int wrong = -1;          ///< the kernel of that number computes nothing
  int compiled = 0;

 private:
  std::map<const void*, int> numbers_;
  int last_ = -1;
};

class RetimeTest : public TunerTest {
 protected:
  tuner::Beside beside(ShakenDevice& device, int samples) {
    cache::Cache cache = open();
    const std::vector<generator::Config> configs{tuner::safe_default(small_problem(), device.model())};
    const tuner::Hooks hooks{.progress = [&](const tuner::Progress& progress) {
      ++device.turn;
      EXPECT_LE(progress.done, progress.total);
    }};
    return tuner::Retimer(device, cache, quick_settings())
        .time_beside({"problem", "device"}, small_problem(), configs, samples, 3, hooks);
  }
};

TEST_F(RetimeTest, DisturbedTurnsAreTakenAgain) {
  ShakenDevice device;
  device.slow_turns = {1, 3};
  const tuner::Beside found = beside(device, 15);
  EXPECT_THAT(found.measurements.at(0).samples_us, SizeIs(15));
  EXPECT_THAT(found.measurements[0].samples_us, Each(10));
  EXPECT_EQ(found.measurements[0].median_us, 10);
  EXPECT_EQ(found.measurements[0].environment.at("reference_us"), "10.000");
}

TEST_F(RetimeTest, AsManySamplesAreKeptAsWereAskedFor) {
  ShakenDevice device;
  EXPECT_THAT(beside(device, 7).measurements.at(0).samples_us, SizeIs(7));
  EXPECT_EQ(device.turn, 3);
}

/// Whatever happens, it ends, with what most turns say.
TEST_F(RetimeTest, WhereTheMachineStaysSlowThatIsUsual) {
  ShakenDevice device;
  for (int turn = 2; turn < 100; ++turn) device.slow_turns.insert(turn);
  const tuner::Beside found = beside(device, 15);
  EXPECT_EQ(device.turn, 5);
  EXPECT_EQ(found.measurements.at(0).median_us, 20);
  ShakenDevice other;
  for (int turn = 1; turn < 100; turn += 2) other.slow_turns.insert(turn);
  EXPECT_THAT(beside(other, 15).measurements.at(0).samples_us, Each(10));
  EXPECT_EQ(other.turn, 9);
}

TEST_F(RetimeTest, WhatWasBuiltIsKept) {
  for (const bool again : {false, true}) {
    OrderedDevice device;
    cache::Cache cache = open();
    const std::vector<generator::Config> configs{tuner::safe_default(small_problem(), device.model())};
    static_cast<void>(tuner::Retimer(device, cache, quick_settings())
                          .time_beside({"problem", "device"}, small_problem(), configs, 3, 3));
    EXPECT_EQ(device.compiled, again ? 0 : 1);
  }
}

TEST_F(RetimeTest, StopsWhenItIsAsked) {
  OrderedDevice device;
  cache::Cache cache = open();
  const std::vector<generator::Config> configs{tuner::safe_default(small_problem(), device.model())};
  std::stop_source stop;
  const tuner::Hooks hooks{.progress = [&](const tuner::Progress&) { stop.request_stop(); },
                           .stop = stop.get_token()};
  tuner::Retimer retimer(device, cache, quick_settings());
  EXPECT_THROW(static_cast<void>(retimer.time(small_problem(), configs[0], 6, hooks)), Error);
  stop = std::stop_source();
  const tuner::Hooks others{.progress = hooks.progress, .stop = stop.get_token()};
  EXPECT_THROW(
      static_cast<void>(retimer.time_beside({"problem", "device"}, small_problem(), configs, 6, 3, others)),
      Error);
}

TEST_F(RetimeTest, TheCeilingIsTheFastestThatIsRight) {
  constexpr int ceilings = 4;
  for (const int wrong : {-1, ceilings - 1}) {
    SCOPED_TRACE(wrong);
    OrderedDevice device;
    device.wrong = wrong;
    cache::Cache cache = open();
    const generator::Config config = tuner::safe_default(small_problem(), device.model());
    tuner::Retimer retimer(device, cache, quick_settings());
    const tuner::Retiming found = retimer.time(small_problem(), config, 3);
    const double fastest_us = wrong < 0 ? 70 : 80;
    EXPECT_EQ(found.ceiling.median_us, fastest_us) << found.ceiling.config;
    EXPECT_NE(found.ceiling.config, "driver copy");
    EXPECT_EQ(found.winner.median_us, 60) << "met after all ceilings";
    device.driver_us = 50;
    const tuner::Retiming again = retimer.time(small_problem(), config, 3);
    EXPECT_EQ(again.ceiling.config, "driver copy");
    EXPECT_EQ(again.ceiling.median_us, 50);
    EXPECT_EQ(again.ceiling.bytes, found.ceiling.bytes);
  }
}

TEST_F(RetimeTest, TheCeilingMovesAsManyBytes) {
  using generator::Operation;
  for (const Operation operation :
       {Operation::softmax, Operation::softmax_backward, Operation::cross_entropy}) {
    OrderedDevice device;
    cache::Cache cache = open();
    generator::Problem problem = small_problem();
    problem.operation = operation;
    problem.probabilities = operation == Operation::cross_entropy;
    problem.rows = 64;  // and columns: whole rows of the ceiling's
    problem.columns = 128;
    const generator::Config config = tuner::safe_default(problem, device.model());
    const tuner::Retiming found = tuner::Retimer(device, cache, quick_settings()).time(problem, config, 3);
    const std::int64_t matrices = operation == Operation::softmax_backward ? 3 : 2;
    EXPECT_EQ(found.ceiling.bytes, matrices * 64 * 128 * 4) << generator::name(operation);
  }
}

TEST_F(RetimeTest, NothingIsCopiedToItself) {
  for (const bool in_place : {true, false}) {
    CopyingDevice device;
    cache::Cache cache = open();
    generator::Problem problem = small_problem();
    problem.in_place = in_place;
    const generator::Config config = tuner::safe_default(problem, device.model());
    const tuner::Retiming found = tuner::Retimer(device, cache, quick_settings()).time(problem, config, 3);
    EXPECT_EQ(device.to_itself, 0) << in_place;
    EXPECT_EQ(found.problem.in_place, in_place);
    if (in_place)
      EXPECT_NE(found.ceiling.config, "driver copy");
    else
      EXPECT_GT(device.apart, 0) << "the driver's copy is a ceiling";
  }
}

}  // namespace
}  // namespace ce::test
