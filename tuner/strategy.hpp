#pragma once
/// \file
/// Determines the rounds of a search.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ce::tuner {

enum class Strategy : std::uint8_t {
  halving,  ///< the most promising structures, then cache modifiers of the best, then fewer and fewer configs
  exhaustive,  ///< every config, then fewer and fewer
  random,      ///< configs drawn at random, then fewer and fewer
};

[[nodiscard]] std::string_view name(Strategy strategy) noexcept;
/// Nothing for an unknown name.
[[nodiscard]] std::optional<Strategy> parse_strategy(std::string_view text) noexcept;

/// More samples for the leaders if their medians are close.
struct PlayOff {
  int samples = 0;    ///< samples of each; 0: no play-off
  double margin = 0;  ///< relative distance of a median from the first one's
  int most = 0;       ///< number of entrants, at most
  double error = 0;   ///< no play-off if the first one's median is known better than that; see Entrant::error
};

/// The extent of a search.
struct Breadth {
  Strategy strategy = Strategy::halving;
  int structures = 24;    ///< for halving: structures tried with one choice of cache modifiers each
  int refined = 7;        ///< for halving: the best of these, tried with more choices
  int modifiers = 5;      ///< for halving: the most promising of those choices, including every load
  int drawn = 40;         ///< for random
  int most_configs = 0;   ///< never try more than this; 0: no bound
  int least_configs = 8;  ///< a search with fewer measurements may take twice its budget
  int screening_samples = 3;
  int semifinalists = 12, semifinal_samples = 6;
  int finalists = 8, final_samples = 15;
  PlayOff play_off{45, 0.015, 8}, decider{135, 0.0075, 3, 0.0015};
  std::uint64_t seed = 1;  ///< for random
};

/// A config in a search.
struct Entrant {
  std::size_t structure = 0;  ///< equal for configs that only differ in their cache modifiers
  int load = 0;               ///< Config::load
  double median_us = 0;       ///< median of its samples in turns, else of its screening; 0 before that
  double error = 0;           ///< relative error of that median, if it is of samples in turns
  bool in_turns = false;      ///< it has been in a round of turns
  bool out = false;           ///< it is quarantined

  [[nodiscard]] bool is_new() const noexcept { return median_us == 0 && !out; }
};

/// Entrants to measure, in this order.
struct Round {
  std::string_view name;  ///< a title for people
  std::vector<std::size_t> entrants;
  int samples = 0;        ///< samples of each at the end of the round; see times_as_many()
  bool in_turns = false;  ///< few samples of each at a time, so that drift affects all alike; decides
};

/// The next round of a search: screenings first, then rounds in turns. A pure function of the results, so that the same
/// samples lead to the same winner, on a device as in a simulation.
/// \param round  counts from 0
/// \param entrants  most promising first
/// \returns nothing when the search is over
[[nodiscard]] std::optional<Round> next_round(const Breadth& breadth, int round,
                                              std::span<const Entrant> entrants);

/// Number of leading configs that are worth waiting for: they are likely to win.
inline constexpr std::ptrdiff_t most_leaders = 4;

/// The share of a search's budget for screening; the rest is for the turns, which decide.
/// \param measured  number of configs measured so far
/// \param awaits_leader  whether one of the leading configs is still being compiled
[[nodiscard]] double share_of_screening(const Breadth& breadth, int measured, bool awaits_leader) noexcept;

/// Consecutive samples of one kernel in a turn.
inline constexpr int samples_a_turn = 3;

/// The number of consecutive launches in a sample of a kernel that takes `us`. The time of a short kernel depends on
/// its launch number modulo four, in a different way for each kernel: see docs/measuring.md.
[[nodiscard]] int launches_a_sample(double us) noexcept;

/// The factor on the number of samples for kernels that fast: rounding of their times matters more, and each sample
/// costs less.
[[nodiscard]] int times_as_many(double us) noexcept;

}  // namespace ce::tuner
