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
/// A call goes one of two ways (RankPlan). Either each rank runs CrossEntropyShard, an all-gather of its statistics,
/// CrossEntropyMerge and, for the gradient, CrossEntropyShardBackward, which needs nothing of other ranks. Or, where the
/// ranks reach each other's memory, all of it is one kernel, CrossEntropyExchange, that reads the logits once: those of
/// the ranks tell each other of each row while they run. A caller with collectives of its own may run these himself.
///
/// Numbers are those of one GPU with all classes, whatever the option, and the same bits on every rank: all ranks merge the
/// same partial results in the order of the ranks. Targets are indices among all classes. Padding is no class: a view of the
/// logits leaves it out.

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
  /// Enqueues on the stream: the `bytes` at `send` of every rank, in the order of the ranks, at `receive`, which holds
  /// size x bytes. On the host device it returns when that is done. All ranks call it in the same order.
  /// \returns null, or what went wrong, in words that stay until the next call
  const char* (*all_gather)(void* state, const void* send, void* receive, std::size_t bytes,
                            Stream stream) = nullptr;
  /// Its address stands for the group: that of another group has another one as long as a Context is used with both.
  void* state = nullptr;
  /// Optional: asked now and then while the host waits for the ranks. It waits for nothing itself.
  /// \returns null, or what went wrong among the ranks, in words that stay until the next call
  const char* (*failure)(void* state) = nullptr;
  /// Seconds, above 0, that the host waits for the ranks where it has to: where all make a kind of call for the first time,
  /// and in Context::check(communicator).
  double patience = 600;
};

/// The Communicator of an ncclComm_t, blocking or not, which must outlive it. NCCL is the copy that the process has loaded, else
/// libnccl.so.2. After a failure or a rank that did not come, ncclCommAbort() ends what the communicator still has on the GPU.
/// \throws Unsupported where there is none, DeviceError where NCCL says no
[[nodiscard]] CE_API Communicator nccl_communicator(void* comm);

/// How ranks learn of each other's classes. The same on every rank.
enum class RankPlan : std::uint8_t {
  automatic,  ///< `exchange` where every rank can, else `gather`
  gather,     ///< statistics, an all-gather between kernels, gradient: the logits are read twice
  /// One kernel: the logits are read once. It needs a gradient, GPUs of sm_90 that reach each other's memory (one
  /// host, NVLink or PCIe), rows of 2048 classes or so, and a first call that is not being captured. As with collectives
  /// on the GPU, a rank's kernel waits on its GPU until that of every rank has come.
  exchange,
};

/// "automatic", "gather", "exchange".
[[nodiscard]] CE_API std::string_view name(RankPlan plan) noexcept;

/// The part of the classes that this rank's logits are.
struct Shard {
  Communicator communicator;
  std::int64_t first_class = 0;  ///< of the logits' first column
  std::int64_t classes = 0;      ///< of all ranks together
  RankPlan plan = RankPlan::automatic;
  /// Compare every call of the ranks, not only the first of its kind, so that one that differs is an error on every rank.
  /// For finding mistakes: it waits for the GPU. The same on every rank; calls that are being captured are not compared.
  bool compare_every_call = false;
};

/// What one rank's logits say of each row.
struct CE_API CrossEntropyShard {
  static constexpr std::string_view name = "CrossEntropyShard";  ///< in messages

  CrossEntropy options;          ///< those of the whole; the same on every rank
  std::int64_t first_class = 0;  ///< of the logits' first column
  std::int64_t classes = 0;      ///< of all ranks together
  // What CrossEntropyMerge shall be able to write:
  bool lse = false;      ///< lse also of rows without a target
  bool argmax = false;   ///< argmax or hit
  bool entropy = false;  ///< entropy, or its gradient

  struct Tensors {
    ConstTensor logits;          ///< [rows, columns]: one class at least
    ConstTensor target;          ///< [rows], indices among all classes; or probabilities, as the logits
    ConstTensor weight = {};     ///< optional: [classes], of all of them
    Tensor statistics;           ///< [rows, words()], f32
    ConstTensor row_scale = {};  ///< optional: [rows] f32; as CrossEntropy has it
  };

  /// 32-bit words about each row.
  [[nodiscard]] std::int64_t words(DType logits, bool probabilities) const;

  friend bool operator==(const CrossEntropyShard&, const CrossEntropyShard&) = default;
};

/// Loss and other results of rows from the statistics of all ranks.
struct CE_API CrossEntropyMerge {
  static constexpr std::string_view name = "CrossEntropyMerge";  ///< in messages

  CrossEntropy options;
  std::int64_t classes = 0;  ///< of all ranks together
  int ranks = 1;
  DType logits = DType::f32;   ///< their dtype
  bool probabilities = false;  ///< targets were probabilities

  struct Tensors {
    ConstTensor
        statistics;  ///< [ranks x rows, words], f32: of CrossEntropyShards made for just these outputs, rank after rank
    ConstTensor target = {};      ///< [rows], indices among all classes; not with probabilities
    ConstTensor weight = {};      ///< optional: [classes]
    Tensor loss;                  ///< this and what follows as CrossEntropy has it
    Tensor z_loss_out = {};       ///< optional
    Tensor lse = {};              ///< optional, if the statistics are for it
    Tensor argmax = {};           ///< optional, if the statistics are for it
    Tensor hit = {};              ///< optional, if the statistics are for it
    Tensor logprob = {};          ///< optional
    Tensor entropy = {};          ///< optional, if the statistics are for it
    ConstTensor row_weight = {};  ///< optional
    ConstTensor row_scale = {};   ///< that of the statistics
    ConstTensor divisor = {};     ///< optional
    Tensor merged = {};           ///< optional: [rows, words], f32; what CrossEntropyShardBackward reads
  };

  friend bool operator==(const CrossEntropyMerge&, const CrossEntropyMerge&) = default;
};

/// Where kernels of ranks tell each other of rows: PeerMemory::view().
struct PeerView {
  void* memory = nullptr;
  std::int64_t bytes = 0;
  int ranks = 0;

  friend bool operator==(const PeerView&, const PeerView&) = default;
};

/// Loss and gradient of a rank's logits in one kernel, which tells the other ranks of its rows while it runs. All ranks run
/// it in the same order with the same PeerMemory, one call after the other. A rank that waits longer than the
/// memory's patience gives up: all ranks' rows are NaN from there on, and Context::check() throws DeviceError.
struct CE_API CrossEntropyExchange {
  static constexpr std::string_view name = "CrossEntropyExchange";  ///< in messages

  CrossEntropy options;
  std::int64_t first_class = 0;  ///< of the logits' first column
  std::int64_t classes = 0;      ///< of all ranks together
  PeerView peers = {};

  /// Logits, gradient, which is required, and probabilities of this rank's columns; weights and targets among all classes.
  /// No given_lse and no lse_low.
  using Tensors = CrossEntropy::Tensors;

  friend bool operator==(const CrossEntropyExchange&, const CrossEntropyExchange&) = default;
};

/// Memory of one rank that the kernels of all ranks on its host write to. Its Context must outlive it, and it the last
/// kernel of any rank that was given its view. So do Contexts whose calls with a Shard exchanged: ranks meet before one
/// of them ends. Calls on several streams are for the caller to order, replays of graphs included.
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

  /// Bytes that are enough for so many rows, of which each rank sends so many words (CrossEntropyShard::words()).
  [[nodiscard]] static std::int64_t bytes_for(int ranks, std::int64_t rows, std::int64_t words);

  PeerMemory(PeerMemory&&) noexcept;
  PeerMemory& operator=(PeerMemory&&) noexcept;
  ~PeerMemory();

  /// What the other ranks need to find this memory: description_bytes of them.
  [[nodiscard]] std::span<const std::byte> description() const noexcept;
  /// \param descriptions  of all ranks, in their order, this one's too
  /// \throws Unsupported naming the rank that cannot be reached from here, and why; InvalidArgument for descriptions that
  ///         are of other memory; then nothing has changed
  void connect(std::span<const std::byte> descriptions);
  /// \throws InvalidArgument before connect()
  [[nodiscard]] PeerView view() const;
  /// Tells all ranks that this one does not come to a call that they may wait in: they end as if it were missing.
  void give_up() noexcept;
  /// Whether a rank did not come in time, in words; waits for nothing.
  [[nodiscard]] std::optional<std::string> failure() const;

 private:
  friend class Context;
  friend class PeerMemories;
  friend class RankExchanges;
  struct CE_HIDDEN Impl;
  explicit PeerMemory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The gradient of one rank's logits.
struct CE_API CrossEntropyShardBackward {
  static constexpr std::string_view name = "CrossEntropyShardBackward";  ///< in messages

  CrossEntropy options;
  std::int64_t first_class = 0;  ///< of the logits' first column
  std::int64_t classes = 0;      ///< of all ranks together

  struct Tensors {
    ConstTensor logits;                 ///< [rows, columns]
    ConstTensor target;                 ///< as CrossEntropyShard's
    ConstTensor weight = {};            ///< optional: [classes]
    ConstTensor statistics;             ///< [rows, words], f32: what CrossEntropyMerge merged
    ConstTensor upstream = {};          ///< optional: [1] or [rows], f32 or the logits' dtype
    Tensor grad;                        ///< as the logits; may be the logits themselves
    ConstTensor row_weight = {};        ///< optional
    ConstTensor row_scale = {};         ///< that of the statistics
    ConstTensor divisor = {};           ///< optional
    ConstTensor entropy_upstream = {};  ///< optional, if the statistics are for the entropy
    ConstTensor lse_upstream = {};      ///< optional
  };

  friend bool operator==(const CrossEntropyShardBackward&, const CrossEntropyShardBackward&) = default;
};

}  // namespace ce
