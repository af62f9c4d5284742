#pragma once
/// \file
/// Trials of cross entropy.

#include "tuner/verify/trial.hpp"
#include "tuner/verify/trial_values.hpp"

namespace ce::generator {

/// What rows a trial has.
enum class Rows : std::uint8_t {
  ordinary,
  extreme,
  confident,  ///< the probability of the target is next to 1
};

/// At problem.rows rows.
[[nodiscard]] Trial cross_entropy_trial(const Problem& problem, Rows rows, Random& random);

}  // namespace ce::generator
