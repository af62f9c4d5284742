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
/// Numbers are those of one GPU with all classes, whatever the option, and the same bits on every rank: all ranks merge the
/// same partial results in the order of the ranks. Targets are indices among all classes. Padding is no class: a view of the
/// logits leaves it out.
///
/// run() with a Shard goes through three operations, which a caller with collectives of its own may run himself:
/// CrossEntropyShard on every rank, an all-gather of its statistics, CrossEntropyMerge, and for the gradient
/// CrossEntropyShardBackward, which needs nothing of other ranks.

#include <cstddef>
#include <cstdint>
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
};

/// Of an ncclComm_t, which must outlive it. NCCL is the copy that the process has loaded, else libnccl.so.2.
/// \throws Unsupported where there is none, DeviceError where NCCL says no
[[nodiscard]] CE_API Communicator nccl_communicator(void* comm);

/// The part of the classes that this rank's logits are.
struct Shard {
  Communicator communicator;
  std::int64_t first_class = 0;  ///< of the logits' first column
  std::int64_t classes = 0;      ///< of all ranks together
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
    ConstTensor logits;       ///< [rows, columns]: one class at least
    ConstTensor target;       ///< [rows], indices among all classes; or probabilities, as the logits
    ConstTensor weight = {};  ///< optional: [classes], of all of them
    Tensor statistics;        ///< [rows, words()], f32
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
    ConstTensor divisor = {};     ///< optional
    Tensor merged = {};           ///< optional: [rows, words], f32; what CrossEntropyShardBackward reads
  };

  friend bool operator==(const CrossEntropyMerge&, const CrossEntropyMerge&) = default;
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
    ConstTensor divisor = {};           ///< optional
    ConstTensor entropy_upstream = {};  ///< optional, if the statistics are for the entropy
    ConstTensor lse_upstream = {};      ///< optional
  };

  friend bool operator==(const CrossEntropyShardBackward&, const CrossEntropyShardBackward&) = default;
};

}  // namespace ce
