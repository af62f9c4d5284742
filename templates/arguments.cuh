// The single parameter of every kernel. Members that an operation does not use stay null.
#pragma once

namespace ce {

/// Cross entropy targets that were out of range.
struct TargetStatus {
  long long count;  ///< number of rows, over all calls
  /// The smallest of these rows since the last check, times 2^bad_target_bits, plus its target minus least_bad_target:
  /// one word, so that both belong together. The largest int64 if there is none.
  long long first;
};

/// Bits for an out-of-range target, and the range of targets that fit; others are clamped to it.
[[maybe_unused]] constexpr int bad_target_bits = 24;
[[maybe_unused]] constexpr long long least_bad_target = -(1ll << 23), most_bad_target = (1ll << 23) - 1;

/// Rows for each block of the final sum, and its largest number of blocks: as many as an H200 runs at once.
[[maybe_unused]] constexpr long long rows_per_sum = 8192, most_sum_blocks = 256;

/// With a gradient, the kernel of at most this many rows counts them and adds up their losses itself.
[[maybe_unused]] constexpr long long most_fused_rows = 128;

/// Largest number of cross entropy's options with an amount, and of its outputs besides the loss.
[[maybe_unused]] constexpr int most_amounts = 8, most_outputs = 8;

/// Scratch memory of a call, in device memory. The counters are zero between calls. Reductions `mean` and `sum` use the
/// losses, and variants with a row queue use the counters.
struct Workspace {
  long long finished;  ///< finished rows; or finished blocks of a sum, and rows that they have counted
  long long next_row;  ///< rows taken from the queue, not counting the first of each cluster
  long long finished_clusters;  ///< clusters that take no more rows
  long long count;              ///< rows whose target is not ignore_index
  float weight;                 ///< sum of the weights of those rows' targets
  float losses[1];              ///< [rows]; with z-loss those [rows]; three floats for each block of a sum
};

/// Largest number of blocks over which the variant `split` spreads its rows, and the bytes that each writes for the
/// others.
[[maybe_unused]] constexpr long long most_split_blocks = 8192;
[[maybe_unused]] constexpr long long split_partial_bytes = 40;

/// The head of a rank's memory that every rank of its host can write to. Through this memory, kernels of ranks exchange
/// statistics of their rows while they run (operations/exchange.cuh). exchange_layout.cuh defines the rest.
struct PeerExchange {
  int rank;
  unsigned calls;               ///< number of finished calls: this rank has read all data of the others
  unsigned missing;             ///< 1 + a rank that did not come in time, whichever rank noticed; never reset
  unsigned lag;                 ///< minimum nanoseconds from sending a row to receiving it
  unsigned long long patience;  ///< nanoseconds
  unsigned lag_of_cluster;      ///< added to `lag` for each cluster of the grid; both are 0 except in trials
  unsigned reserved;            ///< 0
};

/// The layout of a matrix [rows, columns], in elements: row r starts at (r / batch_rows) batch + (r % batch_rows) row,
/// and its elements are `column` apart.
struct Layout {
  long long row;
  long long batch;   ///< used with problem::batched
  long long column;  ///< used with problem::strided; else 1
};

struct Arguments {
  const void* input;   ///< logits; for the backward of softmax the gradient of its output
  const void* second;  ///< for the backward of softmax its output; target probabilities
  void* output;        ///< probabilities or their logarithms; or the gradient of the logits
  Layout input_layout, second_layout, output_layout;
  long long rows;
  long long batch_rows;  ///< rows of a batch; used with problem::batched

  const void* target;    ///< [rows]: class indices
  const void* weight;    ///< [columns]: weights of the classes
  const void* upstream;  ///< [rows] or [1]: gradient of the loss
  void* loss;            ///< [rows] for reduction none, else [1]
  /// Tensors of cross entropy besides the loss. problem::NAME_of(arguments) returns each with its type, as defined by
  /// the table cross_entropy_outputs. They are read if the forward or the caller provides them.
  void* outputs[most_outputs];
  const float* row_weight;        ///< [rows]
  const float* row_scale;         ///< [rows]: multiplies `scale`
  const float* divisor;           ///< [1]: divisor of the mean
  const float* entropy_upstream;  ///< [rows]: gradients of the entropies
  const float* lse_upstream;      ///< [rows]: gradients of the logsumexps
  Workspace* workspace;
  void* partials;  ///< [most_split_blocks x split_partial_bytes], of the variant `split`; aligned to 16 bytes
  TargetStatus* status;
  const unsigned* statistics;  ///< [ranks, rows, statistics_words]: statistics of all shards (shard.cuh)
  unsigned* statistics_out;  ///< [rows, statistics_words]: statistics of this rank's shard, or of all classes
  long long statistics_words;    ///< words of a row in memory
  long long ranks, first_class;  ///< number of shards, and the first class of this rank's shard
  long long classes;             ///< number of classes in all shards; for scale_gradient the columns
  PeerExchange* exchange;        ///< this rank's; only for cross_entropy_exchange
  long long ignore_index;
  float amounts[most_amounts];  ///< amounts of the options, at index problem::NAME_amount
};

}  // namespace ce
