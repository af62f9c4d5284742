// The one parameter of every kernel. What an operation does not use stays null.
#pragma once

namespace ce {

/// Cross entropy targets that were out of range since the last check.
struct TargetStatus {
  long long count;      ///< rows
  long long first_row;  ///< the smallest of them; the largest int64 when there are none
};

/// Rows that one block of the final sum adds up.
[[maybe_unused]] constexpr long long rows_per_sum = 8192;

/// Scratch of the reductions `mean` and `sum`, in device memory. `count` and `finished` are zero between calls.
struct Workspace {
  long long count;     ///< rows whose target is not ignore_index
  long long finished;  ///< blocks of the final sum that are done
  float losses[1];     ///< [rows], and after them one sum for each block of the final sum
};

struct Arguments {
  const void* input;        ///< [rows, columns]: logits
  void* output;             ///< [rows, columns]: probabilities, or the gradient of the logits
  const void* target;       ///< [rows]: class indices
  void* loss;               ///< [rows] for reduction none, else [1]
  Workspace* workspace;
  TargetStatus* status;
  long long rows;
  long long input_stride;   ///< elements from one row to the next
  long long output_stride;
  long long ignore_index;
};

}  // namespace ce
