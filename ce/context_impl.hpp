#pragma once
/// \file
/// The state of a Context. Not installed.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "cache/cache.hpp"
#include "ce/bound_kernel.hpp"
#include "ce/chooser.hpp"
#include "ce/context.hpp"
#include "ce/gradient_scaling.hpp"
#include "ce/linear_losses.hpp"
#include "ce/neutral_statistics.hpp"
#include "ce/peer_memory.hpp"
#include "ce/rank_agreement.hpp"
#include "ce/rank_exchange.hpp"
#include "ce/request.hpp"
#include "ce/statuses.hpp"
#include "ce/workspaces.hpp"

namespace ce {

struct GatherCall;

struct Context::Impl {
  explicit Impl(const ContextOptions& given);

  template <AnyOperation Operation>
  Request bind(const Operation& operation, const typename Operation::Tensors& tensors);
  void launch(BoundKernel& kernel, Stream stream) {
    if (kernel.is_ready_on(stream))
      launch_ready(kernel, stream);
    else
      launch_anew(kernel, stream);
  }
  void launch_ready(const BoundKernel& kernel, Stream stream) {
    device->launch(kernel.launches(), &kernel.arguments(), sizeof(Arguments), stream);
  }
  void launch_anew(BoundKernel& kernel, Stream stream);
  bool launch_empty(const Request& request, Stream stream);
  void wait_to_check(Stream stream);
  /// \throws Unsupported in a child of fork(), which would wait for threads that only its parent has
  void require_own_process() const;

  /// Common abilities of ranks that share the classes (ranks.cpp). \throws InvalidArgument, DeviceError
  struct RanksThatCan {
    bool all = false;               ///< whether all can exchange
    std::int64_t most_columns = 0;  ///< columns of the widest shard
  };
  [[nodiscard]] RanksThatCan agree(const RankCall& call, const Communicator& communicator, Stream stream,
                                   bool can_exchange);
  [[nodiscard]] bool decide(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors,
                            const Shard& shard, std::int64_t words, std::int64_t most_columns,
                            const std::optional<PeerView>& peers, Stream stream);
  [[nodiscard]] bool decide(const GatherCall& call, const CrossEntropy& operation,
                            const CrossEntropy::Tensors& tensors, const Shard& shard, std::int64_t words,
                            std::int64_t most_columns, const std::optional<PeerView>& peers, Stream stream);
  /// The statistics of rows of a rank that has only padding.
  /// \throws Unsupported if they are not allocated yet and the stream is being captured
  [[nodiscard]] const void* statistics_of_no_class(const CrossEntropyShard& shard, DType logits,
                                                   bool probabilities, std::int64_t rows, Stream stream);
  [[nodiscard]] bool is_possible(CrossEntropyExchange operation,
                                 const CrossEntropyExchange::Tensors& tensors);
  [[nodiscard]] std::optional<PeerView> peers_for(const CrossEntropy& operation,
                                                  const CrossEntropy::Tensors& tensors, const Shard& shard,
                                                  std::int64_t words, Stream stream);
  /// Scratch memory of a call that gathers. \throws DeviceError, Unsupported if the very first call is captured
  [[nodiscard]] void* memory_of_ranks(Stream stream, const void* output, std::int64_t words);

  const std::uint64_t number;
  std::unique_ptr<runtime::Device> device;
  cache::Cache cache;
  Chooser chooser;
  Workspaces workspaces;
  Statuses statuses;
  GradientScaling scaling{*device, cache};
  LinearLosses linear;
  RankAgreements agreements;
  PeerMemories peer_memories;
  RankExchanges exchanges;
  NeutralStatistics neutral{*device};
  const std::int64_t capture_bytes;
  std::once_flag ranks_began;
  std::optional<Workspaces> of_ranks;
  const Choice empty{
      .config = "", .origin = Origin::fallback, .reason = "no rows: nothing to launch", .key = ""};
};

}  // namespace ce
