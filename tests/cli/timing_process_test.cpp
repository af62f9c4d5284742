// Runs that a process of its own makes, on the host device.
#include "cli/commands/timing_process.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/cli/process.hpp"
#include "tuner/ranking.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;

class Timing : public test::CommandTest {
 protected:
  static constexpr int samples = 6, a_turn = 3;

  [[nodiscard]] ErrorKind failure(TimingProcess& process, const generator::Config& config) const {
    try {
      static_cast<void>(process.time_beside(key_, problem_, std::vector{config}, samples, a_turn, {}));
    } catch (const Error& error) {
      message_ = error.what();
      return error.kind();
    }
    return ErrorKind::interrupted;
  }

  std::unique_ptr<runtime::Device> device_ = runtime::open_host_device();
  cache::Cache cache_ = cache::Cache::open(database());
  generator::Problem problem_{.operation = generator::Operation::softmax, .rows = 3, .columns = 40};
  cache::Key key_{"the same with more rows", "device"};
  generator::Config config_ = tuner::safe_default(problem_, device_->model());
  mutable std::string message_;
};

TEST_F(Timing, EachProcessTellsWhatItMeasuredAndThatItWasAnother) {
  std::set<std::string> processes;
  for (int i = 0; i < 2; ++i) {
    TimingProcess process(*device_, cache_, {}, CE_TUNE);
    for (int again = 0; again < 2; ++again) {
      const std::vector<Measurement> list =
          process.time_beside(key_, problem_, std::vector{config_, config_}, samples, a_turn, {});
      ASSERT_EQ(list.size(), 2U);
      EXPECT_EQ(list[0].samples_us.size(), 6U);
      EXPECT_GT(list[0].median_us, 0);
      EXPECT_EQ(list[0].config, generator::to_text(config_));
      EXPECT_EQ(list[0].rows, 3);
      EXPECT_EQ(list[0].key, key_) << "though fewer rows were timed";
      processes.insert(list[1].environment.at("process"));
    }
  }
  EXPECT_EQ(processes.size(), 2U);
  EXPECT_TRUE(cache_.keys().empty()) << "nothing is written down";
}

TEST_F(Timing, TakesTheDatabaseWhateverBytesItsNameHas) {
  const std::filesystem::path place = folder() / "odd", name = "caf\xe9.db";
  std::filesystem::create_directory(place);
  cache::Cache cache = cache::Cache::open(place / name);
  TimingProcess process(*device_, cache, {}, CE_TUNE);
  EXPECT_EQ(process.time_beside(key_, problem_, std::vector{config_}, samples, a_turn, {}).size(), 1U);
  for (const auto& entry : std::filesystem::directory_iterator(place))
    EXPECT_TRUE(entry.path().filename().string().starts_with(name.string())) << entry.path();
}

TEST_F(Timing, WhatFailsThereFailsHereByTheSameName) {
  TimingProcess process(*device_, cache_, {}, CE_TUNE);
  generator::Config impossible = config_;
  impossible.warps = 0;
  EXPECT_EQ(failure(process, impossible), ErrorKind::invalid_argument);
  EXPECT_NE(message_.find(generator::to_text(impossible)), std::string::npos) << message_;
  EXPECT_EQ(process.time_beside(key_, problem_, std::vector{config_}, samples, a_turn, {}).size(), 1U)
      << "it goes on";
  TimingProcess dying(*device_, cache_, {}, "/bin/false");
  EXPECT_EQ(failure(dying, config_), ErrorKind::device);
  EXPECT_NE(message_.find("its process exited with status 1"), std::string::npos) << message_;
}

TEST_F(Timing, AskedToStopItIsInterrupted) {
  TimingProcess process(*device_, cache_, {}, CE_TUNE);
  std::stop_source stop;
  stop.request_stop();
  try {
    static_cast<void>(
        process.time_beside(key_, problem_, std::vector{config_}, samples, a_turn, stop.get_token()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  }
}

}  // namespace
}  // namespace ce::cli
