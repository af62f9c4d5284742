#pragma once
/// \file
/// Searches without a device: strategies look at what an exhaustive search once measured.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/ranking.hpp"
#include "tuner/strategy.hpp"

namespace ce::replay {

struct Fitted;

struct RecordedConfig {
  generator::Config config;
  double median_us = 0;
  double spread = 0;    ///< interquartile range over median
  int registers = 0;    ///< of a thread; 0: was not recorded
  bool spills = false;  ///< keeps values in local memory, as far as was recorded
};

struct RecordedProblem {
  runtime::Model model;        ///< of the GPU
  generator::Problem problem;  ///< with the rows that were timed
  std::vector<RecordedConfig> configs;

  [[nodiscard]] double best_us() const;
};

/// What bench/lab/record_searches.py wrote, of one GPU or of several.
struct Recording {
  std::vector<RecordedProblem> problems;  ///< those that are no ceiling
  /// Of searches that measured few configs of their space: their best may not be the best, so nothing is replayed, but
  /// the weights are fitted to them too.
  std::vector<RecordedProblem> partial;
};

/// \throws Error naming the file and the line that it cannot read
[[nodiscard]] Recording load(const std::vector<std::filesystem::path>& paths);

/// Of one search.
struct Score {
  std::string winner;
  double regret = 0;     ///< time of the winner over that of the best config, less 1
  double first = 0;      ///< the same of the config that is ranked first: what runs without a search
  int tried = 0;         ///< configs that were compiled
  double device_us = 0;  ///< time that the device ran kernels
  /// Configs that were looked at, with the natural logarithm of their time over that of the winner.
  std::vector<std::pair<generator::Config, double>> losses;
};

/// Searches of one recorded problem, with samples drawn around the recorded medians: normal, as wide as was recorded.
class Simulator {
 public:
  /// Keeps references to what was recorded. \param weights  that say what the search looks at first
  explicit Simulator(const RecordedProblem& recorded,
                     const tuner::Weights& weights = tuner::shipped_weights());

  [[nodiscard]] Score search(const tuner::Breadth& breadth, std::uint64_t seed) const;
  /// How far the winners of ten searches, with samples drawn from seeds one after the other, are apart: the slowest
  /// over the fastest by their recorded medians, less 1.
  [[nodiscard]] double apart(const tuner::Breadth& breadth, std::uint64_t first_seed) const;

 private:
  double best_us_;
  // In the order in which a search looks at them.
  std::vector<const RecordedConfig*> field_;
  std::vector<tuner::Entrant> entrants_;
};

/// What runs for a problem that nobody has tuned, where all others have been.
struct Guess {
  std::string config;
  double regret = 0;   ///< its time over that of the best config, less 1
  double alone = 0;    ///< the same of the safe default: without neighbours
  double nearest = 0;  ///< distance of the nearest neighbour
};

/// How the neighbours of a Guess were tuned, and what is known of that.
enum class Tuned {
  exhaustively,
  by_halving,
  by_halving_winners,  ///< by halving; the winner alone is known, as of what ships with the library
};

/// Guesses for each problem of a recording. Neither the weights nor the neighbours of a problem have seen its
/// measurements, on any GPU; its neighbours are those of its GPU.
class Guesser {
 public:
  /// Keeps references to what was recorded.
  explicit Guesser(const Recording& recording, const std::vector<std::string>& without = {});
  /// Where the neighbours are those of another recording; with its searches, which may have looked at few configs, as
  /// what was measured `exhaustively`.
  Guesser(const Recording& recording, const Recording& known, const std::vector<std::string>& without = {});
  ~Guesser();
  Guesser(const Guesser&) = delete;
  Guesser& operator=(const Guesser&) = delete;

  /// In the order of the problems. \param seed  of the neighbours' searches
  [[nodiscard]] std::vector<Guess> guesses(Tuned tuned, std::uint64_t seed) const;
  /// First searches, in the order of the problems.
  [[nodiscard]] std::vector<Score> searches(const tuner::Breadth& breadth, std::uint64_t seed) const;

 private:
  struct Stranger;

  [[nodiscard]] std::vector<std::pair<generator::Config, double>> losses_of(std::size_t problem, Tuned tuned,
                                                                            std::uint64_t seed) const;
  /// Of each stranger.
  [[nodiscard]] std::vector<std::vector<tuner::Neighbour>> neighbours(Tuned tuned, std::uint64_t seed) const;

  /// The first config, with its regret, in the order of weights that have not seen the problem. What was not recorded
  /// was not right, or does not fit: as a Chooser goes on to the next.
  [[nodiscard]] std::pair<std::string, double> first_recorded(std::size_t problem,
                                                              std::span<const tuner::Neighbour> near) const;

  const Recording& recording_;
  const Recording& known_;
  std::vector<Fitted> fits_;           ///< without one part of the problems each
  std::vector<std::size_t> parts_;     ///< of the problems, by what fits_ is without
  std::vector<Simulator> simulators_;  ///< of what is known
  std::vector<Stranger> strangers_;
};

/// The value that the share of all does not exceed; of no values 0.
[[nodiscard]] double quantile(std::vector<double> values, double share);

/// Of many searches.
struct Summary {
  double median = 0, p95 = 0, worst = 0;  ///< regret
  double first_median = 0;                ///< speed of the config that is ranked first over the best, median
  double tried = 0;                       ///< mean
  double device_ms = 0;                   ///< time that the device ran kernels, mean
};

[[nodiscard]] Summary summary_of(std::vector<Score> scores);

}  // namespace ce::replay
