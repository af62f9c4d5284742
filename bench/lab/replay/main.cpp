// ce_replay: scores search strategies and guesses on recorded searches, and fits the weights of the ranking to
// them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/lab/replay/fit.hpp"
#include "bench/lab/replay/replay.hpp"
#include "ce/error.hpp"
#include "tuner/ranking.hpp"

namespace {

using namespace ce;

void print_scores(const replay::Recording& recording, std::uint64_t seeds, bool each) {
  fmt::print("{:<12} {:>8} {:>8} {:>8} {:>7} {:>7}   regret over {} problems x {} seeds\n", "strategy",
             "median", "p95", "worst", "tried", "ms", recording.problems.size(), seeds);
  for (const auto strategy :
       {tuner::Strategy::halving, tuner::Strategy::random, tuner::Strategy::exhaustive}) {
    std::vector<replay::Score> scores;
    for (const replay::RecordedProblem& problem : recording.problems) {
      const replay::Simulator simulator(problem);
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        scores.push_back(simulator.search({.strategy = strategy, .seed = seed}, seed));
        if (each && seed == 1)
          fmt::print("  {:<75} {:6.2f}% first {:6.2f}% tried {:>4} {}\n", generator::title(problem.problem),
                     100 * scores.back().regret, 100 * scores.back().first, scores.back().tried,
                     scores.back().winner);
      }
    }
    const replay::Summary summary = replay::summary_of(scores);
    fmt::print("{:<12} {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.1f} {:>7.1f}\n", tuner::name(strategy),
               100 * summary.median, 100 * summary.p95, 100 * summary.worst, summary.tried,
               summary.device_ms);
    if (strategy == tuner::Strategy::halving)
      fmt::print("without a search: {:.1f}% of the best speed in the median\n", 100 * summary.first_median);
  }
}

using Ways = std::vector<std::pair<replay::Tuned, const char*>>;

void print_guesses(const replay::Recording& recording, const replay::Guesser& guesser, const Ways& ways,
                   std::uint64_t seeds, bool each) {
  struct Regrets {
    std::vector<double> plain, heavy;
    std::vector<double>& of(const generator::Problem& problem) {
      return generator::has_costly_options(problem) ? heavy : plain;
    }
  };
  std::vector<std::pair<const char*, Regrets>> found;
  for (const auto& [tuned, name] : ways) {
    Regrets regrets, alone;
    for (std::uint64_t seed = 1; seed <= (tuned == replay::Tuned::exhaustively ? 1 : seeds); ++seed) {
      const std::vector<replay::Guess> guesses = guesser.guesses(tuned, seed);
      for (std::size_t i = 0; i < guesses.size(); ++i) {
        const generator::Problem& problem = recording.problems[i].problem;
        regrets.of(problem).push_back(guesses[i].regret);
        alone.of(problem).push_back(guesses[i].alone);
        if (each && seed == 1)
          fmt::print("  {:<75} {:6.2f}% alone {:6.2f}% nearest {:5.2f} {}\n", generator::title(problem),
                     100 * guesses[i].regret, 100 * guesses[i].alone, guesses[i].nearest, guesses[i].config);
      }
    }
    if (tuned == replay::Tuned::exhaustively) found.emplace_back("the safe default", std::move(alone));
    found.emplace_back(name, std::move(regrets));
  }
  const auto print = [&](std::vector<double> Regrets::*which, const char* problems) {
    fmt::print("{:<28} {:>8} {:>8} {:>8}   regret over {} {}\n", "guess", "median", "p95", "worst",
               (found.front().second.*which).size(), problems);
    for (const auto& [name, regrets] : found)
      if (const std::vector<double>& own = regrets.*which; !own.empty())
        fmt::print("{:<28} {:>7.2f}% {:>7.2f}% {:>7.2f}%\n", name, 100 * replay::quantile(own, 0.5),
                   100 * replay::quantile(own, 0.95), 100 * replay::quantile(own, 1));
  };
  print(&Regrets::plain, "problems that were not measured");
  print(&Regrets::heavy, "that were not, with weights of all classes or a soft cap");
}

void print_guesses(const replay::Recording& recording, const std::vector<std::filesystem::path>& known,
                   const std::vector<std::string>& without, std::uint64_t seeds, bool each) {
  if (known.empty())
    return print_guesses(recording, replay::Guesser(recording, without),
                         {{replay::Tuned::exhaustively, "neighbours, exhaustively"},
                          {replay::Tuned::by_halving, "neighbours, by halving"},
                          {replay::Tuned::by_halving_winners, "neighbours, winners only"}},
                         seeds, each);
  const replay::Recording others = replay::load(known);
  print_guesses(recording, replay::Guesser(recording, others, without),
                {{replay::Tuned::exhaustively, "neighbours of --known"}}, seeds, each);
}

/// \param structures  that a search looks at: fewer, as where compilers are slow
void print_searches(const replay::Recording& recording, int structures,
                    const std::vector<std::string>& without, std::uint64_t seeds, bool each) {
  const replay::Guesser guesser(recording, without);
  std::vector<double> plain, heavy;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::vector<replay::Score> scores = guesser.searches({.structures = structures}, seed);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const generator::Problem& problem = recording.problems[i].problem;
      (generator::has_costly_options(problem) ? heavy : plain).push_back(scores[i].regret);
      if (each && seed == 1)
        fmt::print("  {:<75} {:6.2f}% {}\n", generator::title(problem), 100 * scores[i].regret,
                   scores[i].winner);
    }
  }
  fmt::print("{:>8} {:>8} {:>8} {:>8}   regret of first searches of {} structures x {} seeds\n", "mean",
             "median", "p95", "worst", structures, seeds);
  for (const auto& [values, problems] :
       {std::pair{&plain, ""}, std::pair{&heavy, "with weights of all classes or a soft cap"}})
    fmt::print("{:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.2f}%   {}\n",
               100 * std::accumulate(values->begin(), values->end(), 0.) /
                   static_cast<double>(std::max<std::size_t>(1, values->size())),
               100 * replay::quantile(*values, 0.5), 100 * replay::quantile(*values, 0.95),
               100 * replay::quantile(*values, 1), problems);
}

/// The 95th percentile of regret of the model without each of its concepts in turn, and the worst first search of those
/// with weights of all classes or a soft cap: what hurts least could be dropped.
void print_ablation(const replay::Recording& recording, const std::vector<std::string>& without,
                    std::uint64_t seeds) {
  fmt::print("{:>8} {:>8} {:>8} {:>8} {:>8} {:>8}   95th percentile of regret; costly: the worst\n",
             "nothing", "halving", "winners", "search", "in haste", "costly");
  const auto print = [&](const std::string& name) {
    std::vector<std::string> names = without;
    if (!name.empty()) names.push_back(name);
    const replay::Guesser guesser(recording, names);
    const auto p95 = [&](const auto& regrets_of, double share = 0.95, bool costly = false) {
      std::vector<double> regrets;
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const std::vector<double> own = regrets_of(seed);
        for (std::size_t i = 0; i < own.size(); ++i)
          if (generator::has_costly_options(recording.problems[i].problem) == costly)
            regrets.push_back(own[i]);
      }
      return 100 * replay::quantile(std::move(regrets), share);
    };
    const auto guessed = [&](replay::Tuned tuned, double replay::Guess::*regret) {
      return [&guesser, tuned, regret](std::uint64_t seed) {
        std::vector<double> regrets;
        for (const replay::Guess& guess : guesser.guesses(tuned, seed)) regrets.push_back(guess.*regret);
        return regrets;
      };
    };
    const auto searched = [&](int structures) {
      return [&guesser, structures](std::uint64_t seed) {
        std::vector<double> regrets;
        for (const replay::Score& score : guesser.searches({.structures = structures}, seed))
          regrets.push_back(score.regret);
        return regrets;
      };
    };
    const int structures = tuner::Breadth{}.structures;
    const auto alone = guessed(replay::Tuned::by_halving_winners, &replay::Guess::alone);
    fmt::print(
        "{:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.2f}%   {} (median of nothing {:.2f}%)\n",
        p95(alone), p95(guessed(replay::Tuned::by_halving, &replay::Guess::regret)),
        p95(guessed(replay::Tuned::by_halving_winners, &replay::Guess::regret)), p95(searched(structures)),
        p95(searched(structures / 2)), p95(searched(structures), 1, true),
        name.empty() ? "as it is" : "without " + name, p95(alone, 0.5));
    std::fflush(stdout);
  };
  print("");
  for (const replay::Concept& each : replay::concepts())
    if (std::find(without.begin(), without.end(), each.name) == without.end()) print(each.name);
}

void print_stability(const replay::Recording& recording, std::uint64_t seed, bool each) {
  constexpr double short_us = 12;
  fmt::print("{:<12} {:<12} {:>8} {:>8} {:>8}   winners of ten searches, slowest over fastest (seed {})\n",
             "strategy", "problems", "median", "p95", "worst", seed);
  // An exhaustive search leaves nothing out: how far its winners are apart is noise of the samples alone.
  for (const auto strategy : {tuner::Strategy::halving, tuner::Strategy::exhaustive}) {
    std::vector<double> all, of_short;
    for (const replay::RecordedProblem& problem : recording.problems) {
      const double apart = replay::Simulator(problem).apart({.strategy = strategy}, seed);
      all.push_back(apart);
      if (problem.best_us() < short_us) of_short.push_back(apart);
      if (each)
        fmt::print("  {:<75} {:8.2f} us {:6.2f}%\n", generator::title(problem.problem), problem.best_us(),
                   100 * apart);
    }
    for (const auto& [name, values] : {std::pair{"all", &all}, std::pair{"below 12 us", &of_short}})
      fmt::print("{:<12} {:<12} {:>7.2f}% {:>7.2f}% {:>7.2f}%\n", tuner::name(strategy), name,
                 100 * replay::quantile(*values, 0.5), 100 * replay::quantile(*values, 0.95),
                 100 * replay::quantile(*values, 1));
  }
}

/// What bench/lab/fit_registers.py reads: the registers that the compiler gave each structure, beside what the ranking knows.
void print_registers(const replay::Recording& recording) {
  fmt::print("variant,operation,inputs,threads,words,registers\n");
  for (const auto* problems : {&recording.problems, &recording.partial})
    for (const replay::RecordedProblem& recorded : *problems) {
      std::string printed;
      for (const replay::RecordedConfig& each : recorded.configs) {
        std::string structure = tuner::structure_of(each.config);
        if (each.registers == 0 || each.spills || structure == printed) continue;
        printed = std::move(structure);
        fmt::print("{},{},{},{},{:.2f},{}\n", each.config.variant,
                   generator::name(recorded.problem.operation), generator::inputs(recorded.problem),
                   32 * each.config.warps, tuner::held_words(each.config, recorded.problem), each.registers);
      }
    }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Searches replayed from recordings, of one GPU or of several");
  std::vector<std::filesystem::path> files;
  std::uint64_t seeds = 5;
  bool each = false;
  app.require_subcommand(1);
  CLI::App* score = app.add_subcommand("score", "Regret and cost of every strategy");
  score->add_option("FILE", files)->required();
  score->add_option("--seeds", seeds)->capture_default_str()->check(CLI::PositiveNumber);
  score->add_flag("--each", each, "A line for each problem");
  CLI::App* guess = app.add_subcommand("guess", "Regret of what runs where nothing was tuned");
  guess->add_option("FILE", files)->required();
  guess->add_option("--seeds", seeds, "Searches of each neighbour")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  std::vector<std::filesystem::path> known;
  guess->add_option("--known", known, "Recordings whose problems are the neighbours, in place of FILE's own");
  guess->add_flag("--each", each, "A line for each problem");
  CLI::App* search =
      app.add_subcommand("search", "Regret of first searches: the weights have not seen the problem");
  int structures = tuner::Breadth{}.structures;
  search->add_option("FILE", files)->required();
  search->add_option("--structures", structures, "That a search looks at: fewer, as where compilers are slow")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  search->add_option("--seeds", seeds)->capture_default_str()->check(CLI::PositiveNumber);
  search->add_flag("--each", each, "A line for each problem");
  CLI::App* ablate = app.add_subcommand("ablate", "Regret of the model without each of its concepts in turn");
  ablate->add_option("FILE", files)->required();
  ablate->add_option("--seeds", seeds)->capture_default_str()->check(CLI::PositiveNumber);
  std::vector<std::string> without;
  for (CLI::App* command : {guess, search, ablate})
    command->add_option("--without", without, "Concepts that weigh nothing, as ablate names them");
  CLI::App* stability = app.add_subcommand("stability", "How far the winners of ten searches are apart");
  std::uint64_t seed = 1;
  stability->add_option("FILE", files)->required();
  stability->add_option("--seed", seed)->capture_default_str();
  stability->add_flag("--each", each, "A line for each problem");
  CLI::App* fit = app.add_subcommand("fit", "The text of tuner/ranking_weights.hpp");
  fit->add_option("FILE", files)->required();
  CLI::App* registers = app.add_subcommand("registers", "Registers as far as they were recorded, as CSV");
  registers->add_option("FILE", files)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    const replay::Recording recording = replay::load(files);
    if (score->parsed())
      print_scores(recording, seeds, each);
    else if (guess->parsed())
      print_guesses(recording, known, without, seeds, each);
    else if (search->parsed())
      print_searches(recording, structures, without, seeds, each);
    else if (ablate->parsed())
      print_ablation(recording, without, seeds);
    else if (stability->parsed())
      print_stability(recording, seed, each);
    else if (fit->parsed())
      fmt::print("{}", replay::header_of(replay::Regression(recording).fitted()));
    else
      print_registers(recording);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "ce_replay: {}\n", error.what());
    return 1;
  }
}
