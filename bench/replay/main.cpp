// ce_replay: scores search strategies on recorded searches, and prints what the ranking looks at, so that
// bench/fit_ranking.py can fit its weights.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

#include "bench/replay/replay.hpp"
#include "ce/base/error.hpp"
#include "tuner/ranking.hpp"

namespace {

using namespace ce;

void print_scores(const replay::Recording& recording, int seeds, bool each) {
  fmt::print("{:<12} {:>8} {:>8} {:>8} {:>7}   regret over {} problems x {} seeds\n", "strategy", "median",
             "p95", "worst", "tried", recording.problems.size(), seeds);
  for (const auto strategy :
       {tuner::Strategy::halving, tuner::Strategy::random, tuner::Strategy::exhaustive}) {
    std::vector<replay::Score> scores;
    for (const replay::RecordedProblem& problem : recording.problems)
      for (int seed = 1; seed <= seeds; ++seed) {
        tuner::Breadth breadth{.strategy = strategy, .seed = static_cast<std::uint64_t>(seed)};
        scores.push_back(replay::search(problem, recording.model, breadth, static_cast<std::uint64_t>(seed)));
        if (each && seed == 1)
          fmt::print("  {:<75} {:6.2f}% first {:6.2f}% tried {:>4} {}\n", generator::title(problem.problem),
                     100 * scores.back().regret, 100 * scores.back().first, scores.back().tried,
                     scores.back().winner);
      }
    const replay::Summary summary = replay::summary_of(scores);
    fmt::print("{:<12} {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.1f}\n", tuner::name(strategy), 100 * summary.median,
               100 * summary.p95, 100 * summary.worst, summary.tried);
    if (strategy == tuner::Strategy::halving)
      fmt::print("without a search: {:.1f}% of the best speed in the median\n", 100 * summary.first_median);
  }
}

void print_traits(const replay::Recording& recording) {
  fmt::print("problem,variant,load,store,loss,{}\n", fmt::join(tuner::trait_names, ","));
  for (std::size_t i = 0; i < recording.problems.size(); ++i) {
    const replay::RecordedProblem& problem = recording.problems[i];
    for (const replay::RecordedConfig& each : problem.configs)
      fmt::print("{},{},{},{},{:.6f},{:.6f}\n", i, each.config.variant, each.config.load, each.config.store,
                 std::log(each.median_us / problem.best_us()),
                 fmt::join(tuner::traits_of(each.config, problem.problem, recording.model), ","));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Searches replayed from bench/results/searches-*.txt");
  std::string file;
  int seeds = 5;
  bool each = false;
  app.require_subcommand(1);
  CLI::App* score = app.add_subcommand("score", "Regret and cost of every strategy");
  score->add_option("FILE", file)->required();
  score->add_option("--seeds", seeds)->capture_default_str()->check(CLI::PositiveNumber);
  score->add_flag("--each", each, "A line for each problem");
  CLI::App* traits = app.add_subcommand("traits", "What the ranking looks at, as CSV");
  traits->add_option("FILE", file)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    const replay::Recording recording = replay::load(file);
    if (score->parsed())
      print_scores(recording, seeds, each);
    else
      print_traits(recording);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "ce_replay: {}\n", error.what());
    return 1;
  }
}
