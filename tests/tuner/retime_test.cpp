// Winners timed again, and their ceilings.
#include "tuner/retime.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

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

class RetimeTest : public TunerTest {
 protected:
  tuner::Beside beside(ShakenDevice& device, int samples) {
    cache::Cache cache = open();
    const std::vector<std::string> configs{
        generator::to_text(tuner::safe_default(small_problem(), device.model()))};
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
  EXPECT_EQ(found.measurements[0].evidence.at("reference_us"), "10.000");
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

TEST_F(RetimeTest, NothingIsCopiedToItself) {
  for (const bool in_place : {true, false}) {
    CopyingDevice device;
    cache::Cache cache = open();
    generator::Problem problem = small_problem();
    problem.in_place = in_place;
    const std::string config = generator::to_text(tuner::safe_default(problem, device.model()));
    const tuner::Retiming found = tuner::Retimer(device, cache, quick_settings()).time(problem, config, 3);
    EXPECT_EQ(device.to_itself, 0) << in_place;
    if (in_place)
      EXPECT_NE(found.ceiling.config, "driver copy");
    else
      EXPECT_GT(device.apart, 0) << "the driver's copy is a ceiling";
  }
}

}  // namespace
}  // namespace ce::test
