#pragma once
/// \file
/// Why a config won, and how sure that is.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/measurement.hpp"
#include "cli/analysis/bootstrap.hpp"
#include "generator/problem.hpp"
#include "tuner/decide.hpp"

namespace ce::tuner {

/// Resamplings of each finalist, and the share of them that its interval covers.
inline constexpr int resamplings = 2000;
inline constexpr double confidence = 0.95;

/// A config of the stage that decided.
struct Finalist {
  Candidate candidate;
  double behind = 0;  ///< its median over the winner's, less 1
  Interval interval;  ///< of `behind`, from resampling both
  bool tied = false;  ///< within `tie` of the fastest median
  /// Warps that a multiprocessor has room for, by registers, threads and dynamic shared memory; 0 where the
  /// registers are not known.
  int resident_warps = 0;

  /// Whether the samples leave open which of the two is the faster.
  [[nodiscard]] bool is_open() const noexcept { return interval.contains(0); }
};

/// What another value of an axis costs, all others held fixed: its time over that of the winner's value,
/// less 1.
struct AxisEffect {
  std::string axis, value, other;   ///< as configs write them; `value` is the winner's
  std::optional<double> at_winner;  ///< of the winner itself; nothing where that was not measured
  double median = 0;                ///< of all pairs of measured configs that differ in this alone
  int pairs = 0;
};

/// How much of a variant's space was looked at.
struct Coverage {
  std::string variant;
  int points = 0;      ///< of its template
  int configs = 0;     ///< of these, what constraints let through
  int tried = 0;       ///< of these, measured or rejected
  double best_us = 0;  ///< the smallest median of the highest stage, on the winner's rows; 0 for none
};

/// Of the winner's variant. Only times of one stage are compared.
[[nodiscard]] std::vector<AxisEffect> axis_effects(std::span<const cache::Measurement> measurements,
                                                   const Decision& decision);

struct Explanation {
  Decision decision;
  std::vector<Finalist> finalists;  ///< the winner first
  double fastest = 0;               ///< share of resamplings in which the winner has the smallest median
  double near_fastest = 0;          ///< and in which it is within `tie` of that
  std::string ties;                 ///< in words: who tied, and how that was broken
  std::vector<AxisEffect> effects;  ///< of the winner's variant
  std::vector<Coverage> coverage;   ///< of all variants that serve the problem; empty for an unknown device

  [[nodiscard]] int configs() const noexcept;
  [[nodiscard]] int tried() const noexcept;
};

/// \param measurements  all of one key
/// \returns nothing where no config was measured with today's templates
[[nodiscard]] std::optional<Explanation> explain(std::span<const cache::Measurement> measurements,
                                                 const cache::Key& key, const generator::Problem& problem);

}  // namespace ce::tuner
