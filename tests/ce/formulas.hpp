#pragma once
/// \file
/// Cross entropy with all its options in f64, as its description has it.

#include <cstdint>
#include <limits>
#include <vector>

#include "ce/operations.hpp"

namespace ce::test {

inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// What a call is given.
struct LossInput {
  CrossEntropy operation;
  std::int64_t rows = 0, columns = 0;
  std::vector<double> logits;         ///< [rows, columns]
  std::vector<std::int64_t> target;   ///< [rows]; empty where there are probabilities
  std::vector<double> probabilities;  ///< [rows, columns]
  std::vector<double> weight;         ///< [columns]; empty for none
  std::vector<double> upstream;       ///< [1] or [rows]; empty for none
};

/// What it must write.
struct LossOutput {
  std::vector<double> loss, z_loss;  ///< [rows] or [1]
  std::vector<double> grad;          ///< [rows, columns]
  std::vector<double> lse;
  std::vector<std::int64_t> argmax, hit;
};

[[nodiscard]] LossOutput cross_entropy(const LossInput& input);

}  // namespace ce::test
