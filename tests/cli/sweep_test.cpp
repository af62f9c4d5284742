#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cache/tuning_lock.hpp"
#include "ce/error.hpp"
#include "tests/cli/process.hpp"
#include "tests/environment.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class Sweep : public test::CommandTest {
 protected:
  std::vector<std::string> sweep(const std::string& configs, std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "1000", "--device",
                 "host", "--db", database(), "--configs", configs, "--samples", "3"});
    return more;
  }

  /// Measurements in the database, which a sweep may be writing.
  std::int64_t measurements() const {
    try {
      return cache::Cache::open_existing(database()).status().measurements;
    } catch (const Error&) {
      return 0;  // not yet created
    }
  }
};

TEST_F(Sweep, FindsAWinnerRemembersItAndShowsIt) {
  const Finished first = ce_tune(sweep("4", {"--json"}));
  ASSERT_EQ(first.status, 0) << first.err;
  const json document = json::parse(first.out);
  EXPECT_EQ(document.at("device").at("device"), "host");
  EXPECT_EQ(document.at("database").at("path"), database());
  EXPECT_EQ(document.at("database").at("persistent"), true);
  ASSERT_EQ(document.at("problems").size(), 1U);
  const json problem = document.at("problems")[0];
  EXPECT_EQ(problem.at("operation"), "softmax");
  EXPECT_EQ(problem.at("columns"), 1000);
  EXPECT_EQ(problem.at("tried"), 4);
  EXPECT_EQ(problem.at("measured"), 4);
  EXPECT_EQ(problem.at("known"), 0);
  EXPECT_GE(problem.at("compiled"), 4);
  EXPECT_GT(problem.at("median_us"), 0);
  EXPECT_GT(problem.at("gbs"), 0);
  EXPECT_GT(problem.at("ceiling_gbs"), 0);
  EXPECT_FALSE(problem.at("reason").get<std::string>().empty());
  EXPECT_NE(first.err.find("softmax f32 8 x 1000"), std::string::npos) << first.err;
  EXPECT_EQ(first.err.find('\x1b'), std::string::npos) << "escape sequences where there is no terminal";

  const Finished second = ce_tune(sweep("4"));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.out.find("0 configs measured, 4 known, 0 compiled"), std::string::npos) << second.out;
  const std::string winner = problem.at("winner");
  EXPECT_NE(second.out.find(winner), std::string::npos) << second.out;

  const Finished fewer_rows = ce_tune(sweep("4", {"--rows", "5"}));
  EXPECT_NE(fewer_rows.out.find("softmax f32 5 x 1000: timed with 8 rows (known before)"), std::string::npos)
      << fewer_rows.out;

  const std::string key = problem.at("key");
  EXPECT_NE(ce_tune({"db", "list", "--db", database(), "--device", "host"}).out.find(key), std::string::npos);
  EXPECT_NE(ce_tune({"db", "show", key, "--db", database()}).out.find("winner   " + winner),
            std::string::npos);
  const Finished source = ce_tune({"source", key, "--db", database()});
  EXPECT_EQ(source.status, 0);
  EXPECT_NE(source.out.find(winner), std::string::npos) << source.out;
  const Finished same = ce_tune({"source", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols",
                                 "1000", "--device", "host", "--db", database()});
  EXPECT_EQ(same.out, source.out);
  EXPECT_NE(same.err.find("the known winner"), std::string::npos) << same.err;

  const ce::test::ScopedEnvironment site("CE_SITE_DB", database());
  const Finished below = ce_tune(
      {"source", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "1000", "--device", "host"});
  EXPECT_EQ(below.out, source.out) << "what a program runs that has nothing else";
  EXPECT_NE(below.err.find("the known winner"), std::string::npos) << below.err;
}

TEST_F(Sweep, MeasuresAnewWhatWasTimedWithFarFewerRowsThanFit) {
  const auto swept = [&](std::vector<std::string> more) {
    more.emplace_back("--json");
    const Finished finished = ce_tune(sweep("3", more));
    EXPECT_EQ(finished.status, 0) << finished.err;
    return json::parse(finished.out).at("problems").at(0);
  };
  EXPECT_EQ(swept({"--scratch", "1"}).at("timed_rows"), 1);
  const json all = swept({});
  EXPECT_EQ(all.at("timed_rows"), 8);
  EXPECT_EQ(all.at("measured"), 3);
  EXPECT_EQ(swept({"--scratch", "1"}).at("measured"), 0) << "more rows are as good";
  EXPECT_EQ(swept({}).at("measured"), 0);
}

TEST_F(Sweep, HoldsNoTimesOfOtherRowsAgainstTheWinner) {
  ASSERT_EQ(ce_tune(sweep("4", {"--scratch", "1"})).status, 0);
  const Finished told = ce_tune(sweep("2", {"--top", "4", "--json"}));
  ASSERT_EQ(told.status, 0) << told.err;
  const json best = json::parse(told.out).at("problems").at(0).at("best");
  ASSERT_EQ(best.size(), 4U);
  EXPECT_EQ(best[0].at("behind"), 0);
  EXPECT_TRUE(best[1].at("behind").is_number()) << best;
  for (const std::size_t of_one_row : {2, 3}) EXPECT_TRUE(best[of_one_row].at("behind").is_null()) << best;
  const Finished shown = ce_tune(sweep("2", {"--top", "4"}));
  std::size_t dashes = 0;
  for (std::size_t at = shown.out.find("  -  "); at != std::string::npos;
       at = shown.out.find("  -  ", at + 1))
    ++dashes;
  EXPECT_EQ(dashes, 2U) << shown.out;
}

TEST_F(Sweep, KeepsWhatWasMeasuredWhenInterrupted) {
  {
    test::Child child(folder(), sweep("12"), surroundings());
    // The ceiling comes after the problem, so the first rows are the problem's.
    ASSERT_TRUE(test::until([&] { return measurements() >= 1 || !child.running(); })) << child.err();
    child.signal(SIGINT);
    const Finished interrupted = child.wait();
    EXPECT_EQ(interrupted.status, 130) << interrupted.err;
    EXPECT_NE(interrupted.err.find("ce-tune: interrupted"), std::string::npos) << interrupted.err;
    EXPECT_NE(interrupted.err.find("the same command resumes"), std::string::npos) << interrupted.err;
  }
  const std::int64_t kept = measurements();
  ASSERT_GE(kept, 1);
  EXPECT_EQ(ce_tune({"db", "list", "--db", database()}).status, 0);

  const Finished resumed = ce_tune(sweep("12", {"--json"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const json problem = json::parse(resumed.out).at("problems")[0];
  // A config that reached the final round has two measurements.
  const std::int64_t known = problem.at("known");
  EXPECT_GE(known, 1);
  EXPECT_LE(known, kept);
  EXPECT_EQ(problem.at("measured"), 12 - known);
}

TEST_F(Sweep, TellsWhatItsBudgetLeftOut) {
  const std::string shapes = (folder() / "shapes.csv").string();
  test::write_file(shapes, "op,dtype,rows,cols\nsoftmax,f32,2,100\nsoftmax,f32,8,1000\nsoftmax,f32,4,100\n");
  const std::vector<std::string> words{"sweep", "--from",   shapes,      "--device", "host",
                                       "--db",  database(), "--configs", "2",        "--samples",
                                       "1",     "--top",    "2",         "--json"};
  std::vector<std::string> short_of_time = words;
  short_of_time.insert(short_of_time.end(), {"--budget", "1.5s"});
  // A compiler that takes longer than the budget, however fast the machine; it has begun in time on a slow one, too.
  const std::string compiler = (folder() / "c++").string();
  test::write_file(compiler, "#!/bin/sh\n[ \"$1\" = --version ] || sleep 2\nexec c++ \"$@\"\n");
  ASSERT_EQ(::chmod(compiler.c_str(), 0700), 0);
  const Finished first = ce_tune(short_of_time, {{"CE_HOST_COMPILER", compiler}});
  EXPECT_EQ(first.status, 11) << first.err;
  EXPECT_NE(first.err.find("2 problems not reached"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("within --budget 1.5s"), std::string::npos) << first.err;
  const json document = json::parse(first.out);
  EXPECT_EQ(document.at("summary").at("not_reached"), 2);
  EXPECT_EQ(document.at("error").at("kind"), "out of budget");
  EXPECT_EQ(document.at("problems")[0].at("columns"), 1000) << "what moves the most bytes goes first";
  EXPECT_TRUE(document.at("problems")[0].contains("winner")) << "what was begun in time is finished";
  EXPECT_EQ(document.at("problems")[0].at("ceiling_gbs"), 0) << "nothing else is begun";
  // How many configs were ready by then is up to the machine; what it says of that agrees.
  EXPECT_EQ(!document.at("problems")[0].at("unfinished").is_null(),
            first.err.find("the search of 1 problem cut short") != std::string::npos);
  EXPECT_FALSE(document.at("problems")[1].contains("winner"));
  EXPECT_FALSE(document.at("problems")[1].contains("error"));

  const Finished second = ce_tune(words);
  EXPECT_EQ(second.status, 0) << second.err;
  const json all = json::parse(second.out);
  EXPECT_EQ(all.at("summary").at("finished"), 3);
  const json& problem = all.at("problems")[0];
  ASSERT_EQ(problem.at("best").size(), 2U);
  EXPECT_EQ(problem.at("best")[0].at("config"), problem.at("winner"));
  EXPECT_EQ(problem.at("best")[0].at("behind"), 0);
  EXPECT_GT(problem.at("best")[1].at("behind"), -0.003) << "a tie at most";

  short_of_time.back() = "0.000001s";
  const Finished known = ce_tune(short_of_time);
  EXPECT_EQ(known.status, 0) << known.err;
  const json summary = json::parse(known.out).at("summary");
  EXPECT_EQ(summary.at("finished"), 3) << "what is known takes no time";
  EXPECT_EQ(summary.at("not_reached"), 0);
  EXPECT_EQ(summary.at("measured"), 0);
}

TEST_F(Sweep, ListsPresets) {
  const Finished text = ce_tune({"sweep", "--list-presets"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("llama3"), std::string::npos) << text.out;
  const json document = json::parse(ce_tune({"sweep", "--list-presets", "--json"}).out);
  EXPECT_EQ(document.at("presets")[0].at("preset"), "deepseek-v3");
  EXPECT_EQ(document.at("presets")[0].at("columns"), 129280);

  const auto expect_refused = [this](const std::vector<std::string>& more, const std::string& named) {
    std::vector<std::string> words{"sweep", "--list-presets"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished finished = ce_tune(words);
    EXPECT_EQ(finished.status, 2) << finished.out;
    EXPECT_EQ(finished.out, "");
    EXPECT_NE(finished.err.find(named + "; expected no option together with --list-presets, except --json"),
              std::string::npos)
        << finished.err;
  };
  expect_refused({"--op", "softmax"}, "--op is \"softmax\"");
  expect_refused({"--preset", "llama3,qwen3"}, "--preset is \"llama3,qwen3\"");
  expect_refused({"--smoothing"}, "--smoothing is given");
  expect_refused({"--isolate"}, "--isolate is given");
  expect_refused({"--device", "host"}, "--device is \"host\"");
}

TEST_F(Sweep, ShardsOfAListMakeUpTheWholeList) {
  const std::vector<std::string> words =
      sweep("1", {"--cols", "90,91,92,93,94,95", "--shard", "auto/2", "--json"});
  std::size_t problems = 0;
  for (const char* index : {"0", "1"}) {
    const Finished finished = ce_tune(words, {{"JOB_COMPLETION_INDEX", index}});
    ASSERT_EQ(finished.status, 0) << finished.err;
    const json document = json::parse(finished.out);
    EXPECT_EQ(document.at("shard"), (json{{"index", std::stoi(index)}, {"count", 2}}));
    EXPECT_EQ(document.at("summary").at("listed"), 7) << "six and the one that every sweep here has";
    EXPECT_EQ(document.at("summary").at("problems"), document.at("problems").size());
    for (const json& problem : document.at("problems")) EXPECT_EQ(problem.at("known"), 0);
    problems += document.at("problems").size();
  }
  EXPECT_EQ(problems, 7U);

  const Finished whole = ce_tune(sweep("1", {"--cols", "90,91,92,93,94,95"}));
  EXPECT_NE(whole.out.find("0 configs measured, 7 known"), std::string::npos) << whole.out;
  const Finished one = ce_tune(sweep("1", {"--cols", "90", "--shard", "0/1"}));
  EXPECT_NE(one.out.find("2 of 2 problems of shard 0/1 (2 listed) on host"), std::string::npos) << one.out;
  const Finished unknown = ce_tune(words);
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("--shard is \"auto\"; expected SLURM_ARRAY_TASK_ID"), std::string::npos)
      << unknown.err;
}

TEST_F(Sweep, SeveralDevicesShareAList) {
  std::vector<std::string> words{"sweep",    "--op",      "softmax", "--dtype",   "f32",
                                 "--rows",   "8,7",       "--cols",  "90,91,92",  "--db",
                                 database(), "--configs", "2",       "--samples", "1",
                                 "--top",    "1",         "--json",  "--device",  "host,host"};
  const Finished first = ce_tune(words);
  ASSERT_EQ(first.status, 0) << first.err;
  const json document = json::parse(first.out);
  EXPECT_EQ(document.at("device").at("device"), "host,host");
  EXPECT_TRUE(document.at("device").at("model").at("name").get<std::string>().starts_with("host:"));
  EXPECT_FALSE(document.at("environment").empty());
  ASSERT_EQ(document.at("problems").size(), 6U);
  int measured = 0;
  for (const json& problem : document.at("problems")) {
    measured += problem.at("measured").get<int>();
    EXPECT_EQ(problem.at("tried"), 2) << problem;
    EXPECT_EQ(problem.at("best").size(), 1U);
  }
  EXPECT_EQ(measured, 6) << "7 and 8 rows are one key, which is tuned once";
  ASSERT_EQ(document.at("devices").size(), 2U);
  EXPECT_EQ(document.at("devices")[0].at("problems").get<int>() +
                document.at("devices")[1].at("problems").get<int>(),
            6);
  EXPECT_NE(first.err.find("host#2: "), std::string::npos) << first.err;

  words.insert(words.end(), {"--retune", "--budget", "0.000001s"});
  const Finished over = ce_tune(words);
  EXPECT_EQ(over.status, 11) << over.err;
  EXPECT_EQ(json::parse(over.out).at("summary").at("not_reached"), 6);
  words.erase(std::find(words.begin(), words.end(), "--retune"));
  EXPECT_EQ(ce_tune(words).status, 0) << "nothing is left to do";

  const auto refused = [&](const std::string& devices, int status, const std::string& why) {
    words[static_cast<std::size_t>(std::find(words.begin(), words.end(), "--device") - words.begin()) + 1] =
        devices;
    const Finished finished = ce_tune(words);
    EXPECT_EQ(finished.status, status) << finished.err;
    EXPECT_NE(finished.err.find(why), std::string::npos) << finished.err;
  };
  refused("host,gpu", 2, "--device is \"host,gpu\"; expected cuda:all, or ");
  refused("cuda:all", 5, "this machine has no GPU");
  refused("host,cuda:0", 9, "libcuda");
}

TEST_F(Sweep, SeveralDevicesSearchEachCeilingOnceAndTimeItOnEach) {
  const std::string file = (folder() / "progress.jsonl").string();
  std::vector<std::string> words =
      sweep("2", {"--op", "softmax_backward", "--cols", "90", "--progress-json", file, "--json"});
  *std::find(words.begin(), words.end(), "host") = "host,host,host";
  const auto swept = [&] {
    const Finished finished = ce_tune(words);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return json::parse(finished.out);
  };
  /// How often each config of each ceiling was measured.
  const auto measured = [&] {
    std::map<std::string, std::map<std::string, int>> times;
    const cache::Cache cache = cache::Cache::open_existing(database());
    for (const cache::KeySummary& summary : cache.keys()) {
      const std::string operation = summary.key.problem.substr(0, summary.key.problem.find(' '));
      if (!operation.starts_with("softmax"))
        for (const cache::Measurement& measurement : cache.measurements(summary.key))
          ++times[operation][measurement.config];
    }
    return times;
  };
  const json first = swept();
  ASSERT_EQ(first.at("problems").size(), 4U);
  for (const json& problem : first.at("problems")) EXPECT_GT(problem.at("ceiling_gbs"), 0) << problem;
  const auto once = measured();
  EXPECT_EQ(once.size(), 2U) << "copy of softmax, add of its gradient";
  for (const auto& [operation, configs] : once) {
    EXPECT_EQ(configs.size(), 2U) << operation;
    for (const auto& [config, times] : configs) EXPECT_EQ(times, 2) << config << ": screened, and in turns";
  }
  std::map<std::string, int> events;
  std::istringstream lines(test::read_file(file));
  for (std::string line; std::getline(lines, line);) ++events[json::parse(line).at("event")];
  EXPECT_EQ(events["ceiling_begin"], 2);
  EXPECT_EQ(events["ceiling_finish"], 2);
  EXPECT_EQ(events["finish"], 4);

  const json known = swept();
  EXPECT_EQ(known.at("summary").at("measured"), 0);
  for (const json& problem : known.at("problems")) EXPECT_GT(problem.at("ceiling_gbs"), 0) << problem;
  EXPECT_EQ(measured(), once);

  words.insert(words.end(), {"--budget", "0.000001s"});
  const json over = swept();
  EXPECT_EQ(over.at("summary").at("finished"), 4) << "what is known takes no time";
  for (const json& problem : over.at("problems")) EXPECT_EQ(problem.at("ceiling_gbs"), 0) << problem;
}

/// What another process is searching is not searched a second time, and waited for at the end.
TEST_F(Sweep, SeveralDevicesWaitForACeilingThatAnotherProcessSearches) {
  std::vector<std::string> words = sweep("1");
  ASSERT_EQ(ce_tune(words).status, 0);
  std::string key;
  for (const cache::KeySummary& summary : cache::Cache::open_existing(database()).keys())
    if (summary.key.problem.starts_with("copy")) key = summary.key.id();
  ASSERT_FALSE(key.empty());
  *std::find(words.begin(), words.end(), "host") = "host,host";
  std::optional lock = cache::TuningLock::take(cache::tuning_lock_file(database(), key), database());
  ASSERT_TRUE(lock);
  test::Child child(folder(), words, surroundings());
  ASSERT_TRUE(test::until([&] {
    return child.err().find("waiting for another process") != std::string::npos;
  })) << child.err();
  EXPECT_NE(child.err().find("ceiling of copy: left to another process"), std::string::npos) << child.err();
  lock.reset();
  EXPECT_EQ(child.wait().status, 0) << child.err();
}

TEST_F(Sweep, SeveralDevicesStopWhenInterrupted) {
  std::vector<std::string> words = sweep("12", {"--cols", "1001,1002", "--json"});
  *std::find(words.begin(), words.end(), "host") = "host,host";
  test::Child child(folder(), words, surroundings());
  ASSERT_TRUE(test::until([&] { return measurements() >= 1 || !child.running(); })) << child.err();
  child.signal(SIGINT);
  const Finished interrupted = child.wait();
  EXPECT_EQ(interrupted.status, 130) << interrupted.err;
  const json document = json::parse(interrupted.out);
  EXPECT_EQ(document.at("error").at("kind"), "interrupted");
  EXPECT_GE(measurements(), 1);
  for (const json& problem : document.at("problems"))
    EXPECT_EQ(problem.value("ceiling_gbs", 0.0), 0) << "none is waited for";
}

TEST_F(Sweep, TellsProgramsOfItsProgress) {
  const std::string file = (folder() / "progress.jsonl").string();
  const Finished finished = ce_tune(sweep("2", {"--cols", "90", "--progress-json", file}));
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.err.find("softmax f32 8 x 90"), std::string::npos) << "people are told, too";
  const auto lines_in = [](const std::string& text) {
    std::vector<json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  };
  std::map<std::string, int> events;
  for (const json& line : lines_in(test::read_file(file))) {
    const std::string event = line.at("event");
    ++events[event];
    EXPECT_EQ(line.at("time").get<std::string>().size(), std::string("2030-01-02T03:04:05.678Z").size());
    if (event == "end") continue;
    EXPECT_EQ(line.at("device"), "host");
    EXPECT_EQ(line.contains("winner"), event == "finish");
    EXPECT_EQ(line.contains("share"), event == "progress");
  }
  EXPECT_EQ(events["begin"], 2);
  EXPECT_EQ(events["finish"], 2);
  EXPECT_EQ(events["end"], 1);
  EXPECT_GE(events["progress"], 1);

  // Lines are added, and on standard error nothing else is said.
  EXPECT_EQ(ce_tune(sweep("2", {"--progress-json", file, "--budget", "0.000001s", "--retune"})).status, 11);
  const json end = lines_in(test::read_file(file)).back();
  EXPECT_EQ(end.at("exit_code"), 11);
  json summary = json::parse(ce_tune(sweep("2", {"--json"})).out).at("summary");
  summary.update({{"time", {}}, {"event", {}}, {"exit_code", {}}, {"error", {}}});
  const auto names = [](const json& object) {
    std::set<std::string> all;
    for (const auto& [name, value] : object.items()) all.insert(name);
    return all;
  };
  EXPECT_EQ(names(end), names(summary));
  const std::string page = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/json.md");
  EXPECT_NE(page.find("- `end`: the fields of `summary{}`, `exit_code`, `error{}` or null."),
            std::string::npos);
  const std::size_t summary_at = page.find("- `summary{}`: ", page.find("### JSON of sweep"));
  const std::string listed = page.substr(summary_at, page.find("\n\n", summary_at) - summary_at);
  for (const std::string& name : names(end))
    if (name != "time" && name != "event" && name != "exit_code" && name != "error") {
      EXPECT_NE(listed.find("`" + name + "`"), std::string::npos) << name;
    }
  EXPECT_EQ(end.at("not_reached"), 1);
  EXPECT_EQ(end.at("error").at("kind"), "out of budget");
  const Finished only_lines = ce_tune(sweep("2", {"--progress-json", "-"}));
  EXPECT_EQ(only_lines.status, 0) << only_lines.err;
  EXPECT_EQ(lines_in(only_lines.err).back().at("event"), "end");
  const Finished refused = ce_tune(sweep("2", {"--progress-json", (folder() / "no" / "file").string()}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("--progress-json is "), std::string::npos) << refused.err;
}

TEST_F(Sweep, WritesNoProgressIntoADatabase) {
  ASSERT_EQ(ce_tune(sweep("2")).status, 0);
  const std::string before = test::read_file(database());
  for (const char* suffix : {"", "-wal"}) {
    const Finished refused = ce_tune(sweep("2", {"--progress-json", database() + suffix}));
    EXPECT_EQ(refused.status, 2) << refused.out;
    EXPECT_NE(refused.err.find("--progress-json is "), std::string::npos) << refused.err;
  }
  EXPECT_EQ(test::read_file(database()), before);
}

TEST_F(Sweep, GoesOnWhereLinesOfProgressAreLost) {
  const Finished lost = ce_tune(sweep("2", {"--progress-json", "/dev/full"}));
  EXPECT_EQ(lost.status, 0) << lost.err;
  EXPECT_NE(lost.err.find("/dev/full: no more lines of --progress-json can be written (No space left"),
            std::string::npos)
      << lost.err;
}

/// The host device cannot exchange statistics between the kernels of ranks.
TEST_F(Sweep, AProblemWithoutAConfigOnTheDeviceIsUnsupported) {
  const Finished refused = ce_tune({"sweep", "--op", "cross_entropy_exchange", "--dtype", "f32", "--rows",
                                    "4", "--cols", "4", "--device", "host", "--db", database()});
  EXPECT_EQ(refused.status, 9) << refused.err;
  EXPECT_NE(refused.err.find("ce-tune: unsupported: no config for cross_entropy_exchange f32 4 x 4"),
            std::string::npos)
      << refused.err;
}

TEST_F(Sweep, RowsWhoseChecksTheMachineCannotHoldAreNamedWithTheBytes) {
  constexpr std::int64_t columns = std::int64_t{1} << 30, rows = 12, matrices = 2, f64 = 8;
  if (::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE) >= columns * rows * matrices * f64)
    GTEST_SKIP() << "a machine with that much memory";
  const Finished refused =
      ce_tune({"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "1", "--cols", std::to_string(columns),
               "--scratch", "64MiB", "--device", "host", "--db", database()});
  EXPECT_EQ(refused.status, 5) << refused.err;
  EXPECT_NE(refused.err.find("softmax f32 1 x 1073741824 take 206158430208 bytes or more; this machine has "),
            std::string::npos)
      << refused.err;
}

TEST_F(Sweep, KeepsTagsThatSelect) {
  ASSERT_EQ(ce_tune(sweep("2"), {{"CE_TAG", "job=17,image=base"}}).status, 0);
  ASSERT_EQ(ce_tune(sweep("2", {"--cols", "90"}), {{"CE_TAG", "job=18"}}).status, 0);
  const auto keys = [&](const std::string& tag) {
    const Finished listed = ce_tune({"db", "list", "--db", database(), "--json", "--tag", tag});
    EXPECT_EQ(listed.status, 0) << listed.err;
    std::set<std::int64_t> columns;
    const json document_of_listed = json::parse(listed.out);
    for (const json& key : document_of_listed.at("keys"))
      if (key.at("problem").at("operation") == "softmax")
        columns.insert(key.at("problem").at("columns").get<std::int64_t>());
    return columns;
  };
  EXPECT_EQ(keys("job=17"), std::set<std::int64_t>{1000});
  EXPECT_EQ(keys("job=17,image=base"), std::set<std::int64_t>{1000});
  EXPECT_EQ(keys("job=18"), std::set<std::int64_t>{90});
  EXPECT_EQ(keys("job=18,image=base"), std::set<std::int64_t>{});

  const Finished list = ce_tune({"db", "list", "--db", database(), "--json", "--tag", "job=18"});
  std::string key;
  const json document_of_list = json::parse(list.out);
  for (const json& each : document_of_list.at("keys"))
    if (each.at("problem").at("columns") == 90) key = each.at("key");
  EXPECT_EQ(ce_tune({"db", "history", key, "--db", database(), "--tag", "job=18"}).status, 0);
  EXPECT_EQ(ce_tune({"db", "history", key, "--db", database(), "--tag", "job=17"}).status, 8);
  EXPECT_EQ(ce_tune({"regressions", "--db", database(), "--tag", "job=17"}).status, 12);

  const std::string file = (folder() / "tagged.jsonl").string();
  ASSERT_EQ(ce_tune({"db", "export", file, "--db", database(), "--tag", "job=18"}).status, 0);
  const std::string text = test::read_file(file);
  EXPECT_NE(text.find("\"tag.job\":\"18\""), std::string::npos);
  EXPECT_EQ(text.find("\"tag.job\":\"17\""), std::string::npos);

  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{sweep("1"), {"db", "list", "--db", database(), "--tag", "17"}}) {
    const Finished refused = ce_tune(words, {{"CE_TAG", "17"}});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find(words[0] == "sweep" ? "CE_TAG is \"17\"; expected name=value"
                                                   : "--tag is \"17\"; expected name=value"),
              std::string::npos)
        << refused.err;
  }
}

TEST_F(Sweep, WaitsForAnotherProcessThatTunesTheSame) {
  std::vector<std::string> words = sweep("1", {"--json"});
  std::replace(words.begin(), words.end(), database(), (folder() / "other.db").string());
  const Finished other = ce_tune(words);
  ASSERT_EQ(other.status, 0) << other.err;
  const std::string key = json::parse(other.out).at("problems")[0].at("key");
  {
    const auto lock = cache::TuningLock::take(cache::tuning_lock_file(database(), key), database());
    ASSERT_TRUE(lock);
    test::Child child(folder(), sweep("1"), surroundings());
    ASSERT_TRUE(test::until([&] {
      return child.err().find("waiting for another process") != std::string::npos;
    })) << child.err();
    EXPECT_TRUE(child.running());
    child.signal(SIGINT);
    EXPECT_EQ(child.wait().status, 130);
  }
  EXPECT_EQ(measurements(), 0);
  EXPECT_EQ(ce_tune(sweep("1")).status, 0);
}

TEST_F(Sweep, TellsOfAnInterruptionInItsDocument) {
  test::Child child(folder(), sweep("12", {"--json", "--cols", "1001,1002"}), surroundings());
  ASSERT_TRUE(test::until([&] { return measurements() >= 1 || !child.running(); })) << child.err();
  child.signal(SIGTERM);
  const Finished interrupted = child.wait();
  EXPECT_EQ(interrupted.status, 130) << interrupted.err;
  const json document = json::parse(interrupted.out);
  EXPECT_EQ(document.at("error").at("exit_code"), 130);
  EXPECT_EQ(document.at("problems")[0].at("error").at("kind"), "interrupted");
  const json& summary = document.at("summary");
  EXPECT_EQ(summary.at("finished"), 0);
  EXPECT_EQ(summary.at("not_reached"), summary.at("problems").get<int>() - 1);
}

TEST_F(Sweep, EndsAtOnceWhenInterruptedTwice) {
  // A compiler that takes its time, so that the sweep cannot stop by itself in between.
  const std::string compiler = (folder() / "c++").string();
  test::write_file(compiler,
                   "#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ (GCC) 99.0.0' && exit 0\n: > "
                   "\"$0.at-work\"\nsleep 20\nexit 1\n");
  ASSERT_EQ(::chmod(compiler.c_str(), 0700), 0);
  test::Child child(folder(), sweep("2"), surroundings({{"CE_HOST_COMPILER", compiler}}));
  ASSERT_TRUE(test::until([&] { return std::filesystem::exists(compiler + ".at-work"); })) << child.err();
  child.signal(SIGINT);
  ASSERT_TRUE(test::until([&] { return child.err().find("stopping") != std::string::npos; })) << child.err();
  EXPECT_TRUE(child.running());
  const auto start = std::chrono::steady_clock::now();
  child.signal(SIGINT);
  EXPECT_EQ(child.wait().status, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(Sweep, SaysWhenNothingIsKept) {
  test::write_file(database(), std::string(5000, 'x'));
  const Finished refused = ce_tune(sweep("1"));
  EXPECT_EQ(refused.status, 7) << refused.err;
  EXPECT_NE(refused.err.find("no measurement would be kept"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.out, "") << "nothing is measured";

  std::vector<std::string> all_the_same = sweep("1");
  all_the_same.emplace_back("--unrecorded");
  const Finished finished = ce_tune(all_the_same);
  EXPECT_EQ(finished.status, 7) << finished.err;
  EXPECT_NE(finished.err.find("not kept"), std::string::npos) << finished.err;
  EXPECT_NE(finished.out.find("1 of 1 problem"), std::string::npos) << finished.out;
  EXPECT_EQ(test::read_file(database()), std::string(5000, 'x'));
}

}  // namespace
}  // namespace ce::cli
