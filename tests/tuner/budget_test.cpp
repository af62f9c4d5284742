// Searches whose compiler does not keep up, on the host device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "ce/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/host/device.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/build_ahead.hpp"
#include "tuner/kernel.hpp"

namespace ce::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using tuner::Report;
using tuner::Tuner;

/// Knows the binaries of texts that it has compiled; can be told to be late.
class LateDevice : public FaultyDevice {
 public:
  using Clock = std::chrono::steady_clock;

  runtime::Binary compile(const runtime::CompileRequest& request) override {
    std::unique_lock lock(mutex_);
    if (requests_++ == 0) first_ = Clock::now();
    if (requests_ > on_time_) {
      ++waiting_;
      released_.wait_until(lock, first_ + late_, [&] { return is_released_; });
      --waiting_;
    }
    auto known = binaries_.find(request.text);
    if (known == binaries_.end())
      known = binaries_.emplace(request.text, FaultyDevice::compile(request)).first;
    return known->second;
  }

  /// Of the next requests the first ones are on time. The others wait until that long after the first request, which
  /// a search makes once its time runs: a machine that is slow to come to that makes none of them early.
  void hold_back(int on_time, std::chrono::milliseconds time) {
    const std::lock_guard lock(mutex_);
    requests_ = 0;
    on_time_ = on_time;
    late_ = time;
  }
  /// Requests that wait go on.
  void release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    released_.notify_all();
  }

  [[nodiscard]] int requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  [[nodiscard]] int waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable released_;
  bool is_released_ = false;
  std::map<std::string, runtime::Binary> binaries_;
  int requests_ = 0, on_time_ = 0, waiting_ = 0;
  std::chrono::milliseconds late_{0};
  Clock::time_point first_{};
};

class BudgetTest : public TunerTest {
 protected:
  LateDevice device_;

  /// Of four configs, with a budget of a second: so many are ready at once, and the others after that time. A busy
  /// machine has until then for those that are ready, or until twice the budget.
  /// \param known  to the database from a search that was stopped
  Report search(int on_time, std::chrono::milliseconds late, int least_configs, int known = 0,
                int structures = 24) {
    tuner::Settings settings = quick_settings();
    settings.search.least_configs = least_configs;
    settings.search.structures = structures;
    cache::Cache warm = cache::Cache::open(file() + "-warm");
    static_cast<void>(Tuner(device_, warm, settings).tune(small_problem()));
    cache::Cache database = open();
    if (known > 0) stop_after(known, database, settings);
    settings.budget_s = 1;
    device_.hold_back(on_time, late);
    return Tuner(device_, database, settings).tune(small_problem());
  }

 private:
  void stop_after(int configs, cache::Cache& database, const tuner::Settings& settings) {
    std::stop_source stop;
    const tuner::Hooks hooks{.progress =
                                 [&](const tuner::Progress& progress) {
                                   if (progress.done == configs) stop.request_stop();
                                 },
                             .stop = stop.get_token()};
    EXPECT_THROW(static_cast<void>(Tuner(device_, database, settings).tune(small_problem(), hooks)), Error);
  }
};

TEST_F(BudgetTest, FewConfigsMayTakeTwiceTheBudget) {
  const Report report = search(1, 1050ms, 8);
  EXPECT_EQ(report.tried, 4) << "all there are";
  EXPECT_THAT(report.reason, Not(HasSubstr("ready in time")));
}

TEST_F(BudgetTest, EnoughConfigsDoNotWaitForMore) {
  const Report report = search(2, 1800ms, 2);
  EXPECT_EQ(report.tried, 2);
  EXPECT_THAT(report.reason, Not(HasSubstr("ready in time")));
}

TEST_F(BudgetTest, AWinnerOfTooFewSaysSo) {
  const Report report = search(2, 2200ms, 3);
  EXPECT_EQ(report.tried, 2);
  EXPECT_THAT(report.reason, HasSubstr("; only 2 of 4 configs were ready in time"));
}

/// It serves meanwhile.
TEST_F(BudgetTest, ASearchThatWasCutShortGoesOnUntilItIsFinished) {
  const Report cut = search(2, 2200ms, 3);
  EXPECT_TRUE(cut.is_cut_short);
  EXPECT_THAT(cut.unfinished, HasSubstr("only 2 of 4 configs were ready in time"));
  cache::Cache database = open();
  tuner::Settings settings = quick_settings();
  settings.search.least_configs = 3;
  settings.search.structures = 24;
  Tuner tuner(device_, database, settings);
  EXPECT_TRUE(tuner::has_final(tuner.known_winner(small_problem())));
  EXPECT_FALSE(tuner::is_finished(tuner.known_winner(small_problem())));

  const Report whole = tuner.tune(small_problem());
  EXPECT_EQ(whole.known, 2) << "what was tried is not tried again";
  EXPECT_EQ(whole.tried, 4);
  EXPECT_EQ(whole.unfinished, "");
  EXPECT_TRUE(tuner::is_finished(tuner.known_winner(small_problem())));
  EXPECT_EQ(tuner.tune(small_problem()).compiled, 0) << "nothing is left to do";

  settings.again = true;
  const std::size_t before = database.measurements(tuner.key(small_problem())).size();
  const Report again = Tuner(device_, database, settings).tune(small_problem());
  EXPECT_EQ(again.known, 4);
  EXPECT_GT(database.measurements(tuner.key(small_problem())).size(), before) << "another final";
}

TEST_F(BudgetTest, SoDoesOneWhoseRefiningHadNoTime) {
  const Report report = search(0, 2200ms, 8, 0, 1);
  EXPECT_EQ(report.tried, 1);
  EXPECT_THAT(report.reason, HasSubstr("; only 1 of 4 configs were ready in time"));
}

TEST_F(BudgetTest, TheFirstConfigIsWaitedForHoweverLongItTakes) {
  const Report report = search(0, 2200ms, 8);
  EXPECT_EQ(report.tried, 1);
  EXPECT_THAT(report.reason, HasSubstr("; only 1 of 4 configs were ready in time"));
}

TEST_F(BudgetTest, FromItsEndOnNothingBegins) {
  cache::Cache database = open();
  tuner::Settings settings = quick_settings();
  settings.end = LateDevice::Clock::now();
  Tuner tuner(device_, database, settings);
  EXPECT_EQ(tuner.search(small_problem()).compiled, 0);
  EXPECT_FALSE(tuner.known_winner(small_problem()));
  EXPECT_FALSE(tuner.known_report(small_problem()));
  EXPECT_EQ(tuner.ceiling(small_problem()), 0);
  EXPECT_EQ(device_.requests(), 0);
}

TEST_F(BudgetTest, WhatASearchIsStillCompilingKeepsTheNextOneNotWaiting) {
  cache::Cache database = open();
  tuner::Settings settings = quick_settings();
  settings.search.structures = 24;
  settings.budget_s = 0.3;
  device_.hold_back(1, 1min);
  Tuner tuner(device_, database, settings);
  static_cast<void>(tuner.search(small_problem()));
  const int held_back = device_.waiting();
  device_.hold_back(1000, 0ms);  // from here on nothing; what waits goes on waiting
  generator::Problem other = small_problem();
  other.columns /= 2;
  EXPECT_GE(tuner.tune(other).tried, 1);
  EXPECT_EQ(device_.waiting(), held_back);
  device_.release();
}

/// Else a search with little time would begin with the same configs again and again.
TEST_F(BudgetTest, WhatHasBegunByItsEndIsFinished) {
  cache::Cache database = open();
  tuner::Settings settings = quick_settings();
  settings.search.structures = 24;
  device_.hold_back(0, 2100ms);
  settings.end = LateDevice::Clock::now() + 2000ms;
  Tuner tuner(device_, database, settings);
  const Report cut = tuner.tune(small_problem());
  tuner.finish();
  EXPECT_LE(device_.requests(), device_.parallel_compiles()) << "none begins after it";
  EXPECT_EQ(cut.tried, 1);
  EXPECT_TRUE(cut.is_cut_short);
  EXPECT_EQ(cut.unfinished, "no final was timed");

  const int before = device_.requests();
  EXPECT_EQ(tuner.search(small_problem()).known, 1);
  EXPECT_EQ(device_.requests(), before) << "nor is anything compiled for a final";
  EXPECT_FALSE(tuner.known_report(small_problem())) << "there is something left to do";

  tuner.set_end(LateDevice::Clock::time_point::max());
  const Report whole = tuner.tune(small_problem());
  EXPECT_EQ(whole.known, 1);
  EXPECT_EQ(whole.tried, 4);
  EXPECT_EQ(whole.unfinished, "");
  const auto known = tuner.known_report(small_problem());
  ASSERT_TRUE(known);
  EXPECT_EQ(known->winner, whole.winner);
  EXPECT_EQ(known->known, 4);
}

TEST_F(BudgetTest, AnExhaustiveSearchThatIsCutShortSaysSoHoweverManyItTried) {
  cache::Cache database = open();
  tuner::Settings settings = quick_settings();
  settings.search.strategy = tuner::Strategy::exhaustive;
  settings.search.least_configs = 2;
  {
    cache::Cache warm = cache::Cache::open(file() + "-warm");
    static_cast<void>(Tuner(device_, warm, settings).tune(small_problem()));
  }
  device_.hold_back(2, 2200ms);
  settings.budget_s = 1;
  const Report cut = Tuner(device_, database, settings).tune(small_problem());
  EXPECT_EQ(cut.tried, 2);
  EXPECT_THAT(cut.unfinished, HasSubstr("only 2 of 4 configs were ready in time"));
}

/// Compiles two at once. The last of a screening waits for one of the next.
class WaitingDevice : public FaultyDevice {
 public:
  explicit WaitingDevice(int screened) : screened_(screened) {}

  int parallel_compiles() const override { return 2; }
  runtime::Binary compile(const runtime::CompileRequest& request) override {
    const std::string problem = generator::code_text(small_problem()) + " ";
    if (!request.name.starts_with(problem)) return FaultyDevice::compile(request);
    {
      std::unique_lock lock(mutex_);
      const int number = ++requests_;
      next_.notify_all();
      if (number == screened_) came_ = next_.wait_for(lock, 20s, [&] { return requests_ > screened_; });
    }
    return FaultyDevice::compile(request);
  }

  [[nodiscard]] bool came() const { return came_; }

 private:
  const int screened_;
  std::mutex mutex_;
  std::condition_variable next_;
  int requests_ = 0;
  bool came_ = false;
};

TEST_F(BudgetTest, ACompilerThatWouldWaitBeginsWithWhatIsLikelyNext) {
  tuner::Settings settings = quick_settings();
  settings.search.most_configs = 0;
  settings.search.structures = 4;
  settings.search.refined = 2;
  settings.search.modifiers = 2;
  WaitingDevice device(settings.search.structures);
  cache::Cache database = open();
  const Report report = Tuner(device, database, settings).tune(small_problem());
  EXPECT_TRUE(device.came()) << "while the last of a screening was being compiled";
  EXPECT_GT(report.tried, settings.search.structures);
}

/// Two compilers that get nowhere, and wait a moment for a third one, or until they are released.
class IdleCompilers : public DeviceDecorator {
 public:
  IdleCompilers() : DeviceDecorator(runtime::open_host_device()) {}

  int parallel_compiles() const override { return 2; }
  runtime::Binary compile(const runtime::CompileRequest&) override {
    std::unique_lock lock(mutex_);
    most = std::max(most, ++at_once_);
    ++asked;
    changed_.notify_all();
    if (held_)
      changed_.wait(lock, [&] { return !held_; });
    else
      changed_.wait_for(lock, 20ms, [&] { return most > 2; });
    --at_once_;
    throw Error(ErrorKind::compile, "planted by the test");
  }
  void wait_for(int requests) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked >= requests; });
  }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  int asked = 0, most = 0;  ///< requests, and those at once

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int at_once_ = 0;
  bool held_ = false;
};

std::vector<generator::Config> some_configs(const runtime::Device& device) {
  std::vector<generator::Config> configs =
      generator::space(small_problem(), tuner::limits_of(device.model()));
  configs.resize(6);
  return configs;
}

TEST_F(BudgetTest, NoMoreConfigsAreBuiltAtOnceThanThereAreCompilers) {
  IdleCompilers device;
  cache::Cache database = open();
  tuner::BuildAhead ahead(device, database, small_problem(), some_configs(device));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_THROW(static_cast<void>(ahead.take(i)), Error);
  EXPECT_EQ(device.most, 2);
  EXPECT_EQ(device.asked, 6);
}

TEST_F(BudgetTest, FromTheDeadlineOnNothingIsReady) {
  IdleCompilers device;
  cache::Cache database = open();
  tuner::BuildAhead ahead(device, database, small_problem(), some_configs(device));
  device.wait_for(1);
  while (ahead.is_building()) std::this_thread::yield();
  EXPECT_FALSE(ahead.next(tuner::BuildAhead::Clock::now()));
  EXPECT_TRUE(ahead.next(tuner::BuildAhead::Clock::time_point::max()));
}

TEST_F(BudgetTest, OnceStoppedNothingIsBegun) {
  IdleCompilers device;
  cache::Cache database = open();
  device.hold(true);
  {
    tuner::BuildAhead ahead(device, database, small_problem(), some_configs(device));
    device.wait_for(2);
    ahead.stop();
    device.hold(false);
  }
  EXPECT_EQ(device.asked, 2) << "what was begun by then";
}

TEST_F(BudgetTest, WhereAnotherSearchFoundEnoughNoneIsWaitedFor) {
  const Report report = search(0, 2200ms, 2, 2);
  EXPECT_EQ(report.known, 2);
  EXPECT_EQ(report.tried, 2);
}

}  // namespace
}  // namespace ce::test
