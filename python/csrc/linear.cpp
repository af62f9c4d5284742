// Cross entropy of a linear layer.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ce/ce.h"
#include "python/csrc/call.hpp"
#include "python/csrc/contexts.hpp"
#include "python/csrc/cross_entropy_call.hpp"
#include "python/csrc/operators.hpp"
#include "python/csrc/tensor.hpp"

namespace ce_torch {
namespace {

constexpr const char* linear_name = "linear_cross_entropy";

using LinearTensors = ce_linear_cross_entropy_tensors;

/// A matrix whose rows have adjacent elements; other layouts are copied.
struct Matrix {
  Matrix(Tensor&& given, const char* argument, const char* expected) : tensor(std::move(given)) {
    if (tensor.sizes().size() != 2)
      refuse(Refusal::value_error, std::string(linear_name) + ": " + argument + " has sizes " +
                                       text_of(tensor.sizes()) + "; expected " + expected);
    const std::int64_t rows_given = tensor.sizes()[0], columns = tensor.sizes()[1];
    const bool is_read = tensor.strides()[1] == 1 && (rows_given <= 1 || tensor.strides()[0] >= columns);
    if (!is_read) tensor = tensor.contiguous();
    rows = ce_matrix(tensor.data(), tensor.ce_type(), rows_given, columns);
    if (rows_given > 1) rows.row_stride = tensor.strides()[0];
  }
  Tensor tensor;
  ce_tensor rows;
};

/// The requested outputs, in the order of the schema.
struct LinearWanted {
  bool f32_loss, hidden_grad, weight_grad, f32_weight_grad, bias_grad;
  Wanted others;

  [[nodiscard]] static LinearWanted read(Arguments& arguments) {
    // An initialiser list evaluates its elements in order.
    return {arguments.flag(), arguments.flag(), arguments.flag(),
            arguments.flag(), arguments.flag(), read_wanted<ce::LinearCrossEntropy>(arguments)};
  }
  [[nodiscard]] std::int64_t bits() const {
    std::int64_t all = 0;
    const auto add = [&](bool one) { all = 2 * all + (one ? 1 : 0); };
    for (const bool one : {f32_loss, hidden_grad, weight_grad, f32_weight_grad, bias_grad}) add(one);
    for (const bool one : others) add(one);
    return all;
  }
};

using AskFreeMemory = std::int32_t (*)(std::int32_t device, std::int64_t* bytes);
std::atomic<AskFreeMemory> ask_free_memory = nullptr;

/// The memory budget of calls that do not set one: a tenth of torch's free memory when the first call of a kind runs.
/// It stays the same, so that such calls run alike.
class Budgets {
 public:
  /// Device, sizes, dtype, options and outputs.
  using Key = std::array<std::int64_t, 9>;

  static Budgets& get() {
    static auto* budgets = new Budgets;  // a thread may still call when the program ends
    return *budgets;
  }

  /// \returns bytes; 0: the C library decides
  [[nodiscard]] std::int64_t of(const Key& key, int device) {
    const AskFreeMemory ask = ask_free_memory;
    if (device == host || ask == nullptr) return 0;
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = budgets_.find(key); known != budgets_.end()) return known->second;
    }
    // The lock is not held: torch's answer waits for Python's lock.
    std::int64_t free = 0;
    if (ask(device, &free) != 1)
      throw std::runtime_error("ce: torch cannot tell how much memory of cuda:" + std::to_string(device) +
                               " is free");
    constexpr std::int64_t mebibyte = std::int64_t{1} << 20, part = 10;
    const std::lock_guard lock(mutex_);
    return budgets_.try_emplace(key, std::max<std::int64_t>(free / part / mebibyte, 1) * mebibyte)
        .first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::int64_t> budgets_;
};

/// The workspace of one call, from torch's allocator: no other call uses it, also while a graph is captured.
struct Workspace {
  Workspace(std::int64_t bytes, const Tensor& like)
      : tensor(Tensor::empty(bytes + alignment, aoti_torch_dtype_uint8(), like)) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
    auto* start = static_cast<std::byte*>(tensor.data()) + (alignment - address % alignment) % alignment;
    view = ce_vector(start, CE_DTYPE_U8, bytes);
  }
  static constexpr std::int64_t alignment = 256;
  Tensor tensor;
  ce_tensor view;
};

/// torch's number for a dtype of logits.
std::int32_t type_of_logits(std::int64_t asked, const Tensor& hidden) {
  switch (asked) {
    case CE_DTYPE_UNSET: return hidden.dtype();
    case CE_DTYPE_F32: return aoti_torch_dtype_float32();
    case CE_DTYPE_F16: return aoti_torch_dtype_float16();
    case CE_DTYPE_BF16: return aoti_torch_dtype_bfloat16();
    default:
      refuse(Refusal::value_error,
             std::string(linear_name) + ": logits_dtype is " + std::to_string(asked) +
                 "; expected 0 (float32), 1 (float16), 2 (bfloat16) or -1 (the dtype of hidden)");
  }
}

constexpr std::size_t own_outputs = 4;

/// ... -> (Tensor loss, Tensor hidden_grad, Tensor weight_grad, Tensor bias_grad, and the other outputs)
template <Absent absent>
void linear_cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor hidden_given = arguments.tensor(), weight_given = arguments.tensor();
  Vector bias(arguments);
  Tensor target = arguments.tensor();
  Vector class_weight(arguments), upstream(arguments), row_weight(arguments), row_scale(arguments),
      divisor(arguments), entropy_upstream(arguments), lse_upstream(arguments);
  const ce_cross_entropy_options of_loss = read_numbers(arguments);
  ce_linear_cross_entropy_options options = CE_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
  options.cross_entropy = &of_loss;
  options.memory_budget = arguments.integer();
  options.chunk_tokens = arguments.integer();
  options.logits_dtype = static_cast<ce_dtype>(arguments.integer());
  options.accumulation = static_cast<ce_dtype>(arguments.integer());
  options.valid_tokens = arguments.integer();
  options.exponentials = static_cast<std::int32_t>(arguments.integer());
  const LinearWanted wanted = LinearWanted::read(arguments);

  const Matrix hidden(std::move(hidden_given), "hidden", "[tokens, hidden]"),
      weight(std::move(weight_given), "weight", "[classes, hidden]");
  const Tensor& like = hidden.tensor;
  require_same_device(weight.tensor, "weight", like);
  require_same_device(target, "target", like);
  LinearTensors tensors = CE_LINEAR_CROSS_ENTROPY_TENSORS_INIT;
  tensors.hidden = &hidden.rows;
  tensors.weight = &weight.rows;
  std::optional<Matrix> probabilities;
  ce_tensor indices{};
  if (target.sizes().size() == 2) {
    probabilities.emplace(std::move(target), "target", "[tokens, classes]");
    tensors.target = &probabilities->rows;
  } else {
    target = target.contiguous();
    indices = vector_of(target);
    tensors.target = &indices;
  }
  const std::int32_t bias_type = bias.tensor ? bias.tensor->dtype() : like.dtype();
  tensors.bias = bias.bind(like, "bias");
  tensors.class_weight = class_weight.bind(like, "class_weight");
  tensors.upstream = upstream.bind(like, "upstream");
  tensors.row_weight = row_weight.bind(like, "row_weight");
  tensors.row_scale = row_scale.bind(like, "row_scale");
  tensors.divisor = divisor.bind(like, "divisor");
  tensors.entropy_upstream = entropy_upstream.bind(like, "entropy_upstream");
  tensors.lse_upstream = lse_upstream.bind(like, "lse_upstream");

  const std::int32_t f32 = aoti_torch_dtype_float32();
  const std::int32_t loss_type = wanted.f32_loss ? f32 : type_of_logits(options.logits_dtype, like);
  using Sizes = std::span<const std::int64_t>;
  const Sizes rows = like.sizes().first(1), classes = weight.tensor.sizes().first(1),
              losses = of_loss.reduction == CE_REDUCTION_NONE ? rows : Sizes();
  struct Own {
    bool is_wanted;
    Sizes sizes;
    std::int32_t type;
    const ce_tensor* LinearTensors::*field;
  };
  const std::array<Own, own_outputs> all{{
      {true, losses, loss_type, &LinearTensors::loss},
      {wanted.hidden_grad, like.sizes(), like.dtype(), &LinearTensors::hidden_grad},
      {wanted.weight_grad, weight.tensor.sizes(), wanted.f32_weight_grad ? f32 : weight.tensor.dtype(),
       &LinearTensors::weight_grad},
      {wanted.bias_grad, classes, bias_type, &LinearTensors::bias_grad},
  }};
  std::array<std::optional<Tensor>, own_outputs> made;
  std::array<ce_tensor, own_outputs> views{};
  for (std::size_t i = 0; i < own_outputs; ++i) {
    if (!all[i].is_wanted) continue;
    made[i] = Tensor::empty(all[i].sizes, all[i].type, like);
    views[i] = vector_of(*made[i]);
    if (all[i].sizes.size() == 2)
      views[i] = ce_matrix(views[i].data, views[i].dtype, all[i].sizes[0], all[i].sizes[1]);
    tensors.*all[i].field = &views[i];
  }
  Outputs rest{.loss = made[0]->share()};
  Views rest_views{};
  give_wanted(wanted.others, tensors, rest_views, rest, [&](const OutputField& output) {
    const bool of_losses = output.kind == OutputField::Kind::of_losses;
    return Tensor::empty(of_losses ? losses : rows, dtype_of(output, loss_type), like);
  });

  if (options.memory_budget == 0)
    options.memory_budget = Budgets::get().of(
        {like.device(), hidden.rows.rows, hidden.rows.columns, weight.rows.rows, hidden.rows.dtype,
         options.chunk_tokens, options.logits_dtype, options.accumulation, wanted.bits()},
        like.device());
  ce_context* context = context_of(like.device());
  ce_linear_schedule schedule = CE_LINEAR_SCHEDULE_INIT;
  require(ce_linear_cross_entropy_schedule(context, &options, &tensors, &schedule));
  const Workspace workspace(schedule.workspace_bytes, like);
  tensors.workspace = &workspace.view;
  require(ce_linear_cross_entropy(context, &options, &tensors, stream_of(like), nullptr));

  for (std::size_t i = 0; i < own_outputs; ++i) {
    Tensor one = given_or(made[i], absent, all[i].type, like);
    give_back(stack + i, one);
  }
  give_back_outputs<ce::LinearCrossEntropy>(stack + own_outputs, rest, absent, rest.loss);
}

}  // namespace

std::vector<Operator> linear_operators() {
  // A number has the name that the output's tensor would have without its ending, so the ending is kept.
  const auto name = [](const OutputField& output) { return std::string(output.name); };
  return {{
      linear_name,
      "Tensor hidden, Tensor weight, Tensor? bias, Tensor target, Tensor? class_weight, Tensor? upstream, "
      "Tensor? row_weight, Tensor? row_scale, Tensor? divisor, Tensor? entropy_upstream, Tensor? "
      "lse_upstream" +
          schema_of_numbers() +
          ", int memory_budget, int chunk_tokens, int logits_dtype, int accumulation, int valid_tokens, "
          "int exponentials, bool f32_loss, bool hidden_grad, bool weight_grad, bool f32_weight_grad, "
          "bool bias_grad" +
          schema_of_flags<ce::LinearCrossEntropy>(name),
      "(Tensor loss, Tensor hidden_grad, Tensor weight_grad, Tensor bias_grad" +
          schema_of_outputs<ce::LinearCrossEntropy>(name) + ")",
      linear_cross_entropy<Absent::empty>,
      linear_cross_entropy<Absent::undefined>,
  }};
}

}  // namespace ce_torch

void ce_torch_ask_free_memory(int32_t (*ask)(int32_t device, int64_t* bytes)) {
  ce_torch::ask_free_memory = ask;
}
