// Which GPU is slow, by databases made by hand.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class Nodes : public test::DatabaseTest {
 protected:
  using Environment = std::map<std::string, std::string>;

  /// Two runs of each of six problems on a GPU.
  void add_gpu(int number, double factor, const Environment& environment = {}, int day = 1) {
    for (int problem_number = 0; problem_number < 6; ++problem_number)
      for (const int run : {0, 1}) {
        generator::Problem problem = test::softmax;
        problem.columns = 4096 + 1024 * problem_number;
        const double us = (60 + 15 * problem_number) * factor * (1 + 0.0004 * run);
        cache::Measurement made = measurement(0, us);
        made.key.problem = generator::key_text(problem);
        made.samples_us.assign(15, static_cast<float>(us));
        made.spread = 0.002;
        made.environment["uuid"] = fmt::format("GPU-{}", number);
        made.environment["host"] = fmt::format("node-{}", number / 2);
        made.environment["power_limit_w"] = "700.0";
        made.environment["throttle"] = "";
        for (const auto& [name, value] : environment) made.environment[name] = value;
        made.created_at = fmt::format("2030-01-{:02}T12:0{}:00.000Z", day, run);
        cache_.add(made);
      }
  }
  [[nodiscard]] json nodes(std::vector<std::string> words, int status) const {
    words.insert(words.begin(), {"nodes", "--json"});
    const Finished finished = text(words);
    EXPECT_EQ(finished.status, status) << finished.out << finished.err;
    return json::parse(finished.out);
  }
};

TEST_F(Nodes, NamesTheSlowOneAndWhatHoldsItDown) {
  for (int gpu = 0; gpu < 6; ++gpu)
    if (gpu != 4) add_gpu(gpu, 1 + 0.001 * gpu);
  add_gpu(4, 1.05, {{"throttle", "power cap, software thermal"}, {"power_limit_w", "500.0"}});
  const Finished told = text({"nodes"});
  EXPECT_EQ(told.status, 3) << told.out;
  EXPECT_NE(told.out.find("GPU-4  node-2  Some GPU  slow"), std::string::npos) << told.out;
  EXPECT_NE(
      told.out.find("GPU-4: throttled in 12 of 12 runs (power cap, software thermal); power limit 500 W, "
                    "fleet 700 W\n"),
      std::string::npos)
      << told.out;
  EXPECT_NE(told.out.find("6 GPUs compared: 1 slow, 0 unsure, 0 fast, 5 as the fleet"), std::string::npos)
      << told.out;
  EXPECT_EQ(told.out.find("GPU-1"), std::string::npos) << "who is as the others is counted";
  EXPECT_NE(text({"nodes", "--all"}).out.find("GPU-1"), std::string::npos);

  const json document = nodes({}, 3);
  const json& slow = document.at("nodes").at(0);
  EXPECT_EQ(slow.at("gpu"), "GPU-4");
  EXPECT_EQ(slow.at("verdict"), "slow");
  EXPECT_NEAR(slow.at("ratio").get<double>(), 1.05 / 1.002, 0.003);
  EXPECT_LT(slow.at("interval")[0].get<double>(), slow.at("ratio").get<double>());
  EXPECT_GT(slow.at("interval")[0].get<double>(), 1.02);
  EXPECT_EQ(slow.at("configs"), 6);
  EXPECT_EQ(slow.at("runs"), 12);
  EXPECT_EQ(slow.at("others"), 5);
  EXPECT_EQ(document.at("summary"), (json{{"slow", 1}, {"unsure", 0}, {"fast", 0}, {"as_the_fleet", 5}}));
}

TEST_F(Nodes, HoldsNothingAgainstOtherSoftwareOrOtherTimes) {
  for (int gpu = 0; gpu < 3; ++gpu) add_gpu(gpu, 1);
  add_gpu(3, 1.2, {{"driver", "590.1"}});
  EXPECT_EQ(nodes({}, 0).at("alone"), json{"GPU-3"}) << "it may be the driver";
  for (int gpu = 0; gpu < 3; ++gpu) add_gpu(gpu, 1.2, {{"driver", "590.1"}}, 10);
  const json newest = nodes({}, 0);
  EXPECT_EQ(newest.at("alone"), json::array());
  EXPECT_EQ(newest.at("nodes").size(), 4U) << "all have the new driver now, and are as slow with it";
  EXPECT_EQ(nodes({"--since", "2030-01-05"}, 0).at("nodes").size(), 3U);
  EXPECT_EQ(nodes({"--since", "2030-02-01"}, 12).at("nodes").size(), 0U);
}

TEST_F(Nodes, LeavesOutWhatHadCompanyButNotWhatWasThrottled) {
  for (int gpu = 0; gpu < 4; ++gpu) add_gpu(gpu, 1);
  add_gpu(4, 1.3, {{"compute_processes", "3"}});
  add_gpu(5, 1.3, {{"disturbance", "the reference kernel was slow"}});
  EXPECT_EQ(nodes({}, 0).at("nodes").size(), 4U);
  add_gpu(6, 1.3, {{"throttle", "hardware thermal"}});
  EXPECT_EQ(nodes({}, 3).at("nodes")[0].at("gpu"), "GPU-6");
}

TEST_F(Nodes, OfTwoEachIsHeldAgainstTheOther) {
  add_gpu(0, 1);
  add_gpu(1, 1.05);
  const json found = nodes({}, 3).at("nodes");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].at("gpu"), "GPU-1");
  EXPECT_NEAR(found[0].at("ratio"), 1.05, 1e-3);
  EXPECT_NEAR(found[1].at("ratio"), 1 / 1.05, 1e-3);
}

/// The times of GPUs are compared as they are, so what moved with the reference is noise.
TEST_F(Nodes, WhereAllRunsDriftASmallDifferenceTellsNothing) {
  for (int gpu = 0; gpu < 4; ++gpu)
    for (const int day : {1, 2}) {
      const double drift = day == 1 ? 1 : 1.2;
      add_gpu(gpu, drift * (gpu == 3 ? 1.03 : 1),
              {{"reference", "read"}, {"reference_us", fmt::to_string(27 * drift)}}, day);
    }
  const json found = nodes({"--all"}, 4).at("nodes");
  ASSERT_EQ(found.size(), 4U);
  for (const json& node : found) EXPECT_EQ(node.at("verdict"), "unsure") << node;
}

TEST_F(Nodes, SelectsByTag) {
  for (int gpu = 0; gpu < 4; ++gpu) add_gpu(gpu, 1, {{"tag.rack", "a"}});
  add_gpu(5, 1.1);
  EXPECT_EQ(nodes({"--tag", "rack=a"}, 0).at("nodes").size(), 4U);
  EXPECT_EQ(nodes({}, 3).at("nodes").size(), 5U);
}

TEST_F(Nodes, OneGpuIsNoFleet) {
  add_gpu(0, 1);
  const Finished told = text({"nodes"});
  EXPECT_EQ(told.status, 12);
  EXPECT_NE(told.err.find("nothing was compared; expected two GPUs"), std::string::npos) << told.err;
  EXPECT_NE(told.out.find("1 GPU not compared"), std::string::npos) << told.out;
  EXPECT_EQ(text({"nodes", "--since", "soon"}).status, 2);
}

/// Of the host device, whose fleet are hosts.
class CheckOfFleet : public test::CommandTest {};

TEST_F(CheckOfFleet, AgainstTheFleetComparesThisOneWithTheOthers) {
  // Rows for milliseconds: what holds up a sample on a busy machine is then no multiple of it.
  const std::vector<std::string> problem{"--op", "softmax", "--dtype", "f32",       "--rows",
                                         "64",   "--cols",  "1000",    "--configs", "1"};
  std::vector<std::string> words{"sweep", "--db", database(), "--device", "host", "--samples", "1"};
  words.insert(words.end(), problem.begin(), problem.end());
  ASSERT_EQ(ce_tune(words).status, 0);
  const std::vector<std::string> check{"check", "--db",      database(), "--device",
                                       "host",  "--against", "fleet",    "--json"};
  const Finished alone = ce_tune(check);
  EXPECT_EQ(alone.status, 12) << alone.err;
  EXPECT_EQ(json::parse(alone.out).at("alone").size(), 1U);

  // The same runs on other hosts, which are a thousand times as fast, each several times.
  {
    cache::Cache cache = cache::Cache::open(database());
    for (const cache::KeySummary& summary : cache.keys())
      for (cache::Measurement made : cache.measurements(summary.key)) {
        if (made.stage == cache::stage_of_screenings) continue;
        for (const char* host : {"n1", "n2", "n3"})
          for (int run = 0; run < 8; ++run) {
            cache::Measurement other = made;
            other.environment["host"] = host;
            other.environment["process"] = fmt::format("{} {}", host, run);
            for (float& sample : other.samples_us) sample *= 0.001F * static_cast<float>(1 + 0.0001 * run);
            other.median_us *= 0.001 * (1 + 0.0001 * run);
            other.spread = 0;
            cache.add(other);
          }
      }
    cache.flush(std::chrono::seconds(10));
  }
  const Finished slow = ce_tune(check);
  const json document = json::parse(slow.out);
  ASSERT_EQ(document.at("nodes").size(), 1U) << "this one alone";
  EXPECT_GT(document.at("nodes")[0].at("ratio").get<double>(), 100);
  EXPECT_EQ(slow.status, 3) << slow.out << slow.err;
  EXPECT_EQ(document.at("not_reached"), 0);
  std::vector<std::string> wrong = check;
  wrong[6] = "release.db";
  const Finished refused = ce_tune(wrong);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("--against is \"release.db\"; expected fleet"), std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace ce::cli
