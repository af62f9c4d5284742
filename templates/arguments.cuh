// The one parameter of every kernel. What an operation does not use stays null.
#pragma once

namespace ce {

/// Cross entropy targets that were out of range.
struct TargetStatus {
  long long count;  ///< rows, of all calls
  /// The smallest of them since the last check, times 2^bad_target_bits, and its target, less least_bad_target: one word,
  /// so that the two belong together. The largest int64 when there are none.
  long long first;
};

/// Bits for a target that is out of range, and the targets that they hold; beyond, the nearest of these stands for it.
[[maybe_unused]] constexpr int bad_target_bits = 24;
[[maybe_unused]] constexpr long long least_bad_target = -(1ll << 23), most_bad_target = (1ll << 23) - 1;

/// Rows for which the final sum has another block, and the most blocks that it has: as many as an H200 runs at once.
[[maybe_unused]] constexpr long long rows_per_sum = 8192, most_sum_blocks = 256;

/// The most rows whose kernel, where there is a gradient, counts rows and adds up losses by itself.
[[maybe_unused]] constexpr long long most_fused_rows = 128;

/// The most options of cross entropy that have an amount, and the most outputs that it has beside its loss.
[[maybe_unused]] constexpr int most_amounts = 8, most_outputs = 8;

/// Scratch of a call, in device memory. The counters are zero between calls. Reductions `mean` and `sum` use
/// the losses, variants that hand rows out use the counters.
struct Workspace {
  long long finished;           ///< rows that are done; or blocks of a sum, and rows that they have counted
  long long next_row;           ///< rows that are taken, beyond the first of each cluster
  long long finished_clusters;  ///< that take no more rows
  long long count;              ///< rows whose target is not ignore_index
  float weight;                 ///< sum of the weights of those rows' targets
  float losses[1];              ///< [rows]; with z-loss those [rows]; three floats for each block of a sum
};

/// Most blocks that the variant `split` spreads its rows over, and the bytes that each leaves for the others.
[[maybe_unused]] constexpr long long most_split_blocks = 8192;
[[maybe_unused]] constexpr long long split_partial_bytes = 40;

/// The beginning of a rank's memory that every rank of its host can write to, where kernels of ranks tell each other of
/// their rows while they run (operations/exchange.cuh). exchange_layout.cuh says what lies behind it.
struct PeerExchange {
  int rank;
  unsigned calls;               ///< that have ended: this rank has read all that the others told it
  unsigned missing;             ///< 1 + a rank that did not come in time, whichever rank noticed; for good
  unsigned lag;                 ///< nanoseconds from telling of a row to hearing of it, at least
  unsigned long long patience;  ///< nanoseconds
  unsigned lag_of_cluster;      ///< more of `lag` for each cluster of the grid: both 0 but in trials
  unsigned reserved;            ///< 0
};

/// Where the rows of a matrix [rows, columns] lie, in elements: row r starts at
/// (r / batch_rows) batch + (r % batch_rows) row, and its elements are `column` apart.
struct Layout {
  long long row;
  long long batch;   ///< only with problem::batched
  long long column;  ///< only with problem::strided; else 1
};

struct Arguments {
  const void* input;   ///< logits; for the backward operations of softmax the gradient of their output
  const void* second;  ///< for the backward operations of softmax their output; target probabilities
  void* output;        ///< probabilities or their logarithms; or the gradient of the logits
  Layout input_layout, second_layout, output_layout;
  long long rows;
  long long batch_rows;  ///< rows of a batch; only with problem::batched

  const void* target;    ///< [rows]: class indices
  const void* weight;    ///< [columns]: of the classes
  const void* upstream;  ///< [rows] or [1]: gradient of the loss
  void* loss;            ///< [rows] for reduction none, else [1]
  /// Tensors of cross entropy beside the loss: problem::NAME_of(arguments) is each, with its type, as the table
  /// cross_entropy_outputs has them. Where the forward has left them, or the caller, they are read.
  void* outputs[most_outputs];
  const float* row_weight;        ///< [rows]
  const float* row_scale;         ///< [rows]: multiplies `scale`
  const float* divisor;           ///< [1]: of the mean
  const float* entropy_upstream;  ///< [rows]: gradients of the entropies
  const float* lse_upstream;      ///< [rows]: gradients of the logsumexps
  Workspace* workspace;
  void* partials;  ///< [most_split_blocks x split_partial_bytes], of the variant `split`; aligned to 16 bytes
  TargetStatus* status;
  const unsigned*
      statistics;  ///< [ranks, rows, statistics_words]: of each rank's shard of each row (shard.cuh)
  unsigned* statistics_out;      ///< [rows, statistics_words]: of this rank's shard, or of all classes
  long long statistics_words;    ///< of a row, as they lie
  long long ranks, first_class;  ///< how many shards there are, and where this rank's begins
  long long classes;             ///< of all shards; of scale_gradient the columns
  PeerExchange* exchange;        ///< of this rank; only of cross_entropy_exchange
  long long ignore_index;
  float amounts[most_amounts];  ///< of the options: problem::NAME_amount is the place of each
};

}  // namespace ce
