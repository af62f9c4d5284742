#pragma once
/// \file
/// Trials of cross entropy.

#include "tuner/verify/trial.hpp"
#include "tuner/verify/trial_values.hpp"

namespace ce::generator {

/// The kinds of rows in a trial.
enum class Rows : std::uint8_t {
  ordinary,
  extreme,
  confident,  ///< the probability of the target is next to 1
};

/// A trial with problem.rows rows.
[[nodiscard]] Trial cross_entropy_trial(const Problem& problem, Rows rows, Random& random);

}  // namespace ce::generator
