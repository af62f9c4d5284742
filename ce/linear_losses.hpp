#pragma once
/// \file
/// Runs LinearCrossEntropy: chunks of tokens, products, and the kernels of cross entropy between them. Not installed.

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "cache/cache.hpp"
#include "ce/context.hpp"
#include "ce/linear_chunks.hpp"
#include "ce/linear_kernels.hpp"
#include "ce/linear_schedule.hpp"
#include "ce/linear_statistics.hpp"
#include "runtime/device.hpp"
#include "tuner/matmul_race.hpp"

namespace ce {

/// Scratch memory for each stream, as much as its largest call needs.
class LinearWorkspaces {
 public:
  explicit LinearWorkspaces(runtime::Device& device) : device_(device) {}

  /// The thread that holds it is the only one that enqueues calls with this memory.
  class Lent {
   public:
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

   private:
    friend class LinearWorkspaces;
    std::unique_lock<std::mutex> lock_;
    std::byte* data_ = nullptr;
  };
  /// \param group  a rank's communicator: ranks in threads wait for each other while they hold their memory
  /// \throws OutOfMemory, Unsupported if the stream is captured and has no such memory yet
  [[nodiscard]] Lent get(Stream stream, std::int64_t bytes, const void* group = nullptr);

 private:
  struct Key {
    Stream stream;
    const void* thread;  ///< for streams that differ between threads
    const void* group;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Entry {
    std::mutex mutex;  ///< guards the members below
    runtime::Buffer buffer;
    std::vector<runtime::Buffer> captured;  ///< too small now, but graphs may use them
    bool in_graphs = false;
  };

  runtime::Device& device_;
  std::mutex mutex_;  ///< guards the members below
  std::map<Key, std::unique_ptr<Entry>> entries_;
};

class LinearLosses {
 public:
  /// \param tunes      races new products and chunks; else uses the database's results, or the library's first
  /// algorithm
  ///                                     and the largest chunks
  /// \param seconds    limit of each race; 0: none
  /// \param any_order  products may add up their sums in any order: other bits each time
  LinearLosses(runtime::Device& device, cache::Cache& cache, bool tunes, double seconds,
               bool any_order = false)
      : device_(device),
        tunes_(tunes),
        seconds_(seconds),
        any_order_(any_order),
        kernels_(device, cache),
        forward_(device, cache, kernels_, seconds),
        plans_(device, cache, any_order, seconds),
        workspaces_(device),
        products_(device, cache, seconds) {}

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
  [[nodiscard]] int compiled() const noexcept { return kernels_.compiled(); }

 private:
  friend class LinearCall;
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

  runtime::Device& device_;
  const bool tunes_;
  const double seconds_;
  const bool any_order_;
  LinearKernels kernels_;
  LinearForward forward_;
  LinearPlans plans_;
  LinearWorkspaces workspaces_;
  tuner::MatmulChooser products_;
  std::mutex mutex_;  ///< guards the members below
  /// Calls that the ranks of a communicator have agreed on.
  std::set<std::tuple<const void*, int, int, LinearShape>> of_ranks_;
};

}  // namespace ce
