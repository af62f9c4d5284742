#pragma once
/// \file
/// Calls of LinearCrossEntropy: chunks of tokens, products, and the kernels of cross entropy between them. Not installed.

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

/// Scratch memory for each stream, as much as its largest call has needed.
class LinearWorkspaces {
 public:
  explicit LinearWorkspaces(runtime::Device& device) : device_(device) {}

  /// The thread that holds it is the only one to enqueue calls that use it.
  class Lent {
   public:
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

   private:
    friend class LinearWorkspaces;
    std::unique_lock<std::mutex> lock_;
    std::byte* data_ = nullptr;
  };
  /// \param group  a rank's communicator: ranks that are threads wait for each other while they hold their memory
  /// \throws OutOfMemory, Unsupported where the stream is captured and has no such memory yet
  [[nodiscard]] Lent get(Stream stream, std::int64_t bytes, const void* group = nullptr);

 private:
  struct Key {
    Stream stream;
    const void* thread;  ///< of a stream that each thread has its own of
    const void* group;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Entry {
    std::mutex mutex;  ///< guards the rest
    runtime::Buffer buffer;
    std::vector<runtime::Buffer> captured;  ///< outgrown, but graphs may point to them
    bool in_graphs = false;
  };

  runtime::Device& device_;
  std::mutex mutex_;  ///< guards what follows
  std::map<Key, std::unique_ptr<Entry>> entries_;
};

class LinearLosses {
 public:
  /// \param tunes    products and chunks that are met first; else what the database knows, or the library's first and the
  ///                 largest chunks
  /// \param seconds  that each race may take; 0: no bound
  /// \param any_order  of the products' sums: other bits each time
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
  /// \param context  whose device this is; runs the kernels of cross entropy
  const Choice& run(Context& context, const LinearCrossEntropy& operation,
                    const LinearCrossEntropy::Tensors& tensors, Stream stream);
  /// Where ranks share the classes.
  void run(Context& context, const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
           const Shard& shard, Stream stream);
  /// Compiler runs.
  [[nodiscard]] int compiled() const noexcept { return kernels_.compiled(); }

 private:
  friend class LinearCall;
  [[nodiscard]] LinearShape shape(const LinearCrossEntropy& operation,
                                  const LinearCrossEntropy::Tensors& tensors);
  /// Null where it turns out that no kernel serves it without logits, and where ranks share the classes.
  const Choice* run(Context& context, const LinearCrossEntropy& operation,
                    const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape, const Shard* shard,
                    Stream stream);
  /// Else some would wait for chunks that others do not have. Looked at once for each such call of a group.
  void require_same_chunks(const Communicator& communicator, const LinearShape& shape, Stream stream);
  [[nodiscard]] LinearSchedule schedule(const LinearShape& shape);
  /// Lets the plans that fit into the memory make the whole call in turns, and the database keep the winner. What they write
  /// the call writes anew. Everything that was enqueued has ended by then, and the race when this returns.
  void race(Context& context, const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
            const LinearShape& shape, std::byte* workspace, std::int64_t bytes, Stream stream);
  void forget_targets_of_trials(Context& context);
  /// Never a caller's, so that targets out of range are counted apart.
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
  std::mutex mutex_;  ///< guards what follows
  /// Calls that the ranks of a communicator agree on.
  std::set<std::tuple<const void*, int, int, LinearShape>> of_ranks_;
};

}  // namespace ce
