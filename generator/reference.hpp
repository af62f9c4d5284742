#pragma once
/// \file
/// The operations in f64, as plainly as they can be written.

#include <cstdint>
#include <span>
#include <vector>

#include "ce/base/dtype.hpp"

namespace ce::generator {

/// exp(x - max) / sum over one row; all NaN where the row holds NaN, +infinity, or nothing but -infinity.
[[nodiscard]] std::vector<double> softmax_row(std::span<const double> logits);

struct CrossEntropyReference {
  std::vector<double> losses;    ///< [rows]
  double loss = 0;               ///< reduced by mean or sum; of no meaning for none
  std::vector<double> gradient;  ///< [rows, columns]
  std::int64_t bad_targets = 0;
  std::int64_t first_bad_row = 0;  ///< of no meaning where bad_targets is 0
};

/// \param logits  [rows, columns], dense
[[nodiscard]] CrossEntropyReference cross_entropy(std::span<const double> logits,
                                                  std::span<const std::int64_t> targets, std::int64_t columns,
                                                  std::int64_t ignore_index, Reduction reduction);

}  // namespace ce::generator
