// Verdicts on the noise of an H200: recorded runs, drawn into histories in which the truth is planted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/analysis/populations.hpp"
#include "cli/analysis/verdict.hpp"
#include "tests/seed.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/statistics.hpp"
#include "tuner/strategy.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;

struct RecordedRun {
  std::string reference_us;
  std::vector<float> samples_us;
};

/// One problem with one config, timed by one process after the other.
struct RecordedProblem {
  std::string title;
  std::vector<RecordedRun> runs;

  /// Of a problem with a few rows more: what they make of the problem itself is the same kernel with more to do.
  [[nodiscard]] bool is_planted() const { return title.find(" planted ") != std::string::npos; }
};

/// See the heads of the files.
/// \param add_run  reads what follows "run" into the problem
template <class Problem, class AddRun>
std::vector<Problem> problems_in(const char* path, const AddRun& add_run) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::vector<Problem> problems;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "problem") problems.push_back({line.substr(word.size() + 1), {}});
    if (word == "run") add_run(problems.back(), words);
  }
  return problems;
}

std::vector<RecordedProblem> recorded_problems() {
  return problems_in<RecordedProblem>(CE_RECORDINGS "/noise-h200-2026-11-21.txt",
                                      [](RecordedProblem& problem, std::istringstream& words) {
                                        RecordedRun& run = problem.runs.emplace_back();
                                        words >> run.reference_us;
                                        for (float us = 0; words >> us;) run.samples_us.push_back(us);
                                      });
}

/// As a final measures: some samples in a row, as many as it would take, all slower by the same factor.
Measurement drawn_from(const RecordedRun& run, double factor, std::mt19937_64& engine) {
  const std::size_t all = run.samples_us.size();
  const double us = run.samples_us.front();
  const std::size_t count =
      std::min(all, static_cast<std::size_t>(15 * times_as_many(us) * launches_a_sample(us)));
  const auto first = run.samples_us.begin() + static_cast<std::ptrdiff_t>(engine() % (all - count + 1));
  Measurement measurement{.samples_us = {first, first + static_cast<std::ptrdiff_t>(count)},
                          .environment = {{"reference", "read"}, {"reference_us", run.reference_us}}};
  for (float& sample : measurement.samples_us) sample *= static_cast<float>(factor);
  measurement.median_us = median(measurement.samples_us);
  measurement.spread = spread(measurement.samples_us);
  return measurement;
}

/// Two that are compared; the same where nothing is planted but a factor.
struct Pair {
  const RecordedProblem *before, *after;
};

/// Runs before and after; none is on both sides.
struct History {
  std::vector<tuner::Run> before, after;
};

History drawn_history(const Pair& pair, std::size_t runs, double factor, std::mt19937_64& engine) {
  std::vector<std::size_t> order(std::min(pair.before->runs.size(), pair.after->runs.size()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), engine);
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i < runs; ++i)
    measurements.push_back(drawn_from(pair.before->runs[order.at(i)], 1, engine));
  for (std::size_t i = runs; i < 2 * runs; ++i)
    measurements.push_back(drawn_from(pair.after->runs[order.at(i)], factor, engine));
  std::vector<const Measurement*> pointers;
  pointers.reserve(measurements.size());
  for (const Measurement& measurement : measurements) pointers.push_back(&measurement);
  const std::vector<tuner::Run> all = to_runs(pointers);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(runs);
  return {{all.begin(), middle}, {middle, all.end()}};
}

struct Counts {
  int faster = 0, same = 0, slower = 0, unsure = 0, all = 0;
  double least_share_slower = 1;  ///< of all problems

  void add(Verdict verdict) {
    ++all;
    ++(verdict == Verdict::faster   ? faster
       : verdict == Verdict::same   ? same
       : verdict == Verdict::slower ? slower
                                    : unsure);
  }
  [[nodiscard]] double share_slower() const { return static_cast<double>(slower) / all; }
};

/// Draws databases of all problems, each made slower by the factor, and asks for verdicts as
/// `ce-tune regressions` does.
Counts asked(const std::vector<Pair>& problems, std::size_t runs, double factor, int databases,
             std::mt19937_64& engine) {
  Counts total;
  std::vector<Counts> of_problem(problems.size());
  for (int database = 0; database < databases; ++database) {
    std::vector<History> histories;
    std::vector<std::vector<tuner::Run>> repeats;
    for (const Pair& problem : problems) {
      histories.push_back(drawn_history(problem, runs, factor, engine));
      repeats.push_back(histories.back().before);
      repeats.push_back(histories.back().after);
    }
    const Noise noise = pooled_noise(repeats);
    for (std::size_t i = 0; i < histories.size(); ++i) {
      const Verdict verdict = compare(histories[i].before, histories[i].after, noise).verdict;
      of_problem[i].add(verdict);
      total.add(verdict);
    }
  }
  fmt::print("{} runs a side, times {}: of {} verdicts {} slower, {} unsure, {} same, {} faster\n", runs,
             factor, total.all, total.slower, total.unsure, total.same, total.faster);
  for (const Counts& counts : of_problem)
    total.least_share_slower = std::min(total.least_share_slower, counts.share_slower());
  for (std::size_t i = 0; i < problems.size(); ++i)
    fmt::print("  {:5.1f}% slower  {:5.1f}% faster  {:5.1f}% same  {}\n", 100 * of_problem[i].share_slower(),
               100. * of_problem[i].faster / of_problem[i].all, 100. * of_problem[i].same / of_problem[i].all,
               problems[i].after->title);
  return total;
}

constexpr std::size_t enough_runs = 6;
/// Shorter kernels are too noisy for an effect of 3%, or of 1.5%, with three runs.
constexpr double shortest_us = 10, shortest_for_half_us = 16;

/// Each held against itself.
std::vector<Pair> pairs_of(const std::vector<RecordedProblem>& recorded, std::size_t runs, double least_us) {
  std::vector<Pair> pairs;
  for (const RecordedProblem& problem : recorded)
    if (!problem.is_planted() && problem.runs.size() >= runs &&
        median(problem.runs.front().samples_us) >= least_us)
      pairs.push_back({&problem, &problem});
  return pairs;
}

TEST(RecordedNoise, SlowdownsAreFound) {
  const std::vector<RecordedProblem> recorded = recorded_problems();
  const std::vector<Pair> problems = pairs_of(recorded, enough_runs, shortest_us);
  const std::vector<Pair> longer = pairs_of(recorded, enough_runs, shortest_for_half_us);
  ASSERT_GE(longer.size(), 6U);
  std::mt19937_64 engine(test::estimate_seed());
  EXPECT_GE(asked(problems, 3, 1.03, 500, engine).least_share_slower, 0.95);
  EXPECT_GE(asked(problems, 3, 1.015, 500, engine).share_slower(), 0.8);
  EXPECT_GE(asked(longer, 3, 1.015, 500, engine).least_share_slower, 0.8);
}

TEST(RecordedNoise, WhatIsTheSameRaisesNoAlarm) {
  const std::vector<RecordedProblem> recorded = recorded_problems();
  std::mt19937_64 engine(test::estimate_seed());
  for (const std::size_t runs : {3U, 1U}) {
    const std::vector<Pair> problems = pairs_of(recorded, 2 * runs, 0);
    ASSERT_GE(problems.size(), 9U);
    const Counts nothing = asked(problems, runs, 1, 2000, engine);
    EXPECT_LE(1000 * (nothing.slower + nothing.faster), nothing.all) << runs << " runs a side";
  }
}

TEST(RecordedNoise, MoreWorkIsFound) {
  const std::vector<RecordedProblem> recorded = recorded_problems();
  std::mt19937_64 engine(test::estimate_seed());
  int planted = 0;
  for (const RecordedProblem& more : recorded) {
    if (!more.is_planted()) continue;
    const auto before = std::find_if(recorded.begin(), recorded.end(), [&](const RecordedProblem& other) {
      return !other.is_planted() && more.title.starts_with(other.title);
    });
    ASSERT_NE(before, recorded.end()) << more.title;
    const bool large = more.title.ends_with("1.0300");
    EXPECT_GE(asked({{&*before, &more}}, 3, 1, 200, engine).share_slower(), large ? 0.95 : 0.8) << more.title;
    ++planted;
  }
  EXPECT_EQ(planted, 2);
}

/// Runs of one problem by the context that they were made in: what one process would have made in a check.
struct ProblemOfPlaces {
  std::string title;
  std::vector<std::vector<tuner::Run>> contexts;
};

std::vector<ProblemOfPlaces> problems_of_places() {
  return problems_in<ProblemOfPlaces>(
      CE_RECORDINGS "/noise-h200-2026-11-21-places.txt",
      [](ProblemOfPlaces& problem, std::istringstream& words) {
        std::size_t context = 0;
        tuner::Run run;
        words >> context >> run.median_us >> run.error >> run.reference_us >> run.launch_us;
        problem.contexts.resize(std::max(problem.contexts.size(), context + 1));
        problem.contexts[context].push_back(run);
      });
}

/// As many as `ce-tune check` makes, from the contexts in turn.
std::vector<tuner::Run> drawn_check(std::span<const std::vector<tuner::Run>> contexts, double factor) {
  std::vector<tuner::Run> runs;
  std::size_t wanted = 1;
  for (const std::vector<tuner::Run>& context : contexts)
    for (const tuner::Run& run : context) {
      runs.push_back(run);
      runs.back().median_us *= factor;
      if (runs.size() < wanted) continue;
      const Noise noise = pooled_noise({&runs, 1});  // of one run: what is expected
      wanted = std::max(wanted, static_cast<std::size_t>(runs_to_make(runs.front().median_us, noise)));
      if (runs.size() == wanted) return runs;
    }
  return runs;
}

TEST(RecordedNoise, ACheckFindsSlowdownsOfShortKernels) {
  constexpr int draws = 400;  // of each problem: with 100, two alarms by chance are more than one of 1000
  std::mt19937_64 engine(test::estimate_seed());
  Counts all_small, all_nothing;
  for (ProblemOfPlaces& problem : problems_of_places()) {
    ASSERT_GE(problem.contexts.size(), 60U);
    Counts nothing, small, large;
    std::size_t runs = 0;
    for (int draw = 0; draw < draws; ++draw) {
      std::shuffle(problem.contexts.begin(), problem.contexts.end(), engine);
      const std::span contexts(problem.contexts);
      const auto half = contexts.size() / 2;
      const std::vector<tuner::Run> before = drawn_check(contexts.first(half), 1);
      runs += before.size();
      for (const auto& [factor, counts] : {std::pair{1., &nothing}, {1.015, &small}, {1.03, &large}})
        counts->add(compare(before, drawn_check(contexts.subspan(half), factor), {}).verdict);
    }
    fmt::print(
        "  3% {:5.1f}%, 1.5% {:5.1f}% found; {:2} alarms, {:5.1f}% same; {:3} runs of {:6.1f} us  {}\n",
        100 * large.share_slower(), 100 * small.share_slower(), nothing.slower + nothing.faster,
        100. * nothing.same / nothing.all, runs / draws, problem.contexts[0].at(0).median_us, problem.title);
    EXPECT_GE(large.share_slower(), 0.95) << problem.title;
    EXPECT_GE(small.share_slower(), 0.75) << problem.title;  // 0.8 less what 400 draws may be off
    all_small.slower += small.slower;
    all_small.all += small.all;
    all_nothing.slower += nothing.slower + nothing.faster;
    all_nothing.all += nothing.all;
  }
  EXPECT_GE(all_small.share_slower(), 0.8);
  EXPECT_LE(1000 * all_nothing.slower, all_nothing.all);
}

/// Of a kernel that does not fill the device: what one process after the other measured.
struct ProblemOfProcesses {
  std::string title;
  std::vector<tuner::Run> processes;
};

std::vector<ProblemOfProcesses> problems_of_processes() {
  return problems_in<ProblemOfProcesses>(CE_RECORDINGS "/noise-h200-2026-11-22-processes.txt",
                                         [](ProblemOfProcesses& problem, std::istringstream& words) {
                                           tuner::Run run{.process_us = usual_process_us};
                                           words >> run.median_us >> run.error >> run.reference_us >>
                                               run.launch_us;
                                           problem.processes.push_back(run);
                                         });
}

/// As many as `ce-tune check` has make, with replacement: more than were recorded.
std::vector<tuner::Run> drawn_processes(std::span<const tuner::Run> recorded, std::mt19937_64& engine) {
  std::vector<tuner::Run> runs;
  for (std::size_t wanted = 0; wanted = static_cast<std::size_t>(runs_to_make(runs)), runs.size() < wanted;)
    while (runs.size() < wanted) runs.push_back(recorded[engine() % recorded.size()]);
  return runs;
}

TEST(RecordedNoise, ACheckFindsSlowdownsWhereProcessesDiffer) {
  constexpr int draws = 150;  // of each problem
  std::mt19937_64 engine(test::estimate_seed());
  Counts all_nothing;
  int problems = 0;
  for (const ProblemOfProcesses& problem : problems_of_processes()) {
    Counts nothing, small, large;
    std::size_t processes = 0;
    for (int draw = 0; draw < draws; ++draw) {
      const std::vector<tuner::Run> before = drawn_processes(problem.processes, engine);
      std::vector<tuner::Run> after = drawn_processes(problem.processes, engine);
      processes += before.size();
      for (const auto& [factor, counts] : {std::pair{1., &nothing}, {1.015, &small}, {1.03, &large}}) {
        std::vector<tuner::Run> slower = after;
        for (tuner::Run& run : slower) run.median_us *= factor;
        counts->add(compare(before, slower, {}).verdict);
      }
    }
    fmt::print("  3% {:5.1f}%, 1.5% {:5.1f}% found; {:2} alarms; {:3} processes of {:4.1f} us  {}\n",
               100 * large.share_slower(), 100 * small.share_slower(), nothing.slower + nothing.faster,
               processes / draws, problem.processes.at(0).median_us, problem.title);
    EXPECT_GE(large.share_slower(), 0.95) << problem.title;
    EXPECT_GE(small.share_slower(), 0.8) << problem.title;
    all_nothing.slower += nothing.slower + nothing.faster;
    all_nothing.all += nothing.all;
    ++problems;
  }
  EXPECT_EQ(problems, 8);
  EXPECT_LE(1000 * all_nothing.slower, all_nothing.all);
}

/// A sweep against a sweep, on a machine that is quiet otherwise.
TEST(RecordedNoise, FewProcessesRaiseNoAlarm) {
  std::mt19937_64 engine(test::estimate_seed());
  Counts nothing;
  for (const ProblemOfProcesses& problem : problems_of_processes())
    for (const std::size_t processes : {1, 2, 4})
      for (int draw = 0; draw < 500; ++draw) {
        std::vector<tuner::Run> drawn(2 * processes);
        for (tuner::Run& run : drawn) run = problem.processes[engine() % problem.processes.size()];
        const std::span all(drawn);
        nothing.add(compare(all.first(processes), all.subspan(processes), {.scale = 0.5}).verdict);
      }
  EXPECT_EQ(nothing.all, 12000);
  EXPECT_LE(nothing.slower + nothing.faster, 12);
}

}  // namespace
}  // namespace ce::tuner
