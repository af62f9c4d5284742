// Cross entropy of classes that are distributed over ranks.
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "ce/ce.h"
#include "python/csrc/call.hpp"
#include "python/csrc/contexts.hpp"
#include "python/csrc/cross_entropy_call.hpp"
#include "python/csrc/operators.hpp"
#include "python/csrc/tensor.hpp"

namespace ce_torch {
namespace {

/// [rows, words] or [ranks x rows, words], as rows of words.
ce_tensor words_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() != 2)
    refuse(Refusal::value_error,
           "cross_entropy: statistics has sizes " + text_of(sizes) + "; expected [rows, words]");
  return ce_matrix(tensor.data(), CE_DTYPE_F32, sizes[0], sizes[1]);
}

/// The choices of this thread's operators while they only choose.
thread_local bool is_choosing = false;
thread_local std::string chosen;

/// Runs an operation, or only prepares it if the thread is to choose.
/// \returns whether it runs
template <class Options, class Tensors>
bool run_or_choose(ce_status (*run)(ce_context*, const Options*, const Tensors*, ce_stream,
                                    const ce_choice**),
                   ce_status (*prepare)(ce_context*, const Options*, const Tensors*, ce_stream, ce_plan**),
                   const Tensor& like, const Options& options, const Tensors& tensors) {
  ce_context* context = context_of(like.device());
  if (!is_choosing) {
    require(run(context, &options, &tensors, stream_of(like), nullptr));
    return true;
  }
  ce_plan* plan = nullptr;
  require(prepare(context, &options, &tensors, stream_of(like), &plan));
  const ce_choice* choice = ce_plan_choice(plan);
  for (const std::string& word : {std::string(ce_choice_key(choice)), std::string(ce_choice_config(choice)),
                                  std::to_string(ce_choice_row_us(choice))})
    chosen += word + ' ';
  chosen += std::to_string(ce_choice_provisional(choice)) + '\n';
  ce_plan_destroy(plan);
  return false;
}

Tensor empty_words(std::int64_t rows, std::int64_t words, const Tensor& like) {
  const std::array<std::int64_t, 2> sizes{rows, words}, strides{words, 1};
  return Tensor::empty(sizes, strides, aoti_torch_dtype_float32(), like);
}

/// ... -> Tensor statistics
void cross_entropy_shard(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Call call(arguments);
  call.read_options(arguments);
  ce_cross_entropy_shard_options options = CE_CROSS_ENTROPY_SHARD_OPTIONS_INIT;
  options.options = &call.options;
  options.first_class = arguments.integer();
  options.classes = arguments.integer();
  options.lse = arguments.flag() ? 1 : 0;
  options.argmax = arguments.flag() ? 1 : 0;
  options.entropy = arguments.flag() ? 1 : 0;
  call.prepare();
  const Tensor& like = call.logits_given;
  std::int64_t words = 0;
  require(ce_cross_entropy_shard_words(&options, like.ce_type(), call.has_probabilities ? 1 : 0, &words));
  Tensor statistics = empty_words(call.rows(), words, like);
  RowPlan plan = call.plan();
  const Input logits(like.share(), "logits", plan);
  const ce_tensor rows = words_of(statistics);
  ce_cross_entropy_shard_tensors tensors = CE_CROSS_ENTROPY_SHARD_TENSORS_INIT;
  tensors.logits = &logits.rows();
  tensors.target = call.bind_target(plan);
  tensors.weight = call.weight.bind(like, "weight");
  tensors.row_scale = call.bind_rows(call.row_scale, "row_scale");
  tensors.statistics = &rows;
  run_or_choose(ce_cross_entropy_shard, ce_cross_entropy_shard_prepare, like, options, tensors);
  give_back(stack, statistics);
}

/// ... -> (Tensor loss, and the other outputs, Tensor merged)
template <Absent absent>
void cross_entropy_merge(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Call call(arguments);
  const Tensor statistics = arguments.tensor().contiguous();
  call.read_options(arguments);
  const bool f32_loss = arguments.flag();
  ce_cross_entropy_merge_options options = CE_CROSS_ENTROPY_MERGE_OPTIONS_INIT;
  options.options = &call.options;
  options.classes = arguments.integer();
  options.ranks = static_cast<std::int32_t>(arguments.integer());
  const Wanted wanted = read_wanted<ce::CrossEntropyMerge>(arguments);
  call.prepare();
  const Tensor& like = call.logits_given;
  options.logits = like.ce_type();
  options.probabilities = call.has_probabilities ? 1 : 0;
  require_same_device(statistics, "statistics", like);
  const ce_tensor all = words_of(statistics);
  Tensor merged = empty_words(call.rows(), all.columns, like);
  const ce_tensor merged_rows = words_of(merged);
  const std::int32_t loss_type = f32_loss ? aoti_torch_dtype_float32() : like.dtype();
  Outputs outputs{.loss = call.empty_loss(loss_type)};
  const ce_tensor loss = vector_of(outputs.loss);
  ce_cross_entropy_merge_tensors tensors = CE_CROSS_ENTROPY_MERGE_TENSORS_INIT;
  tensors.statistics = &all;
  tensors.merged = &merged_rows;
  tensors.target = options.probabilities != 0 ? nullptr : &call.indices;
  tensors.weight = call.weight.bind(like, "weight");
  tensors.row_weight = call.bind_rows(call.row_weight, "row_weight");
  tensors.row_scale = call.bind_rows(call.row_scale, "row_scale");
  tensors.divisor = call.divisor.bind(like, "divisor");
  tensors.loss = &loss;
  Views views{};
  give_wanted(call, wanted, loss_type, tensors, views, outputs);
  run_or_choose(ce_cross_entropy_merge, ce_cross_entropy_merge_prepare, like, options, tensors);
  give_back(give_back_all<ce::CrossEntropyMerge>(stack, outputs, absent), merged);
}

/// ... -> Tensor grad
template <Gradient gradient>
void cross_entropy_shard_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Call call(arguments);
  const Tensor statistics = arguments.tensor().contiguous();
  Vector upstream(arguments), entropy_upstream(arguments), lse_upstream(arguments);
  call.read_options(arguments);
  ce_cross_entropy_shard_backward_options options = CE_CROSS_ENTROPY_SHARD_BACKWARD_OPTIONS_INIT;
  options.options = &call.options;
  options.first_class = arguments.integer();
  options.classes = arguments.integer();
  call.prepare();
  const Tensor& like = call.logits_given;
  Tensor grad = memory_of_gradient(call, gradient);
  RowPlan plan = call.plan();
  const GradientRows rows(call, grad, gradient == Gradient::in_place, plan);
  ce_cross_entropy_shard_backward_tensors tensors = CE_CROSS_ENTROPY_SHARD_BACKWARD_TENSORS_INIT;
  tensors.logits = rows.logits();
  require_same_device(statistics, "statistics", like);
  const ce_tensor merged = words_of(statistics);
  tensors.statistics = &merged;
  call.bind_shared(tensors, plan);
  tensors.upstream = call.bind_upstream(upstream);
  tensors.entropy_upstream = call.bind_rows(entropy_upstream, "entropy_upstream");
  tensors.lse_upstream = call.bind_rows(lse_upstream, "lse_upstream");
  tensors.grad = rows.grad();
  if (run_or_choose(ce_cross_entropy_shard_backward, ce_cross_entropy_shard_backward_prepare, like, options,
                    tensors))
    rows.finish();
  if constexpr (gradient != Gradient::in_place) give_back(stack, grad);
}

/// The inputs of both operators on ranks that exchange statistics.
struct ExchangeCall : Call {
  explicit ExchangeCall(Arguments& arguments)
      : Call(arguments), upstream(arguments), grad(arguments.tensor()) {
    read_options(arguments);
    const bool f32_loss = arguments.flag();
    exchange.options = &options;
    exchange.first_class = arguments.integer();
    exchange.classes = arguments.integer();
    exchange.peers = reinterpret_cast<const ce_peer_memory*>(arguments.integer());
    const Wanted wanted = read_wanted<ce::CrossEntropyMerge>(arguments);
    prepare();
    require_same_device(grad, "grad", logits_given);
    rows_plan = plan();
    written.emplace(grad, "grad", rows_plan);
    logits.emplace(logits_given.share(), "logits", rows_plan);
    const std::int32_t loss_type = f32_loss ? aoti_torch_dtype_float32() : logits_given.dtype();
    outputs.loss = empty_loss(loss_type);
    loss = vector_of(outputs.loss);
    tensors.logits = &logits->rows();
    tensors.grad = &written->rows();
    tensors.loss = &loss;
    bind_shared(tensors, rows_plan);
    tensors.upstream = bind_upstream(upstream);
    give_wanted(*this, wanted, loss_type, tensors, views, outputs);
  }
  ExchangeCall(const ExchangeCall&) = delete;
  ExchangeCall& operator=(const ExchangeCall&) = delete;
  /// Called once the call is enqueued.
  void finish() const { written->finish(); }

  Vector upstream;
  Tensor grad;
  ce_cross_entropy_exchange_options exchange = CE_CROSS_ENTROPY_EXCHANGE_OPTIONS_INIT;
  ce_cross_entropy_exchange_tensors tensors = CE_CROSS_ENTROPY_EXCHANGE_TENSORS_INIT;
  Outputs outputs{.loss = Tensor::undefined()};

 private:
  RowPlan rows_plan{};
  std::optional<Output> written;
  std::optional<Input> logits;
  ce_tensor loss{};
  Views views{};
};

/// ... -> (Tensor loss, and the other outputs)
template <Absent absent>
void cross_entropy_exchange(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ExchangeCall call(arguments);
  if (run_or_choose(ce_cross_entropy_exchange, ce_cross_entropy_exchange_prepare, call.logits_given,
                    call.exchange, call.tensors))
    call.finish();
  give_back_all<ce::CrossEntropyMerge>(stack, call.outputs, absent);
}

/// ... -> bool
void cross_entropy_exchange_is_possible(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ExchangeCall call(arguments);
  std::int32_t possible = 0;
  require(ce_cross_entropy_exchange_is_possible(context_of(call.logits_given.device()), &call.exchange,
                                                &call.tensors, &possible));
  const bool is_possible = possible != 0;
  *stack = 0;
  std::memcpy(stack, &is_possible, sizeof is_possible);
}

}  // namespace

std::vector<Operator> rank_operators() {
  const auto& [read, upstream, options, f32_loss] = Schema{};
  const std::string wanted = schema_of_flags<ce::CrossEntropyMerge>(),
                    rest = "(Tensor loss" + schema_of_outputs<ce::CrossEntropyMerge>();
  const std::string of_shard = options + ", int first_class, int classes";
  const std::string shard_backward = " logits, Tensor target, Tensor? weight, Tensor statistics" + upstream +
                                     ", Tensor? entropy_upstream, Tensor? lse_upstream" + of_shard;
  const std::string exchange =
      read + upstream + ", Tensor(a!) grad" + f32_loss + ", int first_class, int classes, int peers" + wanted;
  return {
      {"cross_entropy_shard", read + of_shard + ", bool lse, bool argmax, bool entropy", "Tensor",
       cross_entropy_shard, cross_entropy_shard},
      {"cross_entropy_merge", read + ", Tensor statistics" + f32_loss + ", int classes, int ranks" + wanted,
       rest + ", Tensor merged)", cross_entropy_merge<Absent::empty>, cross_entropy_merge<Absent::undefined>},
      {"cross_entropy_shard_backward", "Tensor" + shard_backward, "Tensor",
       cross_entropy_shard_backward<Gradient::fresh>, cross_entropy_shard_backward<Gradient::fresh>},
      {"cross_entropy_shard_backward_", "Tensor(a!)" + shard_backward, "()",
       cross_entropy_shard_backward<Gradient::in_place>, cross_entropy_shard_backward<Gradient::in_place>},
      {"cross_entropy_exchange", exchange, rest + ")", cross_entropy_exchange<Absent::empty>,
       cross_entropy_exchange<Absent::undefined>},
      {"cross_entropy_exchange_is_possible", exchange, "bool", cross_entropy_exchange_is_possible,
       cross_entropy_exchange_is_possible},
  };
}

}  // namespace ce_torch

void ce_torch_begin_choosing(void) {
  ce_torch::chosen.clear();
  ce_torch::is_choosing = true;
}

void ce_torch_end_choosing(const char** text) {
  ce_torch::is_choosing = false;
  *text = ce_torch::chosen.c_str();
}
