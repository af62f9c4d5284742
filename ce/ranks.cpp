// Cross entropy of classes that are spread over ranks: the operations and the all-gather between them.
#include "ce/ranks.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/floating_environment.hpp"
#include "ce/context_impl.hpp"
#include "ce/error.hpp"
#include "runtime/cuda/nccl.hpp"

namespace ce {
namespace {

void require_communicator(const Communicator& communicator) {
  const auto& [rank, size, all_gather, state] = communicator;
  if (all_gather == nullptr) throw InvalidArgument("communicator.all_gather", "null", "a function");
  if (size < 1) throw InvalidArgument("communicator.size", fmt::to_string(size), "1 or more");
  if (rank < 0 || rank >= size)
    throw InvalidArgument("communicator.rank", fmt::to_string(rank), fmt::format("0 to {}", size - 1));
}

void gather(const Communicator& communicator, const void* send, void* receive, std::size_t bytes,
            Stream stream) {
  if (const char* wrong = communicator.all_gather(communicator.state, send, receive, bytes, stream))
    throw DeviceError(fmt::format("the all-gather of rank {}", communicator.rank), 0, wrong);
}

std::size_t bytes_of(std::int64_t words) { return static_cast<std::size_t>(words) * 4; }

}  // namespace

Communicator nccl_communicator(void* comm) {
  if (comm == nullptr) throw InvalidArgument("comm", "null", "an ncclComm_t").in("nccl_communicator");
  const auto [rank, size] = runtime::cuda::nccl_rank(comm);
  return {.rank = rank, .size = size, .all_gather = runtime::cuda::nccl_all_gather, .state = comm};
}

/// The first time that a rank makes such a call, all ranks compare theirs.
void Context::Impl::agree(const RankCall& call, const Communicator& communicator, Stream stream) {
  if (agreements.has(communicator, call) || (stream != nullptr && device->capturing(stream))) return;
  const std::size_t bytes = sizeof call.all(), ranks = static_cast<std::size_t>(communicator.size);
  const runtime::Buffer memory(*device, (ranks + 1) * bytes);
  auto* all = static_cast<std::byte*>(memory.data());
  device->upload(all + ranks * bytes, call.all().data(), bytes);
  gather(communicator, all + ranks * bytes, all, bytes, stream);
  device->synchronize(stream);
  std::vector<std::int64_t> calls(ranks * RankCall::numbers);
  device->download(calls.data(), all, ranks * bytes);
  require_agreement(calls);
  agreements.add(communicator, call);
}

void Context::run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
                  Stream stream) {
  const auto& [communicator, first_class, classes] = shard;
  try {
    require_communicator(communicator);
    for (const auto& [argument, given] :
         {std::pair{"row_scale", &tensors.row_scale}, {"given_lse", &tensors.given_lse}})
      if (given->data != nullptr)
        throw InvalidArgument(fmt::format("{}.data", argument), "set", "null where ranks share the classes");
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
    impl_->agree(RankCall(operation, tensors, shard, words), communicator, stream);

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
        {.logits = tensors.logits, .target = tensors.target, .weight = tensors.weight, .statistics = mine},
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
