#pragma once
/// \file
/// What a search looks at next.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ce::tuner {

enum class Strategy : std::uint8_t {
  halving,     ///< the most promising structures, then cache modifiers of the best, then fewer and fewer
  exhaustive,  ///< every config, then fewer and fewer
  random,      ///< configs drawn at random, then fewer and fewer
};

[[nodiscard]] std::string_view name(Strategy strategy) noexcept;
/// Nothing for a text that names none.
[[nodiscard]] std::optional<Strategy> parse_strategy(std::string_view text) noexcept;

/// More samples of those in front that lie close together.
struct PlayOff {
  int samples = 0;    ///< 0 for none
  double margin = 0;  ///< relative, of a median over that of the first
  int most = 0;       ///< of them
  double error = 0;   ///< none where the median of the first is known better than that; see Entrant::error
};

/// How far a search goes.
struct Breadth {
  Strategy strategy = Strategy::halving;
  int structures = 24;  ///< of halving: looked at with one choice of cache modifiers each
  int refined = 7;      ///< of halving: the best of these, with more choices
  int modifiers = 5;  ///< of halving: the most promising choices that those have then, every load among them
  int drawn = 40;     ///< of random
  int most_configs = 0;   ///< never look at more than this; 0 for no bound
  int least_configs = 8;  ///< a search that has measured fewer may take twice its budget
  int screening_samples = 3;
  int semifinalists = 12, semifinal_samples = 6;
  int finalists = 8, final_samples = 15;
  PlayOff play_off{45, 0.015, 8}, decider{135, 0.0075, 3, 0.0015};
  std::uint64_t seed = 1;  ///< of random
};

/// One config as a search sees it.
struct Entrant {
  std::size_t structure = 0;  ///< shared by configs that differ in their cache modifiers alone
  int load = 0;               ///< that of its cache modifiers
  double median_us = 0;       ///< of its samples in turns, else of its screening; 0 before that
  double error = 0;           ///< of that median, relative, where it is of samples in turns
  bool in_turns = false;      ///< has been in a round of turns
  bool out = false;           ///< quarantined

  [[nodiscard]] bool is_new() const noexcept { return median_us == 0 && !out; }
};

/// What to measure, in this order.
struct Round {
  std::string_view name;  ///< for people
  std::vector<std::size_t> entrants;
  int samples = 0;        ///< that each has at the end of the round, of its kind; see times_as_many()
  bool in_turns = false;  ///< few samples of each at a time, so that drift meets all alike: these decide
};

/// The next round of a search: screening first, then rounds in turns. A function of what was found alone, so
/// that the same samples lead to the same winner, on a device as in a simulation.
/// \param round  counts from 0
/// \param entrants  most promising first
/// \returns nothing when the search is over
[[nodiscard]] std::optional<Round> next_round(const Breadth& breadth, int round,
                                              std::span<const Entrant> entrants);

/// The first of the configs that a search compiles: what is likely to win is worth some turns.
inline constexpr std::ptrdiff_t most_leaders = 4;

/// The share of a search's budget for screening; what is left is for the turns, which decide.
/// \param measured  configs so far
/// \param awaits_leader  one of the first is still being compiled
[[nodiscard]] double share_of_screening(const Breadth& breadth, int measured, bool awaits_leader) noexcept;

/// Samples of one kernel before it is the next one's turn.
inline constexpr int samples_a_turn = 3;

/// How many launches in a row a sample of kernels that fast is the mean of. Which of four launches of its stream a short
/// kernel is moves its time, and that of another kernel otherwise: see docs/measuring.md.
[[nodiscard]] int launches_a_sample(double us) noexcept;

/// How many times as many samples are taken of kernels that fast: what rounds their times off weighs more, and each
/// costs less.
[[nodiscard]] int times_as_many(double us) noexcept;

}  // namespace ce::tuner
