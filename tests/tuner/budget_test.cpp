// Searches whose compiler does not keep up, on the host device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "ce/base/error.hpp"
#include "tests/tuner/fixture.hpp"

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
    if (requests_++ >= on_time_) std::this_thread::sleep_until(until_);
    const std::lock_guard lock(mutex_);
    auto known = binaries_.find(request.text);
    if (known == binaries_.end())
      known = binaries_.emplace(request.text, FaultyDevice::compile(request)).first;
    return known->second;
  }

  /// Of the next requests the first ones are on time, and the others wait.
  void hold_back(int on_time, std::chrono::milliseconds time) {
    requests_ = 0;
    on_time_ = on_time;
    until_ = Clock::now() + time;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, runtime::Binary> binaries_;
  std::atomic<int> requests_ = 0, on_time_ = 0;
  Clock::time_point until_{};
};

class BudgetTest : public TunerTest {
 protected:
  /// Of four configs, with a budget of a second: so many are ready at once, and the others after that time.
  /// \param known  to the database from a search that was stopped
  Report search(int on_time, std::chrono::milliseconds late, int least_configs, int known = 0) {
    tuner::Settings settings = quick_settings();
    settings.search.least_configs = least_configs;
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

  LateDevice device_;
};

TEST_F(BudgetTest, FewConfigsMayTakeTwiceTheBudget) {
  const Report report = search(1, 900ms, 8);
  EXPECT_EQ(report.tried, 4) << "all there are";
  EXPECT_THAT(report.reason, Not(HasSubstr("ready in time")));
}

TEST_F(BudgetTest, EnoughConfigsDoNotWaitForMore) {
  const Report report = search(2, 900ms, 2);
  EXPECT_EQ(report.tried, 2);
  EXPECT_THAT(report.reason, Not(HasSubstr("ready in time")));
}

TEST_F(BudgetTest, AWinnerOfTooFewSaysSo) {
  const Report report = search(2, 2200ms, 3);
  EXPECT_EQ(report.tried, 2);
  EXPECT_THAT(report.reason, HasSubstr("; only 2 of 4 configs were ready in time"));
}

TEST_F(BudgetTest, TheFirstConfigIsWaitedForHoweverLongItTakes) {
  const Report report = search(0, 2200ms, 8);
  EXPECT_EQ(report.tried, 1);
  EXPECT_THAT(report.reason, HasSubstr("; only 1 of 4 configs were ready in time"));
}

TEST_F(BudgetTest, WhereAnotherSearchFoundEnoughNoneIsWaitedFor) {
  const Report report = search(0, 2200ms, 2, 2);
  EXPECT_EQ(report.known, 2);
  EXPECT_EQ(report.tried, 2);
}

}  // namespace
}  // namespace ce::test
