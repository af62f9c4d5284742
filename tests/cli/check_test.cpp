// ce-tune check on the host device. Its times scatter, on a busy machine several-fold, so the histories are made up far
// from them. Where a verdict is expected they are long, too: the noise of a few runs, known from those alone, hides any
// distance.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"
#include "runtime/host/device.hpp"
#include "tests/cli/process.hpp"
#include "tuner/key.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

// On the host, where threads are fibers, the second takes several times as long.
const char* const few_warps = "block/warps=2,vec=4,load=ca,store=cg";
const char* const copying = "bandwidth/warps=8,vec=4,tile=8192,load=ca,store=cs";
const char* const many_warps = "block/warps=32,vec=4,load=ca,store=cg";

class CheckCommand : public test::CommandTest {
 protected:
  static constexpr int days = 30;  ///< of a history

  /// A final of each of so many days in the past, without any noise.
  void add_history(const generator::Problem& problem, const std::string& config, double us) {
    for (int day = 1; day <= days; ++day) {
      cache::Measurement final = final_of(problem, config, us);
      final.created_at = fmt::format("2020-01-{:02}T12:00:00.000Z", day);
      cache_.add(final);
    }
  }
  void add_history(const std::string& config, double us) { add_history(usual_, config, us); }
  /// A final of a day in the past.
  void add(const std::string& config, double us, const std::string& driver = "old") {
    add(usual_, config, us, driver);
  }
  void add(const generator::Problem& problem, const std::string& config, double us,
           const std::string& driver = "old") {
    cache_.add(final_of(problem, config, us, driver));
  }
  [[nodiscard]] cache::Measurement final_of(const generator::Problem& problem, const std::string& config,
                                            double us, const std::string& driver = "old") const {
    return {
        .key = tuner::key_of(problem, device_->model()),
        .config = config,
        .template_digest = generator::template_digest(problem.operation, config.substr(0, config.find('/'))),
        .stage = cache::stage_of_finals,
        .rows = 8,
        .bytes = generator::traffic(problem).total(),
        .samples_us = std::vector<float>(15, static_cast<float>(us)),
        .median_us = us,
        .spread = 0.01,
        .registers = 32,
        .environment = {{"kernel", driver}},
        .created_at = "2020-01-01T12:00:00.000Z"};
  }
  [[nodiscard]] Finished check(std::vector<std::string> more, const std::string& compiler = "c++") const {
    more.insert(more.begin(), {"check", "--device", "host", "--db", database(), "--json"});
    return ce_tune(more, {{"CE_HOST_COMPILER", compiler}});
  }
  /// The host's compiler, but for problems of that many columns.
  [[nodiscard]] std::string compiler_without(const std::vector<int>& columns) const {
    std::string path = (folder() / "c++").string(), script = "#!/bin/sh\nfor word; do\n";
    for (const int each : columns)
      script += fmt::format(
          "  case $word in *.cu|*.cpp) grep -q 'int columns = {0};' \"$word\" &&\n"
          "    echo 'error: {0} out of order' && exit 1;; esac\n",
          each);
    test::write_file(path, script + "done\nexec c++ \"$@\"\n");
    EXPECT_EQ(::chmod(path.c_str(), 0700), 0);
    return path;
  }
  [[nodiscard]] json checked(int status, const std::vector<std::string>& more = {}) const {
    const Finished finished = check(more);
    EXPECT_EQ(finished.status, status) << finished.out << finished.err;
    return json::parse(finished.out);
  }
  [[nodiscard]] std::vector<cache::Measurement> measurements() const {
    return cache_.measurements(cache_.keys().at(0).key);
  }

  const generator::Problem usual_{
      .operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 8, .columns = 4096};
  std::unique_ptr<runtime::Device> device_ = runtime::open_host_device();
  cache::Cache cache_ = cache::Cache::open(database());
};

TEST_F(CheckCommand, HoldsWinnersAgainstTheirHistory) {
  add_history(few_warps, 20);
  const json slower = checked(3, {"--runs", "4"}).at("findings").at(0);  // two may differ by as much
  EXPECT_EQ(slower.at("verdict"), "slower");
  EXPECT_GT(slower.at("ratio"), 2);
  EXPECT_EQ(slower.at("runs_before"), days);
  EXPECT_EQ(slower.at("runs_after"), 4);
  EXPECT_EQ(slower.at("changes")[0].at("what"), "driver");
  // What was timed is known, and the winner is who it was.
  ASSERT_EQ(measurements().size(), days + 4U);
  EXPECT_EQ(measurements()[days].stage, cache::stage_of_checks);
  EXPECT_NE(measurements()[days].compile_key, "");
  const Finished told = ce_tune({"regressions", "--db", database()});
  EXPECT_EQ(told.status, 3) << told.out << told.err;
}

/// So the hint of unsure ones says.
TEST_F(CheckCommand, IsHeldAgainstAllRunsSoFarWithTheNewestSoftware) {
  add(few_warps, 20);
  for (const int before : {1, 1, 2, 3}) {
    // Whether it is as fast as a moment ago is up to this machine, and so is the status.
    const json found = json::parse(check({"--runs", "1"}).out).at("findings").at(0);
    EXPECT_EQ(found.at("runs_before"), before) << found;
    EXPECT_EQ(found.at("runs_after"), 1) << found;
  }
}

/// Where memory was short, a winner was timed with fewer rows than the problem has.
TEST_F(CheckCommand, WhatWasTimedWithFewerRowsStaysOfItsProblem) {
  add_history({.operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 64, .columns = 4096},
              few_warps, 20);
  const json findings = checked(3, {"--runs", "4"}).at("findings");  // two may differ by as much
  EXPECT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.at(0).at("verdict"), "slower");
  ASSERT_EQ(cache_.keys().size(), 1U);
  EXPECT_EQ(measurements().size(), days + 4U);
  EXPECT_EQ(measurements().back().rows, 8);
}

TEST_F(CheckCommand, AFasterOneIsNoRegression) {
  add_history(few_warps, 1e9);
  const json faster = checked(0, {"--runs", "4"}).at("findings").at(0);  // two may differ by as much
  EXPECT_EQ(faster.at("verdict"), "faster");
}

TEST_F(CheckCommand, CeilingsAreNoWinners) {
  add_history(few_warps, 1e9);
  // It moves the most bytes, and --top 1 would take it.
  add({.operation = generator::Operation::copy, .dtype = DType::f32, .rows = 64, .columns = 4096}, copying,
      1e9);
  const json told = checked(0, {"--top", "1"}).at("findings");
  ASSERT_EQ(told.size(), 1U) << told;
  EXPECT_EQ(told[0].at("title"), "softmax f32 8 x 4096");
}

TEST_F(CheckCommand, SaysHowManyRacesItLeavesOut) {
  add_history(few_warps, 1e9);
  for (const char* subject : {"matmul f32 m=64", "matmul f32 m=128"}) {
    cache::Measurement race = final_of({}, few_warps, 100);
    race.config = "1/algorithm";
    race.key = tuner::race_key(subject, device_->model());
    cache_.add(race);
  }
  const Finished finished = check({});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(json::parse(finished.out)["races_left_out"], 2);
  EXPECT_EQ(json::parse(finished.out)["findings"].size(), 1U);
  const Finished told = ce_tune({"check", "--device", "host", "--db", database()});
  EXPECT_NE(told.out.find("2 races not checked: only the calls that need a race time it\n"),
            std::string::npos)
      << told.out;
}

TEST_F(CheckCommand, TakesWhatMovesTheMostBytesFirst) {
  for (const int columns : {2048, 4096, 1024})
    add({.operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 8, .columns = columns},
        few_warps, 1e9);
  const json told = json::parse(check({"--top", "1"}).out).at("findings");
  ASSERT_EQ(told.size(), 1U) << told;
  EXPECT_EQ(told[0].at("title"), "softmax f32 8 x 4096");
}

TEST_F(CheckCommand, WinnersOfOtherDevicesAreNotTimed) {
  add(few_warps, 1e9);
  cache::Measurement other =
      final_of({.operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 8, .columns = 2048},
               few_warps, 1e9);
  other.key.device = "Some GPU|cc=90|sm=132";
  cache_.add(other);
  const json told = json::parse(check({}).out).at("findings");
  ASSERT_EQ(told.size(), 1U) << told;
  EXPECT_EQ(told[0].at("title"), "softmax f32 8 x 4096");
  EXPECT_EQ(cache_.measurements(other.key).size(), 1U);
}

TEST_F(CheckCommand, TellsWhoIsFasterThanTheWinnerAndRepeatsTheFinal) {
  add_history(many_warps, 1e8);
  add_history(few_warps, 2e8);
  // A busy machine keeps some of them from telling anything.
  const std::vector<std::string> runs = {"--runs", "5"};
  const json told = checked(0, runs);
  ASSERT_EQ(told.at("rivals").size(), 1U);
  EXPECT_EQ(told.at("rivals")[0].at("winner"), many_warps);
  EXPECT_EQ(told.at("rivals")[0].at("second"), few_warps);
  EXPECT_TRUE(told.at("rivals")[0].at("beaten")) << told;
  EXPECT_FALSE(told.at("rivals")[0].at("retuned"));
  // Whether it is as fast as a moment ago is up to this machine, and so is the status.
  const json again = json::parse(check({"--retune", runs[0], runs[1]}).out);
  EXPECT_EQ(again.at("rivals")[0].at("retuned"), true) << again.at("rivals");
  const Finished listed = ce_tune({"db", "list", "--db", database(), "--json"});
  EXPECT_EQ(json::parse(listed.out).at("keys").at(0).at("winner").at("config"), few_warps);
}

TEST_F(CheckCommand, RepeatsNoFinalWhoseWinnerIsTheFastest) {
  add(few_warps, 1e8);
  add(many_warps, 2e8);
  const json told = json::parse(check({"--retune"}).out).at("rivals").at(0);
  EXPECT_EQ(told.at("winner"), few_warps);
  EXPECT_FALSE(told.at("beaten")) << told;
  EXPECT_FALSE(told.at("retuned")) << told;
}

TEST_F(CheckCommand, OnANoisyMachineNobodyIsFasterThanTheWinner) {
  for (const double us : {1e6, 1e8}) add(many_warps, us);
  add(few_warps, 2e8);
  const json told = json::parse(check({"--runs", "3"}).out);  // one of several may be held up
  EXPECT_LT(told.at("rivals")[0].at("ratio"), 1) << told;
  EXPECT_FALSE(told.at("rivals")[0].at("beaten")) << told;
}

TEST_F(CheckCommand, WhatFailsIsNotTriedAgain) {
  add(few_warps, 1e9);
  const Finished failed = check({"--runs", "3"}, compiler_without({4096}));
  EXPECT_NE(failed.status, 0) << failed.out;
  const std::string title = "softmax f32 8 x 4096: ";
  const std::size_t told = failed.err.find(title);
  ASSERT_NE(told, std::string::npos) << failed.err;
  EXPECT_EQ(failed.err.find(title, told + 1), std::string::npos) << failed.err;
  EXPECT_EQ(measurements().size(), 1U);
}

TEST_F(CheckCommand, OfSeveralFailuresTheFirstIsToldAtTheEnd) {
  add(few_warps, 1e9);
  add({.operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 8, .columns = 2048},
      few_warps, 1e9);
  const Finished failed = check({}, compiler_without({4096, 2048}));
  EXPECT_NE(failed.err.find("softmax f32 8 x 2048: "), std::string::npos) << failed.err;
  const std::string error = json::parse(failed.out).at("error").dump();
  EXPECT_NE(error.find("4096 out of order"), std::string::npos) << error;
  EXPECT_EQ(error.find("2048 out of order"), std::string::npos) << error;
}

TEST_F(CheckCommand, AFailureDoesNotHideARegression) {
  add_history(few_warps, 20);
  add({.operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 8, .columns = 8192},
      "block/warps=8,vec=4,load=ca,store=cg", 1e9);
  const Finished failed = check({"--runs", "4"}, compiler_without({8192}));
  EXPECT_EQ(failed.status, 3) << failed.err;
  const json document = json::parse(failed.out);
  EXPECT_TRUE(document.contains("error")) << document;
}

/// SQLite reads a file whose name leaves no room for that of a log, and cannot write it.
TEST_F(CheckCommand, WhereNothingIsKeptNothingIsTimed) {
  add(few_warps, 1e9);
  cache_.checkpoint();
  const std::string unwritable = (folder() / std::string(253, 'n')).string();
  std::filesystem::copy_file(database(), unwritable);
  const std::vector<std::string> words{"check", "--device", "host", "--runs", "1", "--db", unwritable};
  const Finished refused = ce_tune(words);
  EXPECT_EQ(refused.status, 7) << refused.out << refused.err;
  EXPECT_NE(refused.err.find("no measurement would be kept: " + unwritable), std::string::npos)
      << refused.err;
  EXPECT_EQ(refused.out, "") << "nothing is timed";

  std::vector<std::string> all_the_same = words;
  all_the_same.emplace_back("--unrecorded");
  const Finished told = ce_tune(all_the_same);
  EXPECT_EQ(told.status, 7) << told.out << told.err;
  EXPECT_NE(told.err.find("not kept"), std::string::npos) << told.err;
  EXPECT_NE(told.out.find("1 problem compared"), std::string::npos) << told.out;
}

TEST_F(CheckCommand, BudgetsEndIt) {
  add(few_warps, 1e9);
  const json none = checked(11, {"--budget", "0.000001s"});
  EXPECT_EQ(none.at("not_reached"), 1);
  EXPECT_EQ(none.at("findings"), json::array());
  EXPECT_EQ(measurements().size(), 1U);
}

}  // namespace
}  // namespace ce::cli
