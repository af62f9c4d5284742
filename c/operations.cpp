#include "c/operations.hpp"

#include <memory>
#include <string>
#include <utility>

#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/structs.hpp"

namespace ce::c {

Reduction reduction_from(ce_reduction reduction) {
  static_assert(CE_REDUCTION_NONE == static_cast<int>(Reduction::none) &&
                CE_REDUCTION_MEAN == static_cast<int>(Reduction::mean) &&
                CE_REDUCTION_SUM == static_cast<int>(Reduction::sum));
  if (reduction < CE_REDUCTION_NONE || reduction > CE_REDUCTION_SUM)
    throw InvalidArgument("reduction", std::to_string(reduction), "a value CE_REDUCTION_...");
  return static_cast<Reduction>(reduction);
}

void require_reserved(std::int32_t reserved) {
  if (reserved != 0) throw InvalidArgument("reserved", std::to_string(reserved), "0");
}

bool flag_from(std::string_view name, std::int32_t given) {
  if (given != 0 && given != 1) throw InvalidArgument(name, std::to_string(given), "0 or 1");
  return given == 1;
}

namespace {

template <class Operation>
struct Call {
  Operation operation;
  typename Operation::Tensors tensors;
};

/// \throws InvalidArgument
template <class Operation>
Call<Operation> call_from(const typename Interface<Operation>::Options* options,
                          const typename Interface<Operation>::Tensors* tensors) {
  using Own = Interface<Operation>;
  try {
    typename Own::Options options_storage;
    typename Own::Tensors tensors_storage;
    if (options == nullptr) options = &Own::no_options;
    require_pointer("tensors", tensors, "an address of the operation's struct of tensors");
    return {.operation = Own::operation(read_struct("options", *options, Own::no_options,
                                                    sizeof(typename Own::Options), options_storage)),
            .tensors = Own::tensors(read_struct("tensors", *tensors, Own::no_tensors,
                                                sizeof(typename Own::Tensors), tensors_storage))};
  } catch (const InvalidArgument& error) {
    throw error.in(Operation::name);
  }
}

template <class Operation>
ce_status run(ce_context* context, const typename Interface<Operation>::Options* options,
              const typename Interface<Operation>::Tensors* tensors, ce_stream stream,
              const ce_choice** choice) noexcept {
  if (choice != nullptr) *choice = nullptr;
  return guarded([&] {
    const Call<Operation> call = call_from<Operation>(options, tensors);
    const Choice& made = context != nullptr ? from_handle(context)->run(call.operation, call.tensors, stream)
                                            : ce::run(call.operation, call.tensors, stream);
    if (choice != nullptr) *choice = to_handle(&made);
  });
}

template <class Operation>
ce_status prepare(ce_context* context, const typename Interface<Operation>::Options* options,
                  const typename Interface<Operation>::Tensors* tensors, ce_stream stream,
                  ce_plan** plan) noexcept {
  if (plan != nullptr) *plan = nullptr;
  return guarded([&] {
    require_pointer("plan", plan, "an address for the handle");
    const Call<Operation> call = call_from<Operation>(options, tensors);
    Plan made = context_or_default(context).prepare(call.operation, call.tensors, stream);
    *plan = to_handle(std::make_unique<Plan>(std::move(made)).release());
  });
}

}  // namespace
}  // namespace ce::c

// NOLINTNEXTLINE(bugprone-macro-parentheses): the names of functions and types
#define CE_OPERATION(Operation, name)                                                                   \
  ce_status ce_##name(ce_context* context, const ce_##name##_options* options,                          \
                      const ce_##name##_tensors* tensors, ce_stream stream, const ce_choice** choice) { \
    return ce::c::run<ce::Operation>(context, options, tensors, stream, choice);                        \
  }                                                                                                     \
  ce_status ce_##name##_prepare(ce_context* context, const ce_##name##_options* options,                \
                                const ce_##name##_tensors* tensors, ce_stream stream, ce_plan** plan) { \
    return ce::c::prepare<ce::Operation>(context, options, tensors, stream, plan);                      \
  }
CE_OPERATION(Softmax, softmax)
CE_OPERATION(LogSoftmax, log_softmax)
CE_OPERATION(SoftmaxBackward, softmax_backward)
CE_OPERATION(LogSoftmaxBackward, log_softmax_backward)
CE_OPERATION(CrossEntropy, cross_entropy)
CE_OPERATION(CrossEntropyBackward, cross_entropy_backward)
CE_OPERATION(CrossEntropyShard, cross_entropy_shard)
CE_OPERATION(CrossEntropyMerge, cross_entropy_merge)
CE_OPERATION(CrossEntropyShardBackward, cross_entropy_shard_backward)
CE_OPERATION(CrossEntropyExchange, cross_entropy_exchange)
#undef CE_OPERATION

ce_status ce_linear_cross_entropy(ce_context* context, const ce_linear_cross_entropy_options* options,
                                  const ce_linear_cross_entropy_tensors* tensors, ce_stream stream,
                                  const ce_choice** choice) {
  return ce::c::run<ce::LinearCrossEntropy>(context, options, tensors, stream, choice);
}

ce_status ce_linear_cross_entropy_schedule(ce_context* context,
                                           const ce_linear_cross_entropy_options* options,
                                           const ce_linear_cross_entropy_tensors* tensors,
                                           ce_linear_schedule* schedule) {
  using namespace ce::c;
  return guarded([&] {
    require_pointer("schedule", schedule, "an address for the schedule");
    const Call<ce::LinearCrossEntropy> call = call_from<ce::LinearCrossEntropy>(options, tensors);
    const ce::LinearSchedule made = context_or_default(context).schedule(call.operation, call.tensors);
    const auto& [chunk_tokens, chunks, workspace_bytes, accumulation, exponentials] = made;
    write_struct(*schedule, ce_linear_schedule{.struct_size = schedule->struct_size,
                                               .chunk_tokens = chunk_tokens,
                                               .chunks = chunks,
                                               .workspace_bytes = workspace_bytes,
                                               .accumulation = static_cast<ce_dtype>(accumulation),
                                               .exponentials = exponentials ? 1 : 0});
  });
}

ce_status ce_cross_entropy_shard_words(const ce_cross_entropy_shard_options* options, ce_dtype logits,
                                       int32_t probabilities, int64_t* words) {
  using Own = ce::c::Interface<ce::CrossEntropyShard>;
  return ce::c::guarded([&] {
    ce::c::require_pointer("words", words, "an address for the number");
    Own::Options storage;
    if (options == nullptr) options = &Own::no_options;
    const ce::CrossEntropyShard operation = Own::operation(
        ce::c::read_struct("options", *options, Own::no_options, sizeof(Own::Options), storage));
    const ce::DType dtype = ce::c::dtype_from("logits", logits);
    if (!ce::is_floating(dtype))
      throw ce::InvalidArgument("logits", std::to_string(logits),
                                "CE_DTYPE_F32, CE_DTYPE_F16 or CE_DTYPE_BF16");
    *words = operation.words(dtype, ce::c::flag_from("probabilities", probabilities));
  });
}

ce_status ce_cross_entropy_exchange_is_possible(ce_context* context,
                                                const ce_cross_entropy_exchange_options* options,
                                                const ce_cross_entropy_exchange_tensors* tensors,
                                                int32_t* possible) {
  using namespace ce::c;
  if (possible != nullptr) *possible = 0;
  return guarded([&] {
    require_pointer("possible", possible, "an address for the answer");
    const Call<ce::CrossEntropyExchange> call = call_from<ce::CrossEntropyExchange>(options, tensors);
    *possible = context_or_default(context).is_possible(call.operation, call.tensors) ? 1 : 0;
  });
}
