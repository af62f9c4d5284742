#pragma once
/// \file
/// One call of a linear layer's loss: its chunks, and the products and kernels of each. Not installed.

#include <cstddef>
#include <cstdint>

#include "cache/cache.hpp"
#include "ce/context.hpp"
#include "ce/linear_kernels.hpp"
#include "ce/linear_operands.hpp"
#include "ce/linear_plan.hpp"
#include "ce/linear_statistics.hpp"
#include "runtime/device.hpp"
#include "tuner/matmul_race.hpp"

namespace ce {

/// What all calls on a device share. Thread-safe.
struct LinearParts {
  LinearParts(runtime::Device& its_device, cache::Cache& cache, bool its_tunes, double limit,
              bool its_any_order)
      : device(its_device),
        tunes(its_tunes),
        seconds(limit),
        any_order(its_any_order),
        kernels(device, cache),
        forward(device, cache, kernels, seconds),
        products(device, cache, seconds) {}

  runtime::Device& device;
  const bool tunes;      ///< races new products, tiles and chunks
  const double seconds;  ///< limit of each race; 0: none
  const bool any_order;  ///< products may add up their sums in any order
  LinearKernels kernels;
  LinearForward forward;
  tuner::MatmulChooser products;
};

class LinearCall {
 public:
  /// All references must outlive this object.
  /// \param shard  given if ranks share the classes
  LinearCall(LinearParts& parts, Context& context, const LinearCrossEntropy& operation,
             const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape, const LinearPlan& plan,
             const Shard* shard, std::byte* workspace, Stream stream)
      : parts_(parts),
        context_(context),
        operation_(operation),
        shape_(shape),
        plan_(plan),
        shard_(shard),
        stream_(stream),
        operands_(parts.kernels, operation, tensors, shape, plan, workspace, parts.any_order) {}

  /// Checks the arguments of a chunk's losses before anything is written. The calls of ranks check their own.
  /// \throws InvalidArgument
  void check();
  /// Null if no kernel turns out to serve it without logits, and if ranks share the classes.
  const Choice* run();
  /// Enqueues all chunks with the results of tuning so far.
  const Choice* enqueue();
  /// Whether later calls find their kernels chosen.
  [[nodiscard]] bool has_chosen_kernels() const noexcept { return has_chosen_kernels_; }

 private:
  const Choice* run_without_tokens();
  const Choice* run_without_logits();

  /// Whether a chunk's losses are made of statistics, not of logits.
  [[nodiscard]] bool merges() const noexcept { return shape_.statistics || operands_.exponentials(); }
  /// The problem of the chunk's losses. \throws InvalidArgument
  /// \param splits  messages about each row, where statistics are merged
  [[nodiscard]] generator::Problem problem_of_losses(int splits) const;
  /// Refuses a call before anything is enqueued if the policy is frozen and the losses of a chunk have no winner. Ranks
  /// that share the classes decide together, chunk by chunk.
  /// \throws NotTuned
  void require_winners();

  [[nodiscard]] bool is_captured() const { return stream_ != nullptr && parts_.device.capturing(stream_); }
  /// Races the ways to run the kernel of statistics, unless the result is known. Returns false if none is right.
  [[nodiscard]] bool tune_statistics();
  /// Races the algorithms of new products, in the memory of the first chunk, which the call overwrites later. Enqueued
  /// work has ended before, and the races when this returns.
  void tune_products();

  /// Enqueues work that all chunks share.
  void prepare();
  /// Enqueues the work after the last chunk.
  void finish();

  /// Finds the tokens that count, and gathers the hidden states of the chunk, if ignored tokens are left out.
  void gather_chunk(Stream stream);
  void make(const LinearProduct& product);
  const Choice* run_cross_entropy(const CrossEntropy::Tensors& tensors);

  /// The way to run the kernel of statistics on the chunk.
  [[nodiscard]] LinearWay way() const { return parts_.forward.known(operands_.shape()).way; }
  /// Runs the kernel.
  void leave_statistics(const LinearWay& way, Stream stream);
  /// Computes the chunk's statistics, and the losses from them.
  const Choice* take_statistics(const LinearWay& way);
  /// Computes the factors of exponentials from the kernel's results.
  void find_factors(const LinearWay& way, LinearExponentialsArguments arguments, Stream stream);
  void make_gradients_of_exponentials();
  void make_gradients_of_logits();

  LinearParts& parts_;
  Context& context_;
  const LinearCrossEntropy& operation_;
  const LinearShape& shape_;
  const LinearPlan& plan_;
  const Shard* const shard_;  ///< set if ranks share the classes
  const Stream stream_;
  LinearOperands operands_;
  bool has_chosen_kernels_ = true;
};

}  // namespace ce
