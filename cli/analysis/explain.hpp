#pragma once
/// \file
/// Explains why a config won, and how certain that is.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/measurement.hpp"
#include "cli/analysis/bootstrap.hpp"
#include "generator/problem.hpp"
#include "tuner/decide.hpp"

namespace ce::tuner {

/// Number of resamplings of each finalist, and the share of them that an interval covers.
inline constexpr int resamplings = 2000;
inline constexpr double confidence = 0.95;

/// A config in the deciding stage.
struct Finalist {
  Candidate candidate;
  double behind = 0;  ///< its median over the winner's, minus 1
  Interval interval;  ///< of `behind`, from resampling both
  bool tied = false;  ///< within `tie` of the fastest median
  /// Warps that fit a multiprocessor, by registers, threads and dynamic shared memory; 0 if the registers are not
  /// known.
  int resident_warps = 0;

  /// Whether the samples do not show which of the two is faster.
  [[nodiscard]] bool is_open() const noexcept { return interval.contains(0); }
};

/// The cost of another value of an axis, with all others fixed: its time over that of the winner's value, minus 1.
struct AxisEffect {
  std::string axis, value, other;   ///< as in config texts; `value` is the winner's
  std::optional<double> at_winner;  ///< for the winner itself; nothing if that was not measured
  double median = 0;                ///< over all pairs of measured configs that differ only in this axis
  int pairs = 0;
};

/// The share of a variant's space that was tried.
struct Coverage {
  std::string variant;
  int points = 0;      ///< in its template
  int configs = 0;     ///< number of these that satisfy constraints
  int tried = 0;       ///< number of these that were measured or rejected
  double best_us = 0;  ///< the smallest median in the highest stage, with the winner's rows; 0 for none
};

/// The times of the winner's variant. Only times of one stage are compared.
[[nodiscard]] std::vector<AxisEffect> axis_effects(std::span<const cache::Measurement> measurements,
                                                   const Decision& decision);

struct Explanation {
  Decision decision;
  std::vector<Finalist> finalists;  ///< starts with the winner
  double fastest = 0;               ///< share of resamplings in which the winner has the smallest median
  double near_fastest = 0;          ///< share in which it is within `tie` of the smallest
  std::string ties;                 ///< in words: which configs tied, and how the tie was broken
  std::vector<AxisEffect> effects;  ///< for the winner's variant
  std::vector<Coverage> coverage;   ///< of all variants that serve the problem; empty for an unknown device

  [[nodiscard]] int configs() const noexcept;
  [[nodiscard]] int tried() const noexcept;
};

/// \param measurements  all measurements of one key
/// \returns nothing if no config was measured with current templates
[[nodiscard]] std::optional<Explanation> explain(std::span<const cache::Measurement> measurements,
                                                 const cache::Key& key, const generator::Problem& problem);

}  // namespace ce::tuner
