// Cross entropy of classes that are spread over ranks: the operations and the all-gather between them.
#include "ce/ranks.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/floating_environment.hpp"
#include "ce/context_impl.hpp"
#include "ce/error.hpp"
#include "generator/variant.hpp"
#include "runtime/cuda/nccl.hpp"
#include "tuner/kernel.hpp"

namespace ce {
namespace {

void require_communicator(const Communicator& communicator) {
  const auto& [rank, size, all_gather, state] = communicator;
  if (all_gather == nullptr) throw InvalidArgument("communicator.all_gather", "null", "a function");
  if (size < 1) throw InvalidArgument("communicator.size", fmt::to_string(size), "1 or more");
  if (rank < 0 || rank >= size)
    throw InvalidArgument("communicator.rank", fmt::to_string(rank), fmt::format("0 to {}", size - 1));
}

std::size_t bytes_of(std::int64_t words) { return static_cast<std::size_t>(words) * 4; }

}  // namespace

Communicator nccl_communicator(void* comm) {
  if (comm == nullptr) throw InvalidArgument("comm", "null", "an ncclComm_t").in("nccl_communicator");
  const auto [rank, size] = runtime::cuda::nccl_rank(comm);
  return {.rank = rank, .size = size, .all_gather = runtime::cuda::nccl_all_gather, .state = comm};
}

/// The first time that a rank makes such a call, all ranks compare theirs.
/// \param can_exchange  asked then
/// \returns whether all ranks can, as far as that is known
bool Context::Impl::agree(const RankCall& call, const Communicator& communicator, Stream stream,
                          bool captured, const std::function<bool()>& can_exchange) {
  if (const std::optional<bool> known = agreements.find(communicator, call)) return *known;
  if (captured) return false;
  struct Told {
    std::array<std::int64_t, RankCall::numbers> call;
    std::int64_t can_exchange;
  };
  const Told own{call.all(), can_exchange() ? 1 : 0};
  const std::vector<std::byte> told =
      gather_from_ranks(*device, communicator, std::as_bytes(std::span(&own, 1)), stream);
  std::vector<std::int64_t> calls;
  bool all_can = true;
  for (std::size_t at = 0; at < told.size(); at += sizeof own) {
    Told of_rank{};
    std::memcpy(&of_rank, told.data() + at, sizeof of_rank);
    calls.insert(calls.end(), of_rank.call.begin(), of_rank.call.end());
    all_can = all_can && of_rank.can_exchange != 0;
  }
  require_agreement(calls);
  agreements.add(communicator, call, all_can);
  return all_can;
}

bool Context::Impl::is_possible(CrossEntropyExchange operation,
                                const CrossEntropyExchange::Tensors& tensors) {
  if (tensors.grad.data == nullptr || tensors.logits.rows == 0) return false;
  // In place of memory that is large enough, of which only the size is looked at.
  operation.peers = {.memory = device.get(), .bytes = std::numeric_limits<std::int64_t>::max(), .ranks = 1};
  try {
    const generator::Problem problem = ce::bind(operation, tensors, *device).problem;
    if (chooser.policy() == Policy::frozen) static_cast<void>(chooser.choose(problem, nullptr));
    return !generator::space(problem, tuner::limits_of(device->model())).empty();
  } catch (const NotTuned&) {
    return false;
  } catch (const InvalidArgument&) {  // which is for those to refuse that all ranks get to
    return false;
  }
}

bool Context::is_possible(const CrossEntropyExchange& operation,
                          const CrossEntropyExchange::Tensors& tensors) const {
  const DefaultFloatingEnvironment environment;
  impl_->require_own_process();
  return impl_->is_possible(operation, tensors);
}

/// What the ranks exchange through, where all can and shall.
std::optional<PeerView> Context::Impl::peers_for(const CrossEntropy& operation,
                                                 const CrossEntropy::Tensors& tensors, const Shard& shard,
                                                 std::int64_t words, Stream stream) {
  const Communicator& communicator = shard.communicator;
  const RankPlan plan = shard.plan;
  const bool captured = stream != nullptr && device->capturing(stream);
  const bool all_can = agree(RankCall(operation, tensors, shard, words), communicator, stream, captured, [&] {
    return plan != RankPlan::gather &&
           is_possible({.options = operation, .first_class = shard.first_class, .classes = shard.classes},
                       tensors);
  });
  const std::int64_t rows = tensors.logits.rows;
  if (plan == RankPlan::gather || rows == 0 || tensors.grad.data == nullptr) return std::nullopt;
  std::string why = "a rank has no such kernel for its logits, or the first call of all is being captured";
  if (all_can) {
    const std::int64_t bytes = PeerMemory::bytes_for(communicator.size, generator::rows_bucket(rows), words);
    const RankExchanges::Found found =
        exchanges.get(*device, peer_memories, communicator, bytes, stream, captured);
    if (found.view.memory != nullptr) return found.view;
    why = found.why;
  }
  if (plan == RankPlan::exchange)
    throw Unsupported(fmt::format("{}: the ranks cannot exchange: {}", CrossEntropy::name, why));
  return std::nullopt;
}

void Context::run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
                  Stream stream) {
  const auto& [communicator, first_class, classes, plan] = shard;
  try {
    if (plan > RankPlan::exchange)
      throw InvalidArgument("plan", fmt::to_string(static_cast<int>(plan)), "automatic, gather or exchange");
    require_communicator(communicator);
    if (tensors.given_lse.data != nullptr)
      throw InvalidArgument("given_lse.data", "set", "null where ranks share the classes");
    impl_->require_own_process();
    const bool probabilities = is_floating(tensors.target.dtype), gradient = tensors.grad.data != nullptr;
    const CrossEntropyShard own{
        .options = operation,
        .first_class = first_class,
        .classes = classes,
        .lse = tensors.lse.data != nullptr,
        .argmax = tensors.argmax.data != nullptr || tensors.hit.data != nullptr,
        .entropy = tensors.entropy.data != nullptr || tensors.entropy_upstream.data != nullptr};
    const DType dtype = tensors.logits.dtype;
    const std::int64_t rows = tensors.logits.rows,
                       words = is_floating(dtype) ? own.words(dtype, probabilities) : 0;
    const runtime::Session session(*impl_->device);
    if (const std::optional<PeerView> peers = impl_->peers_for(operation, tensors, shard, words, stream)) {
      try {
        run(
            CrossEntropyExchange{
                .options = operation, .first_class = first_class, .classes = classes, .peers = *peers},
            tensors, stream);
      } catch (const InvalidArgument&) {  // on all ranks alike, as a rule: then none waits
        throw;
      } catch (const NotTuned&) {
        throw;
      } catch (...) {
        impl_->exchanges.give_up(communicator);
        throw;
      }
      return;
    }

    // Own, gathered and merged statistics, and the entropy where only its gradient is asked for.
    const std::int64_t size = rows * words;
    auto* memory = static_cast<float*>(
        impl_->memory_of_ranks(stream, tensors.loss.data, (communicator.size + 2) * size + rows));
    const auto statistics = [&](std::int64_t start, std::int64_t count) {
      return tensor(memory + start, count, words);
    };
    const Tensor mine = statistics(0, rows), merged = statistics(size, rows),
                 all = statistics(2 * size, communicator.size * rows);
    Tensor entropy = tensors.entropy;
    if (own.entropy && entropy.data == nullptr)
      entropy = tensor(memory + (communicator.size + 2) * size, rows);

    run(own,
        {.logits = tensors.logits,
         .target = tensors.target,
         .weight = tensors.weight,
         .statistics = mine,
         .row_scale = tensors.row_scale},
        stream);
    if (rows > 0) gather(communicator, mine.data, all.data, bytes_of(size), stream);
    run(CrossEntropyMerge{.options = operation,
                          .classes = classes,
                          .ranks = communicator.size,
                          .logits = dtype,
                          .probabilities = probabilities},
        {.statistics = all,
         .target = probabilities ? ConstTensor{} : tensors.target,
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
         .merged = gradient ? merged : Tensor{}},
        stream);
    if (!gradient) {
      for (const auto& [argument, given] : {std::pair{"upstream", &tensors.upstream},
                                            {"entropy_upstream", &tensors.entropy_upstream},
                                            {"lse_upstream", &tensors.lse_upstream}})
        if (given->data != nullptr)
          throw InvalidArgument(fmt::format("{}.data", argument), "set", "null where there is no grad");
      return;
    }
    run(CrossEntropyShardBackward{.options = operation, .first_class = first_class, .classes = classes},
        {.logits = tensors.logits,
         .target = tensors.target,
         .weight = tensors.weight,
         .statistics = merged,
         .upstream = tensors.upstream,
         .grad = tensors.grad,
         .row_weight = tensors.row_weight,
         .row_scale = tensors.row_scale,
         .divisor = tensors.divisor,
         .entropy_upstream = tensors.entropy_upstream,
         .lse_upstream = tensors.lse_upstream},
        stream);
  } catch (const InvalidArgument& error) {
    throw error.in(CrossEntropy::name);
  }
}

void run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
         Stream stream) {
  default_context().run(operation, tensors, shard, stream);
}

}  // namespace ce
