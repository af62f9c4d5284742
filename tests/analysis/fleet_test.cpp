// Which GPU of a fleet is slow: on made-up times, and on runs of an H200, drawn into fleets with planted slow ones.
#include "cli/analysis/fleet.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/seed.hpp"

namespace ce::tuner {
namespace {

/// A cell in which each GPU has two runs of the time, a little apart.
FleetCell cell(const std::map<std::string, double>& times_us) {
  FleetCell found;
  for (const auto& [gpu, us] : times_us)
    found.push_back({gpu, {{.median_us = us * 0.9995}, {.median_us = us * 1.0005}}});
  return found;
}

std::map<std::string, GpuFinding> by_gpu(const std::vector<FleetCell>& cells) {
  std::map<std::string, GpuFinding> found;
  for (const GpuFinding& finding : compare_gpus(cells)) found[finding.gpu] = finding;
  return found;
}

TEST(Fleet, TellsTheSlowGpuFromTheOthers) {
  std::vector<FleetCell> cells;
  for (const double us : {100., 200., 300., 400.})
    cells.push_back(cell({{"a", us}, {"b", us * 1.001}, {"c", us * 1.05}, {"d", us * 0.999}}));
  const std::vector<GpuFinding> findings = compare_gpus(cells);
  ASSERT_EQ(findings.size(), 4U);
  EXPECT_EQ(findings.front().gpu, "c") << "the slowest first";
  EXPECT_EQ(findings.front().verdict, GpuVerdict::slow);
  EXPECT_NEAR(findings.front().ratio, 1.05, 0.002);
  EXPECT_LT(findings.front().interval.low, 1.05);
  EXPECT_GT(findings.front().interval.low, 1.02);
  EXPECT_EQ(findings.front().cells, 4);
  EXPECT_EQ(findings.front().runs, 8);
  EXPECT_EQ(findings.front().others, 3);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(findings[i].verdict, GpuVerdict::as_the_fleet) << findings[i].gpu;
    EXPECT_NEAR(findings[i].ratio, 1, 0.004);
  }
}

TEST(Fleet, ADifferenceOfOnePercentIsNoMatter) {
  std::vector<FleetCell> cells;
  for (const double us : {100., 200., 300., 400.})
    cells.push_back(cell({{"a", us}, {"b", us}, {"c", us * 1.01}}));
  EXPECT_EQ(by_gpu(cells).at("c").verdict, GpuVerdict::as_the_fleet);
}

TEST(Fleet, AFasterOneIsNoSlowFleet) {
  std::vector<FleetCell> cells;
  for (const double us : {100., 200., 300., 400.})
    cells.push_back(cell({{"a", us}, {"b", us}, {"c", us}, {"d", us * 0.95}}));
  const auto found = by_gpu(cells);
  EXPECT_EQ(found.at("d").verdict, GpuVerdict::fast);
  EXPECT_EQ(found.at("a").verdict, GpuVerdict::as_the_fleet);
}

TEST(Fleet, OneCellOfScatteredRunsTellsNothing) {
  const auto found = by_gpu(
      {{{"a", {{.median_us = 100}, {.median_us = 120}}}, {"b", {{.median_us = 105}, {.median_us = 140}}}}});
  EXPECT_EQ(found.at("b").verdict, GpuVerdict::unsure);
}

TEST(Fleet, AGpuAloneIsComparedWithNothing) {
  EXPECT_TRUE(compare_gpus({}).empty());
  EXPECT_TRUE(compare_gpus(std::vector<FleetCell>{cell({{"a", 100}}), cell({{"b", 100}})}).empty());
  EXPECT_TRUE(
      compare_gpus(std::vector<FleetCell>{{{"a", {{.median_us = 0}}}, {"b", {{.median_us = 1}}}}}).empty())
      << "what has no time is no run";
}

/// Of one problem, the runs that each process made.
using Contexts = std::vector<std::vector<Run>>;

std::vector<Contexts> recorded() {
  std::ifstream file(CE_RECORDINGS "/noise-h200-2026-11-21-places.txt");
  EXPECT_TRUE(file.is_open());
  std::vector<Contexts> problems;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "problem") problems.emplace_back();
    if (word != "run") continue;
    std::size_t context = 0;
    Run run;
    words >> context >> run.median_us >> run.error >> run.reference_us >> run.launch_us;
    Contexts& own = problems.back();
    own.resize(std::max(own.size(), context + 1));
    own[context].push_back(run);
  }
  return problems;
}

/// A fleet that has checked every recorded problem once: of each GPU what one process measured, as many runs as given.
std::vector<FleetCell> drawn_fleet(const std::vector<Contexts>& problems, int gpus, std::size_t runs,
                                   const std::map<int, double>& planted, std::mt19937_64& engine) {
  std::vector<FleetCell> cells;
  for (const Contexts& contexts : problems) {
    FleetCell& cell = cells.emplace_back();
    for (int gpu = 0; gpu < gpus; ++gpu) {
      const auto found = planted.find(gpu);
      const double factor = found == planted.end() ? 1 : found->second;
      GpuRuns& own = cell.emplace_back(GpuRuns{.gpu = fmt::to_string(gpu), .runs = {}});
      const std::vector<Run>& all = contexts[engine() % contexts.size()];
      for (std::size_t i = 0; i < std::min(runs, all.size()); ++i) {
        own.runs.push_back(all[i]);
        own.runs.back().median_us *= factor;
        own.runs.back().reference_us *= factor;  // the reference kernel is slow there, too
      }
    }
  }
  return cells;
}

struct Fleets {
  int planted = 0, found = 0, alarms = 0, others = 0, as_the_fleet = 0;
};

Fleets asked(int gpus, std::size_t runs, const std::map<int, double>& planted, int draws) {
  const std::vector<Contexts> problems = recorded();
  EXPECT_GE(problems.size(), 5U);
  std::mt19937_64 engine(test::estimate_seed());
  Fleets fleets;
  for (int draw = 0; draw < draws; ++draw)
    for (const GpuFinding& finding : compare_gpus(drawn_fleet(problems, gpus, runs, planted, engine))) {
      const bool is_planted = planted.contains(std::stoi(finding.gpu));
      (is_planted ? fleets.planted : fleets.others) += 1;
      if (is_planted) fleets.found += finding.verdict == GpuVerdict::slow;
      if (!is_planted) {
        fleets.alarms += finding.verdict == GpuVerdict::slow || finding.verdict == GpuVerdict::fast;
        fleets.as_the_fleet += finding.verdict == GpuVerdict::as_the_fleet;
      }
    }
  fmt::print("{} GPUs, {} runs: {} of {} planted ones found, {} alarms of {} others, {} as the fleet\n", gpus,
             runs, fleets.found, fleets.planted, fleets.alarms, fleets.others, fleets.as_the_fleet);
  return fleets;
}

TEST(RecordedNoise, PlantedSlowGpusAreFoundAndNothingElse) {
  for (const int gpus : {8, 64}) {
    const Fleets fleets = asked(gpus, 8, {{2, 1.03}, {5, 1.06}}, 100);
    EXPECT_EQ(fleets.planted, 200);
    EXPECT_GE(fleets.found, 190);
    EXPECT_LE(1000 * fleets.alarms, fleets.others);
    EXPECT_GE(fleets.as_the_fleet, fleets.others * 9 / 10);
  }
}

TEST(RecordedNoise, AFleetOfEqualGpusRaisesNoAlarm) {
  for (const int gpus : {2, 3, 8})
    for (const std::size_t runs : {1U, 8U}) {
      const Fleets fleets = asked(gpus, runs, {}, 1000 / gpus);
      EXPECT_LE(1000 * fleets.alarms, fleets.others);
    }
}

TEST(RecordedNoise, AQuarterOfTheFleetMayBeSlow) {
  const Fleets fleets = asked(8, 8, {{0, 1.04}, {1, 1.04}}, 100);
  EXPECT_GE(fleets.found, 190);
  EXPECT_LE(1000 * fleets.alarms, fleets.others);
}

}  // namespace
}  // namespace ce::tuner
