// Cross entropy with classes spread over ranks: the operations and the all-gather between them.
#include "ce/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/floating_environment.hpp"
#include "ce/context_impl.hpp"
#include "ce/error.hpp"
#include "ce/rank_agreement.hpp"
#include "ce/rank_decision.hpp"
#include "generator/variant.hpp"
#include "runtime/cuda/nccl.hpp"
#include "tuner/kernel.hpp"

namespace ce {
namespace {

std::size_t bytes_of(std::int64_t words) { return static_cast<std::size_t>(words) * 4; }

}  // namespace

Communicator nccl_communicator(void* comm) {
  if (comm == nullptr) throw InvalidArgument("comm", "null", "an ncclComm_t").in("nccl_communicator");
  const auto [rank, size] = runtime::cuda::nccl_rank(comm);
  return {.rank = rank,
          .size = size,
          .all_gather = runtime::cuda::nccl_all_gather,
          .state = comm,
          .failure = runtime::cuda::nccl_failure};
}

/// Compares the calls of all ranks.
/// \param can_exchange  whether this rank can exchange
Context::Impl::RanksThatCan Context::Impl::agree(const RankCall& call, const Communicator& communicator,
                                                 Stream stream, bool can_exchange) {
  struct Message {
    std::array<std::int64_t, RankCall::numbers> call;
    std::int64_t can_exchange;
  };
  const Message own{call.all(), can_exchange ? 1 : 0};
  const std::vector<std::byte> messages =
      gather_from_ranks(*device, communicator, std::as_bytes(std::span(&own, 1)), stream);
  std::vector<std::int64_t> calls;
  RanksThatCan ranks{.all = true, .most_columns = 0};
  for (std::size_t at = 0; at < messages.size(); at += sizeof own) {
    Message of_rank{};
    std::memcpy(&of_rank, messages.data() + at, sizeof of_rank);
    calls.insert(calls.end(), of_rank.call.begin(), of_rank.call.end());
    ranks.all = ranks.all && of_rank.can_exchange != 0;
    ranks.most_columns = std::max(ranks.most_columns, of_rank.call[RankCall::columns]);
  }
  require_agreement(calls);
  return ranks;
}

bool Context::Impl::is_possible(CrossEntropyExchange operation,
                                const CrossEntropyExchange::Tensors& tensors) {
  if (tensors.grad.data == nullptr || tensors.logits.rows == 0) return false;
  // Stands for memory that is large enough; only the size is checked.
  operation.peers = {.memory = device.get(), .bytes = std::numeric_limits<std::int64_t>::max(), .ranks = 1};
  try {
    const generator::Problem problem = ce::bind(operation, tensors, *device).problem;
    if (chooser.policy() == Policy::frozen) static_cast<void>(chooser.choose(problem, nullptr));
    return !generator::space(problem, tuner::limits_of(device->model())).empty();
  } catch (const NotTuned&) {
    return false;
  } catch (const InvalidArgument&) {  // the call itself, which all ranks reach, will throw
    return false;
  }
}

bool Context::is_possible(const CrossEntropyExchange& operation,
                          const CrossEntropyExchange::Tensors& tensors) const {
  const DefaultFloatingEnvironment environment;
  impl_->require_own_process();
  return impl_->is_possible(operation, tensors);
}

/// The memory through which the ranks exchange, if all can and want to. The first time that a rank makes such a call,
/// all ranks compare theirs, and rank 0 decides.
std::optional<PeerView> Context::Impl::peers_for(const CrossEntropy& operation,
                                                 const CrossEntropy::Tensors& tensors, const Shard& shard,
                                                 std::int64_t words, Stream stream) {
  const Communicator& communicator = shard.communicator;
  const RankPlan plan = shard.plan;
  const bool captured = stream != nullptr && device->capturing(stream);
  const std::int64_t rows = tensors.logits.rows;
  const bool wanted = plan != RankPlan::gather && rows > 0 && tensors.grad.data != nullptr;
  const RankCall call(operation, tensors, shard, words);
  const std::optional<bool> known = agreements.find(communicator, call, captured);
  RanksThatCan can;
  if (!captured && (!known || shard.compare_every_call)) {
    const CrossEntropyExchange exchange{
        .options = operation, .first_class = shard.first_class, .classes = shard.classes};
    can = agree(call, communicator, stream, wanted && is_possible(exchange, tensors));
  }
  RankExchanges::Found found{.view = {},
                             .why = captured ? "the first call is being captured into a graph"
                                             : "a rank has no kernel for an exchange with its logits"};
  if (wanted && known.value_or(can.all))
    found = exchanges.get(*device, peer_memories, communicator,
                          PeerMemory::bytes_for(communicator.size, generator::rows_bucket(rows), words),
                          stream, captured);
  const bool connected = found.view.memory != nullptr;
  if (wanted && plan == RankPlan::exchange && !connected)
    throw Unsupported(fmt::format("{}: the plan is exchange, but the ranks cannot exchange: {}",
                                  CrossEntropy::name, found.why));
  bool exchange = connected && known.value_or(false);
  if (!known && !captured) {
    exchange = rows > 0 && decide(operation, tensors, shard, words, can.most_columns,
                                  connected ? std::optional(found.view) : std::nullopt, stream);
    agreements.add(communicator, call, exchange);
  }
  return exchange ? std::optional(found.view) : std::nullopt;
}

namespace {

CrossEntropyShard shard_of(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors,
                           const Shard& shard) {
  return {.options = operation,
          .first_class = shard.first_class,
          .classes = shard.classes,
          .lse = tensors.lse.data != nullptr,
          .argmax = tensors.argmax.data != nullptr || tensors.hit.data != nullptr,
          .entropy = tensors.entropy.data != nullptr || tensors.entropy_upstream.data != nullptr};
}

}  // namespace

/// A call with an all-gather: the operations before and after it. A rank without classes only merges.
struct CE_HIDDEN GatherCall {
  /// Words of scratch memory: own, merged and gathered statistics, and the entropy if only its gradient is asked for.
  static std::int64_t memory_words(std::int64_t rows, std::int64_t words, int ranks) {
    return (ranks + 2) * rows * words + rows;
  }
  GatherCall(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& of,
             std::int64_t words, float* memory)
      : shard(shard_of(operation, tensors, of)),
        merge{.options = operation,
              .classes = of.classes,
              .ranks = of.communicator.size,
              .logits = tensors.logits.dtype,
              .probabilities = is_floating(tensors.target.dtype)},
        backward{.options = operation, .first_class = of.first_class, .classes = of.classes} {
    const std::int64_t rows = tensors.logits.rows, size = rows * words;
    const Tensor mine = tensor(memory, rows, words), merged = tensor(memory + size, rows, words),
                 all = tensor(memory + 2 * size, merge.ranks * rows, words);
    Tensor entropy = tensors.entropy;
    if (shard.entropy && entropy.data == nullptr) entropy = tensor(memory + (merge.ranks + 2) * size, rows);
    of_shard = {.logits = tensors.logits,
                .target = tensors.target,
                .weight = tensors.weight,
                .statistics = mine,
                .row_scale = tensors.row_scale};
    of_merge = {.statistics = all,
                .target = merge.probabilities ? ConstTensor{} : tensors.target,
                .weight = tensors.weight,
                .loss = tensors.loss,
                .z_loss_out = tensors.z_loss_out,
                .lse = tensors.lse,
                .argmax = tensors.argmax,
                .hit = tensors.hit,
                .logprob = tensors.logprob,
                .entropy = entropy,
                .row_weight = tensors.row_weight,
                .row_scale = tensors.row_scale,
                .divisor = tensors.divisor,
                .merged = tensors.grad.data != nullptr ? merged : Tensor{}};
    of_backward = {.logits = tensors.logits,
                   .target = tensors.target,
                   .weight = tensors.weight,
                   .statistics = merged,
                   .upstream = tensors.upstream,
                   .grad = tensors.grad,
                   .row_weight = tensors.row_weight,
                   .row_scale = tensors.row_scale,
                   .divisor = tensors.divisor,
                   .entropy_upstream = tensors.entropy_upstream,
                   .lse_upstream = tensors.lse_upstream};
  }

  CrossEntropyShard shard;
  CrossEntropyMerge merge;
  CrossEntropyShardBackward backward;
  CrossEntropyShard::Tensors of_shard;
  CrossEntropyMerge::Tensors of_merge;
  CrossEntropyShardBackward::Tensors of_backward;
};

const void* Context::Impl::statistics_of_no_class(const CrossEntropyShard& shard, DType logits,
                                                  bool probabilities, std::int64_t rows, Stream stream) {
  const StatisticsLayout layout{.words = shard.words(logits, probabilities),
                                .target = !probabilities,
                                .slope = !probabilities && shard.options.softcap != 0,
                                .indices = shard.argmax};
  const bool captured = stream != nullptr && device->capturing(stream);
  const void* statistics = neutral.get(layout, rows, captured);
  if (statistics == nullptr)
    throw Unsupported(
        "the first call of a rank without classes is being captured into a graph, but it must allocate "
        "memory; make one such call before the capture");
  return statistics;
}

/// Rank 0 chooses kernels and the plan, from its own times; the others use its choice.
/// \param peers  given if the ranks can exchange
/// \returns whether they exchange
bool Context::Impl::decide(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors,
                           const Shard& shard, std::int64_t words, std::int64_t most_columns,
                           const std::optional<PeerView>& peers, Stream stream) {
  const Communicator& communicator = shard.communicator;
  auto memory = std::make_unique<runtime::Buffer>(
      *device, bytes_of(GatherCall::memory_words(tensors.logits.rows, words, communicator.size)));
  const GatherCall call(operation, tensors, shard, words, static_cast<float*>(memory->data()));
  return unless_ranks_fail(
      memory, [&] { return decide(call, operation, tensors, shard, words, most_columns, peers, stream); });
}

/// Decides, with memory for the operations that the call may consist of.
bool Context::Impl::decide(const GatherCall& call, const CrossEntropy& operation,
                           const CrossEntropy::Tensors& tensors, const Shard& shard, std::int64_t words,
                           std::int64_t most_columns, const std::optional<PeerView>& peers, Stream stream) {
  const Communicator& communicator = shard.communicator;
  const std::int64_t rows = tensors.logits.rows, columns = tensors.logits.columns;
  const bool race = peers && shard.plan == RankPlan::automatic;
  RankTimes times{};
  if (race)
    times.all_gather =
        time_all_gather(*device, communicator, call.of_shard.statistics.data,
                        const_cast<void*>(call.of_merge.statistics.data), bytes_of(rows * words), stream);
  const RankDecision decision = decided_by_rank_0(
      *device, communicator,
      [&]() -> RankDecision {
        RankDecision made{.exchange = peers.has_value()};
        const auto choose = [&](const auto& part, const auto& its_tensors) {
          const Choice& choice = chooser.choose(bind(part, its_tensors).problem, stream).choice;
          made.add(choice);
          return choice.row_us;
        };
        try {
          if (peers)
            times.exchange = choose(CrossEntropyExchange{.options = operation,
                                                         .first_class = shard.first_class,
                                                         .classes = shard.classes,
                                                         .peers = *peers},
                                    tensors);
          if (peers && !race) return made;
          if (columns > 0) times.shard = choose(call.shard, call.of_shard);
          times.merge = choose(call.merge, call.of_merge);
          if (columns > 0 && tensors.grad.data != nullptr)
            times.backward = choose(call.backward, call.of_backward);
        } catch (const InvalidArgument&) {  // the call itself, which all ranks reach, will throw
          return made;
        }
        if (race)
          made.exchange = exchange_is_faster(
              times, rows, static_cast<double>(most_columns) / static_cast<double>(columns));
        return made;
      },
      stream);
  if (communicator.rank != 0)
    for (const auto& [key, config] : decision.configs) chooser.use(key, config);
  return decision.exchange;
}

void Context::run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
                  Stream stream) {
  const Communicator& communicator = shard.communicator;
  try {
    if (shard.plan > RankPlan::exchange)
      throw InvalidArgument("plan", fmt::to_string(static_cast<int>(shard.plan)),
                            "automatic, gather or exchange");
    require_communicator(communicator);
    for (const auto& [argument, data] :
         {std::pair("given_lse.data", tensors.given_lse.data),
          std::pair("lse_low.data", static_cast<const void*>(tensors.lse_low.data))})
      if (data != nullptr) throw InvalidArgument(argument, "set", "null, because ranks share the classes");
    impl_->require_own_process();
    const DType dtype = tensors.logits.dtype;
    const std::int64_t rows = tensors.logits.rows,
                       words = is_floating(dtype) ? shard_of(operation, tensors, shard)
                                                        .words(dtype, is_floating(tensors.target.dtype))
                                                  : 0;
    const runtime::Session session(*impl_->device);
    if (const std::optional<PeerView> peers = impl_->peers_for(operation, tensors, shard, words, stream)) {
      try {
        run(CrossEntropyExchange{.options = operation,
                                 .first_class = shard.first_class,
                                 .classes = shard.classes,
                                 .peers = *peers},
            tensors, stream);
      } catch (const InvalidArgument&) {  // normally thrown on all ranks alike: then none waits
        throw;
      } catch (const NotTuned&) {
        throw;
      } catch (...) {
        impl_->exchanges.give_up(communicator);
        throw;
      }
      return;
    }

    auto* memory = static_cast<float*>(impl_->memory_of_ranks(
        stream, tensors.loss.data, GatherCall::memory_words(rows, words, communicator.size)));
    const GatherCall call(operation, tensors, shard, words, memory);
    const bool has_classes = tensors.logits.columns > 0;
    const void* own = call.of_shard.statistics.data;
    if (has_classes)
      run(call.shard, call.of_shard, stream);
    else
      own = impl_->statistics_of_no_class(call.shard, dtype, call.merge.probabilities, rows, stream);
    if (rows > 0)
      gather(communicator, own, const_cast<void*>(call.of_merge.statistics.data), bytes_of(rows * words),
             stream);
    run(call.merge, call.of_merge, stream);
    if (tensors.grad.data == nullptr) {
      for (const auto& [argument, given] : {std::pair{"upstream", &tensors.upstream},
                                            {"entropy_upstream", &tensors.entropy_upstream},
                                            {"lse_upstream", &tensors.lse_upstream}})
        if (given->data != nullptr)
          throw InvalidArgument(fmt::format("{}.data", argument), "set", "null, because there is no grad");
      return;
    }
    if (has_classes) run(call.backward, call.of_backward, stream);
  } catch (const InvalidArgument& error) {
    // The caller does not know the operations that its call consists of.
    throw InvalidArgument(error.argument(), error.value(), error.expected(), error.where())
        .in(CrossEntropy::name);
  }
}

void run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
         Stream stream) {
  default_context().run(operation, tensors, shard, stream);
}

}  // namespace ce
