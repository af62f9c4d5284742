#pragma once
/// \file
/// Cross entropy where ranks share the classes (vocabulary parallelism): each rank holds the logits of some neighbouring
/// classes, its shard, of the same rows.
///
/// \code
/// ce::run(ce::CrossEntropy{.label_smoothing = 0.1f}, {.logits = shard, .target = target, .loss = l, .grad = shard},
///         ce::Shard{.communicator = ce::nccl_communicator(comm), .first_class = rank * n, .classes = total}, stream);
/// \endcode
///
/// A call can go two ways (RankPlan). Either each rank runs CrossEntropyShard, an all-gather of its statistics,
/// CrossEntropyMerge and, for the gradient, CrossEntropyShardBackward, which needs nothing from other ranks. Or, if the
/// ranks reach each other's memory, one kernel does all of it: CrossEntropyExchange, which reads the logits once; the
/// kernels of the ranks send each other statistics of each row while they run. Callers with their own collectives may
/// run these operations themselves.
///
/// The results are those of one GPU with all classes, for every option, and bitwise equal on every rank: all ranks
/// merge the same partial results in the order of the ranks. Targets are indices among all classes. Padding columns are
/// no classes: pass a view of the logits without them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ce/operations.hpp"

namespace ce {

/// Ranks that can gather memory from each other.
struct Communicator {
  int rank = 0;
  int size = 1;
  /// Enqueues an all-gather on the stream: the `bytes` at `send` of every rank, in the order of the ranks, go to
  /// `receive`, which holds size x bytes. On the host device it returns when that is done. All ranks call it in the
  /// same order.
  /// \returns null, or an error message that is valid until the next call
  const char* (*all_gather)(void* state, const void* send, void* receive, std::size_t bytes,
                            Stream stream) = nullptr;
  /// Its address identifies the group: another group must have another address as long as a Context is used with both.
  void* state = nullptr;
  /// Optional: polled while the host waits for the ranks. It must not wait itself.
  /// \returns null, or a message about a failure among the ranks that is valid until the next call
  const char* (*failure)(void* state) = nullptr;
  /// Seconds, above 0, that the host waits for the ranks when it must: the first time that all ranks make a kind of
  /// call, and in Context::check(communicator).
  double patience = 600;
};

/// The Communicator of an ncclComm_t, blocking or not, which must outlive it. NCCL is the copy that the process has
/// loaded, else libnccl.so.2. After a failure, or if a rank did not come, ncclCommAbort() ends work of the communicator
/// that is still on the GPU.
/// \throws Unsupported if NCCL is not found, DeviceError if NCCL reports an error
[[nodiscard]] CE_API Communicator nccl_communicator(void* comm);

/// How ranks exchange statistics of their classes. It must be equal on every rank.
enum class RankPlan : std::uint8_t {
  automatic,  ///< `exchange` if every rank can, else `gather`
  gather,     ///< statistics, an all-gather between kernels, gradient: the logits are read twice
  /// One kernel: the logits are read once. It needs a gradient, GPUs of sm_90 that reach each other's memory (one host,
  /// NVLink or PCIe), rows of 2048 classes or so, and a first call that is not being captured. As with collectives on
  /// the GPU, a rank's kernel waits on its GPU until the kernels of all ranks have started.
  exchange,
};

/// "automatic", "gather", "exchange".
[[nodiscard]] CE_API std::string_view name(RankPlan plan) noexcept;

/// The range of classes that this rank's logits cover.
struct Shard {
  Communicator communicator;
  std::int64_t first_class = 0;  ///< class of the logits' first column
  std::int64_t classes = 0;      ///< number of classes on all ranks
  RankPlan plan = RankPlan::automatic;
  /// Compares every call of the ranks, not only the first of its kind, so that a call that differs is an error on every
  /// rank. For debugging: it waits for the GPU. It must be equal on every rank; calls that are being captured are not
  /// compared.
  bool compare_every_call = false;
};

/// Computes the statistics of one rank's logits, row by row.
struct CE_API CrossEntropyShard {
  static constexpr std::string_view name = "CrossEntropyShard";  ///< in error messages

  CrossEntropy options;          ///< options of cross entropy; the same on every rank
  std::int64_t first_class = 0;  ///< class of the logits' first column
  std::int64_t classes = 0;      ///< number of classes on all ranks
  // Outputs that CrossEntropyMerge must be able to write:
  bool lse = false;      ///< lse also of rows without a target
  bool argmax = false;   ///< argmax or hit
  bool entropy = false;  ///< entropy, or its gradient

  struct Tensors {
    ConstTensor logits;          ///< [rows, columns]: one class at least
    ConstTensor target;          ///< [rows], indices among all classes; or probabilities, as the logits
    ConstTensor weight = {};     ///< optional: [classes], for the classes of all ranks
    Tensor statistics;           ///< [rows, words()], f32
    ConstTensor row_scale = {};  ///< optional: [rows] f32; as in CrossEntropy
  };

  /// Number of 32-bit words for each row.
  [[nodiscard]] std::int64_t words(DType logits, bool probabilities) const;

  friend bool operator==(const CrossEntropyShard&, const CrossEntropyShard&) = default;
};

/// Computes loss and other results of rows from the statistics of all ranks.
struct CE_API CrossEntropyMerge {
  static constexpr std::string_view name = "CrossEntropyMerge";  ///< in error messages

  CrossEntropy options;
  std::int64_t classes = 0;  ///< number of classes on all ranks
  int ranks = 1;
  DType logits = DType::f32;   ///< dtype of the logits
  bool probabilities = false;  ///< targets were probabilities

  struct Tensors {
    ConstTensor
        statistics;  ///< [ranks x rows, words], f32, rank by rank: from CrossEntropyShards with exactly these outputs
    ConstTensor target = {};      ///< [rows], indices among all classes; not with probabilities
    ConstTensor weight = {};      ///< optional: [classes]
    Tensor loss;                  ///< this tensor and those below are as in CrossEntropy
    Tensor z_loss_out = {};       ///< optional
    Tensor lse = {};              ///< optional, if the statistics include it
    Tensor argmax = {};           ///< optional, if the statistics include it
    Tensor hit = {};              ///< optional, if the statistics include it
    Tensor logprob = {};          ///< optional
    Tensor entropy = {};          ///< optional, if the statistics include it
    ConstTensor row_weight = {};  ///< optional
    ConstTensor row_scale = {};   ///< that of the statistics
    ConstTensor divisor = {};     ///< optional
    Tensor merged = {};           ///< optional: [rows, words], f32; what CrossEntropyShardBackward reads
  };

  friend bool operator==(const CrossEntropyMerge&, const CrossEntropyMerge&) = default;
};

/// Memory through which kernels of ranks exchange rows: PeerMemory::view().
struct PeerView {
  void* memory = nullptr;
  std::int64_t bytes = 0;
  int ranks = 0;

  friend bool operator==(const PeerView&, const PeerView&) = default;
};

/// Computes loss and gradient of a rank's logits in one kernel, which exchanges statistics of its rows with the other
/// ranks while it runs. All ranks run it in the same order with the same PeerMemory, one call after the other. A rank
/// that waits longer than the memory's patience gives up: from that row on, the rows of all ranks are NaN, and
/// Context::check() throws DeviceError.
struct CE_API CrossEntropyExchange {
  static constexpr std::string_view name = "CrossEntropyExchange";  ///< in error messages

  CrossEntropy options;
  std::int64_t first_class = 0;  ///< class of the logits' first column
  std::int64_t classes = 0;      ///< number of classes on all ranks
  PeerView peers = {};

  /// Logits, the gradient (required) and probabilities cover this rank's columns; weights and targets cover all
  /// classes. given_lse and lse_low must not be given.
  using Tensors = CrossEntropy::Tensors;

  friend bool operator==(const CrossEntropyExchange&, const CrossEntropyExchange&) = default;
};

/// Memory of one rank that the kernels of all ranks on its host write to. Its Context must outlive it, and it must
/// outlive the last kernel of any rank that uses its view. Contexts whose calls with a Shard exchanged must also
/// outlive such kernels: ranks synchronise before one of them destroys its Context. The caller orders calls on several
/// streams, including replays of graphs.
///
/// \code
/// ce::PeerMemory memory = context.peer_memory({.rank = rank, .ranks = n, .bytes = ce::PeerMemory::bytes_for(n, rows, words)});
/// all = gather memory.description() of every rank, in their order, by whatever means
/// memory.connect(all);
/// ... a barrier of all ranks ...
/// context.run(ce::CrossEntropyExchange{..., .peers = memory.view()}, {...}, stream);
/// \endcode
class CE_API PeerMemory {
 public:
  struct Options {
    int rank = 0;
    int ranks = 1;
    std::int64_t bytes = 0;  ///< bytes_for(), the same on every rank
    double patience = 600;   ///< seconds that a kernel waits for another rank, above 0
  };
  static constexpr std::size_t description_bytes = 128;

  /// Bytes that suffice for `rows` rows, of which each rank sends `words` words (CrossEntropyShard::words()).
  [[nodiscard]] static std::int64_t bytes_for(int ranks, std::int64_t rows, std::int64_t words);

  PeerMemory(PeerMemory&&) noexcept;
  PeerMemory& operator=(PeerMemory&&) noexcept;
  ~PeerMemory();

  /// Describes this memory to the other ranks, in description_bytes bytes.
  [[nodiscard]] std::span<const std::byte> description() const noexcept;
  /// \param descriptions  those of all ranks in their order, including this one's
  /// \throws Unsupported naming the rank that cannot be reached from here, and why; InvalidArgument for descriptions
  /// that
  ///                 belong to other memory; in both cases nothing has changed
  void connect(std::span<const std::byte> descriptions);
  /// \throws InvalidArgument before connect()
  [[nodiscard]] PeerView view() const;
  /// Tells all ranks that this rank will not take part in a call that they may be waiting in: they end as if it were
  /// missing.
  void give_up() noexcept;
  /// A message if a rank did not come in time, else empty; waits for nothing.
  [[nodiscard]] std::optional<std::string> failure() const;

 private:
  friend class Context;
  friend class PeerMemories;
  friend class RankExchanges;
  struct CE_HIDDEN Impl;
  explicit PeerMemory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Computes the gradient of one rank's logits.
struct CE_API CrossEntropyShardBackward {
  static constexpr std::string_view name = "CrossEntropyShardBackward";  ///< in error messages

  CrossEntropy options;
  std::int64_t first_class = 0;  ///< class of the logits' first column
  std::int64_t classes = 0;      ///< number of classes on all ranks

  struct Tensors {
    ConstTensor logits;                 ///< [rows, columns]
    ConstTensor target;                 ///< as CrossEntropyShard's
    ConstTensor weight = {};            ///< optional: [classes]
    ConstTensor statistics;             ///< [rows, words], f32: `merged` of CrossEntropyMerge
    ConstTensor upstream = {};          ///< optional: [1] or [rows], f32 or the logits' dtype
    Tensor grad;                        ///< as the logits; may be the logits themselves
    ConstTensor row_weight = {};        ///< optional
    ConstTensor row_scale = {};         ///< that of the statistics
    ConstTensor divisor = {};           ///< optional
    ConstTensor entropy_upstream = {};  ///< optional, if the statistics include the entropy
    ConstTensor lse_upstream = {};      ///< optional
  };

  friend bool operator==(const CrossEntropyShardBackward&, const CrossEntropyShardBackward&) = default;
};

}  // namespace ce
