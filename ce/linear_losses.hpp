#pragma once
/// \file
/// Runs LinearCrossEntropy: chunks of tokens, products, and the kernels of cross entropy between them. Not installed.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <tuple>

#include "cache/cache.hpp"
#include "ce/context.hpp"
#include "ce/linear_call.hpp"
#include "ce/linear_chunks.hpp"
#include "ce/linear_plan.hpp"
#include "ce/linear_workspaces.hpp"
#include "runtime/device.hpp"

namespace ce {

class LinearLosses {
 public:
  /// \param tunes      races new products and chunks; else uses the database's results, or the library's first algorithm
  ///                   and the largest chunks
  /// \param seconds    limit of each race; 0: none
  /// \param any_order  products may add up their sums in any order: other bits each time
  LinearLosses(runtime::Device& device, cache::Cache& cache, bool tunes, double seconds,
               bool any_order = false)
      : parts_(device, cache, tunes, seconds, any_order),
        plans_(device, cache, any_order, seconds),
        workspaces_(device) {}

  [[nodiscard]] LinearSchedule schedule(const LinearCrossEntropy& operation,
                                        const LinearCrossEntropy::Tensors& tensors);
  [[nodiscard]] LinearSchedule schedule(const LinearCrossEntropy& operation,
                                        const LinearCrossEntropy::Tensors& tensors, const Shard& shard);
  /// \param context  the device's Context; runs the kernels of cross entropy
  const Choice& run(Context& context, const LinearCrossEntropy& operation,
                    const LinearCrossEntropy::Tensors& tensors, Stream stream);
  /// The overload for ranks that share the classes.
  void run(Context& context, const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
           const Shard& shard, Stream stream);
  /// Number of compiler runs.
  [[nodiscard]] int compiled() const noexcept { return parts_.kernels.compiled(); }

 private:
  [[nodiscard]] LinearShape shape(const LinearCrossEntropy& operation,
                                  const LinearCrossEntropy::Tensors& tensors);
  /// Null if no kernel turns out to serve it without logits, and if ranks share the classes.
  const Choice* run(Context& context, const LinearCrossEntropy& operation,
                    const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape, const Shard* shard,
                    Stream stream);
  /// Checks that ranks agree on the chunks, as they would otherwise wait for chunks that others do not have. Once for
  /// each such call of a group.
  void require_same_chunks(const Communicator& communicator, const LinearShape& shape, Stream stream);
  [[nodiscard]] LinearSchedule schedule(const LinearShape& shape);
  /// Races the plans that fit into the memory on the whole call, and stores the winner in the database. Their outputs
  /// are overwritten by the call. Enqueued work has ended before, and the race when this returns.
  void race(Context& context, const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
            const LinearShape& shape, std::byte* workspace, std::int64_t bytes, Stream stream);
  void forget_targets_of_trials(Context& context);
  /// A stream that no caller uses, so that targets out of range are counted separately.
  [[nodiscard]] Stream trial_stream();

  LinearParts parts_;
  LinearPlans plans_;
  LinearWorkspaces workspaces_;
  std::mutex mutex_;  ///< guards the members below
  /// Calls that the ranks of a communicator have agreed on.
  std::set<std::tuple<const void*, int, int, LinearShape>> of_ranks_;
};

}  // namespace ce
