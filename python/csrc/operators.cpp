/// \file
/// The operators torch.ops.ce.*, on torch's stable interface. Their schemas are at the end.
///
/// An operator without an underscore in front has autograd, fake tensors and the CPU registered in Python; its twin
/// with one is the kernel alone, for callers that have seen to those. `_eager_softmax` has all but autograd in Python: most
/// calls of softmax reach their kernel through it alone. Where a call is refused nothing was enqueued.

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ce/ce.h"
#include "python/csrc/contexts.hpp"
#include "python/csrc/tensor.hpp"
#include "python/csrc/torch_memory.hpp"

namespace ce_torch {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "small values lie in the first bytes of a StableIValue");

template <class Value>
Value to_value(StableIValue given) {
  Value value;
  static_assert(std::is_trivially_copyable_v<Value> && sizeof value <= sizeof given);
  std::memcpy(&value, &given, sizeof value);
  return value;
}

StableIValue from_tensor(Tensor& tensor) {
  AtenTensorHandle handle = tensor.release();
  StableIValue value = 0;
  std::memcpy(&value, &handle, sizeof handle);
  return value;
}

/// The arguments of a boxed call, taken in turn.
class Arguments {
 public:
  explicit Arguments(const StableIValue* stack) : next_(stack) {}

  Tensor tensor() { return Tensor(to_value<AtenTensorHandle>(*next_++)); }
  std::optional<Tensor> optional_tensor() {
    auto* given = to_value<StableIValue*>(*next_++);
    if (given == nullptr) return std::nullopt;
    const StableIValue value = *given;
    delete given;
    return Tensor(to_value<AtenTensorHandle>(value));
  }
  std::int64_t integer() { return to_value<std::int64_t>(*next_++); }
  float number() { return static_cast<float>(to_value<double>(*next_++)); }
  bool flag() { return to_value<bool>(*next_++); }

 private:
  const StableIValue* next_;
};

template <class... Tensors>
void give_back(StableIValue* stack, Tensors&... tensors) {
  ((*stack++ = from_tensor(tensors)), ...);
}

ce_stream stream_of(const Tensor& tensor) {
  return tensor.device() == host ? nullptr : current_stream(tensor.device());
}

void require_same_device(const Tensor& tensor, const char* name, const Tensor& first) {
  if (tensor.device() != first.device())
    refuse(Refusal::value_error, std::string() + name + " is on another device than the first tensor");
}

/// \throws std::runtime_error naming the operation
std::size_t dimension(std::int64_t dim, const Tensor& tensor, const char* operation) {
  const auto dimensions = static_cast<std::int64_t>(std::max<std::size_t>(1, tensor.sizes().size()));
  if (dim < -dimensions || dim >= dimensions)
    refuse(Refusal::index_error, std::string() + operation + ": dim is " + std::to_string(dim) +
                                     "; expected " + std::to_string(-dimensions) + " to " +
                                     std::to_string(dimensions - 1));
  return static_cast<std::size_t>(dim < 0 ? dim + dimensions : dim);
}

/// What is read, as rows; a copy where the layout is beyond the kernels.
struct Input {
  Input(Tensor&& given, std::size_t dim, const char* operation, const char* argument)
      : tensor(std::move(given)) {
    std::optional<ce_tensor> known = rows_of(tensor, dim);
    if (!known) {
      hint_at_copy(operation, argument);
      tensor = tensor.contiguous();
      known = rows_of(tensor, dim);
    }
    rows = known.value();
  }
  Tensor tensor;
  ce_tensor rows;
};

/// What is written where it is. \throws std::runtime_error for a layout beyond the kernels
ce_tensor written_rows(const Tensor& tensor, std::size_t dim, const char* operation, const char* argument) {
  const std::optional<ce_tensor> rows = rows_of(tensor, dim);
  if (!rows)
    refuse(Refusal::value_error,
           std::string() + operation + ": " + argument +
               " has strides that no kernel writes; expected rows with one stride, or batches of such rows");
  return *rows;
}

std::string text_of(std::span<const std::int64_t> sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

void require_same_sizes(const Tensor& tensor, const Tensor& like, const char* operation,
                        const char* argument) {
  const auto a = tensor.sizes(), b = like.sizes();
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    refuse(Refusal::value_error, std::string() + operation + ": " + argument + " has sizes " + text_of(a) +
                                     "; expected " + text_of(b));
}

// ---- softmax ------------------------------------------------------------------------------------------

struct SoftmaxNames {
  static constexpr const char* name = "softmax";
  using Tensors = ce_softmax_tensors;
  static constexpr Tensors none = CE_SOFTMAX_TENSORS_INIT;
  static constexpr auto run = ce_softmax;
};
struct LogSoftmaxNames {
  static constexpr const char* name = "log_softmax";
  using Tensors = ce_log_softmax_tensors;
  static constexpr Tensors none = CE_LOG_SOFTMAX_TENSORS_INIT;
  static constexpr auto run = ce_log_softmax;
};
struct SoftmaxBackwardNames {
  static constexpr const char* name = "softmax_backward";
  using Tensors = ce_softmax_backward_tensors;
  static constexpr Tensors none = CE_SOFTMAX_BACKWARD_TENSORS_INIT;
  static constexpr auto run = ce_softmax_backward;
};
struct LogSoftmaxBackwardNames {
  static constexpr const char* name = "log_softmax_backward";
  using Tensors = ce_log_softmax_backward_tensors;
  static constexpr Tensors none = CE_LOG_SOFTMAX_BACKWARD_TENSORS_INIT;
  static constexpr auto run = ce_log_softmax_backward;
};

template <class Names>
void run_softmax(const Input& input, const Tensor& output, std::size_t dim) {
  if (output.elements() == 0) return;
  const ce_tensor rows = written_rows(output, dim, Names::name, "out");
  typename Names::Tensors tensors = Names::none;
  tensors.input = &input.rows;
  tensors.output = &rows;
  require(Names::run(context_of(output.device()), nullptr, &tensors, stream_of(output), nullptr));
}

/// (Tensor input, int dim) -> Tensor
template <class Names>
void softmax(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor given = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), given, Names::name);
  Tensor output = Tensor::empty_like(given);
  run_softmax<Names>(Input(std::move(given), dim, Names::name, "input"), output, dim);
  give_back(stack, output);
}

/// (Tensor input, int dim, Tensor(a!) out) -> ()
template <class Names>
void softmax_out(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor given = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), given, Names::name);
  const Tensor output = arguments.tensor();
  require_same_device(output, "out", given);
  require_same_sizes(output, given, Names::name, "out");
  run_softmax<Names>(Input(std::move(given), dim, Names::name, "input"), output, dim);
}

/// (Tensor(a!) self, int dim) -> ()
template <class Names>
void softmax_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  const Tensor given = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), given, Names::name);
  if (given.elements() == 0) return;
  const ce_tensor rows = written_rows(given, dim, Names::name, "self");
  typename Names::Tensors tensors = Names::none;
  tensors.input = tensors.output = &rows;
  require(Names::run(context_of(given.device()), nullptr, &tensors, stream_of(given), nullptr));
}

template <class Names>
void run_softmax_backward(Tensor&& output_grad, Tensor&& output, const Tensor& input_grad, std::size_t dim) {
  if (input_grad.elements() == 0) return;
  require_same_device(output_grad, "grad_output", output);
  require_same_sizes(output_grad, output, Names::name, "grad_output");
  const Input grad(std::move(output_grad), dim, Names::name, "grad_output");
  const Input result(std::move(output), dim, Names::name, "output");
  const ce_tensor rows = written_rows(input_grad, dim, Names::name, "grad_input");
  typename Names::Tensors tensors = Names::none;
  tensors.output = &result.rows;
  tensors.output_grad = &grad.rows;
  tensors.input_grad = &rows;
  require(Names::run(context_of(input_grad.device()), nullptr, &tensors, stream_of(input_grad), nullptr));
}

/// (Tensor grad_output, Tensor output, int dim) -> Tensor
template <class Names>
void softmax_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor grad = arguments.tensor(), output = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), output, Names::name);
  Tensor input_grad = Tensor::empty_like(output);
  run_softmax_backward<Names>(std::move(grad), std::move(output), input_grad, dim);
  give_back(stack, input_grad);
}

/// (Tensor grad_output, Tensor output, int dim, Tensor(a!) grad_input) -> ()
template <class Names>
void softmax_backward_out(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor grad = arguments.tensor(), output = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), output, Names::name);
  const Tensor input_grad = arguments.tensor();
  require_same_device(input_grad, "grad_input", output);
  require_same_sizes(input_grad, output, Names::name, "grad_input");
  run_softmax_backward<Names>(std::move(grad), std::move(output), input_grad, dim);
}

// ---- cross entropy ------------------------------------------------------------------------------------

/// A tensor that may be given beside the logits, as one element after the other.
struct Vector {
  explicit Vector(Arguments& arguments) : tensor(arguments.optional_tensor()) {}

  /// \returns its elements; null where it is not given
  const ce_tensor* bind(const Tensor& logits, const char* argument) {
    if (!tensor) return nullptr;
    require_same_device(*tensor, argument, logits);
    tensor = tensor->contiguous();
    view = vector_of(*tensor);
    return &view;
  }

  std::optional<Tensor> tensor;
  ce_tensor view{};
};

/// What both directions of cross entropy have in common. Reads its arguments in the order of the schemas: logits,
/// target and class weights; then what the direction has of its own; then read_options().
struct Call {
  static constexpr const char* name = "cross_entropy";

  explicit Call(Arguments& arguments)
      : logits_given(arguments.tensor()), target(arguments.tensor()), weight(arguments) {}

  void read_options(Arguments& arguments) {
    row_weight.emplace(arguments);
    row_scale.emplace(arguments);
    divisor.emplace(arguments);
    options.ignore_index = arguments.integer();
    options.reduction = static_cast<ce_reduction>(arguments.integer());
    options.label_smoothing = arguments.number();
    options.z_loss = arguments.number();
    options.softcap = arguments.number();
    options.logit_scale = arguments.number();
    options.token_scaling = arguments.number();
  }

  /// Brings the target into a form that kernels read.
  void prepare() {
    require_same_device(target, "target", logits_given);
    class_dim = logits_given.sizes().size() < 2 ? 0 : 1;
    const ce_dtype type = target.ce_type();
    if (type == CE_DTYPE_I64 || type == CE_DTYPE_I32) {
      const std::vector<std::int64_t> expected = row_sizes();
      const auto sizes = target.sizes();
      if (!std::equal(sizes.begin(), sizes.end(), expected.begin(), expected.end()))
        refuse(Refusal::value_error, "cross_entropy: target has sizes " + text_of(sizes) + "; expected " +
                                         text_of(expected) + ", those of the logits without their classes");
      target = target.contiguous();
      target_rows = vector_of(target);
    } else {
      require_same_sizes(target, logits_given, name, "target");
      Input probabilities(std::move(target), class_dim, name, "target");
      target_rows = probabilities.rows;
      target = std::move(probabilities.tensor);
    }
  }

  /// Binds what both directions may be given, once the target is prepared.
  template <class Tensors>
  void bind_shared(Tensors& tensors) {
    tensors.target = &target_rows;
    tensors.weight = weight.bind(logits_given, "weight");
    tensors.row_weight = bind_rows(*row_weight, "row_weight");
    if constexpr (requires { tensors.row_scale; }) tensors.row_scale = bind_rows(*row_scale, "row_scale");
    tensors.divisor = divisor->bind(logits_given, "divisor");
  }

  /// One element a row. \throws std::runtime_error for other sizes
  const ce_tensor* bind_rows(Vector& rows, const char* argument) const {
    if (rows.tensor) {
      const std::vector<std::int64_t> expected = row_sizes();
      const auto sizes = rows.tensor->sizes();
      if (!std::equal(sizes.begin(), sizes.end(), expected.begin(), expected.end()))
        refuse(Refusal::value_error, std::string() + name + ": " + argument + " has sizes " + text_of(sizes) +
                                         "; expected " + text_of(expected) + ", one for each row");
    }
    return rows.bind(logits_given, argument);
  }

  [[nodiscard]] std::int64_t rows() const {
    const auto sizes = logits_given.sizes();
    const std::int64_t classes = sizes.empty() ? 1 : sizes[class_dim];
    return classes == 0 ? 0 : logits_given.elements() / classes;
  }

  /// Sizes of what has one element a row.
  [[nodiscard]] std::vector<std::int64_t> row_sizes() const {
    std::vector<std::int64_t> sizes(logits_given.sizes().begin(), logits_given.sizes().end());
    if (!sizes.empty()) sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(class_dim));
    return sizes;
  }
  [[nodiscard]] Tensor empty_rows(std::int32_t dtype) const {
    const std::vector<std::int64_t> sizes = row_sizes();
    std::vector<std::int64_t> strides(sizes.size());
    std::int64_t next = 1;
    for (std::size_t d = sizes.size(); d-- > 0; next *= std::max<std::int64_t>(1, sizes[d]))
      strides[d] = next;
    return Tensor::empty(sizes, strides, dtype, logits_given);
  }
  [[nodiscard]] Tensor empty_loss(std::int32_t dtype) const {
    return options.reduction == CE_REDUCTION_NONE ? empty_rows(dtype)
                                                  : Tensor::empty_scalar(dtype, logits_given);
  }

  Tensor logits_given, target;
  Vector weight;
  std::optional<Vector> row_weight, row_scale, divisor;
  std::size_t class_dim = 0;
  ce_tensor target_rows{};
  ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
};

enum class Gradient { none, fresh, in_place };

/// What stands for an output that was not asked for.
enum class Absent {
  undefined,  ///< Python sees None
  empty,      ///< no elements: what a schema and fake tensors can say
};

/// Whether logsumexp, z-loss, argmax, hit, log-probability and entropy are in the schema.
enum class Rest { is_said, is_left_out };

/// Nothing in place of what was not asked for.
struct Outputs {
  Tensor loss;
  std::optional<Tensor> grad, z_loss, lse, argmax, hit, logprob, entropy;
};

/// Outputs beside the loss that a call asks for.
struct Wanted {
  bool z_loss = false, lse = false, argmax = false, hit = false, logprob = false, entropy = false;

  /// A flag for each.
  [[nodiscard]] static Wanted read(Arguments& arguments) {
    const bool z_loss = arguments.flag(), lse = arguments.flag();
    return with_rest(z_loss, lse, arguments);
  }
  /// The lse always is, and has no flag.
  [[nodiscard]] static Wanted read_with_lse(Arguments& arguments) {
    return with_rest(arguments.flag(), true, arguments);
  }

 private:
  [[nodiscard]] static Wanted with_rest(bool z_loss, bool lse, Arguments& arguments) {
    // In the order of the flags: so a list in braces is evaluated.
    return {z_loss, lse, arguments.flag(), arguments.flag(), arguments.flag(), arguments.flag()};
  }
};

/// What tensors of the C interface point to, for each output beside the loss.
using Views = std::array<ce_tensor, 6>;

/// Makes the outputs that are wanted, where the operation is told of them.
template <class Tensors>
void give_wanted(const Call& call, const Wanted& wanted, std::int32_t loss_type, Tensors& tensors,
                 Views& views, Outputs& outputs) {
  const auto give = [](const ce_tensor*& field, ce_tensor& view, std::optional<Tensor>& output, Tensor made) {
    view = vector_of(made);
    field = &view;
    output = std::move(made);
  };
  const std::int32_t f32 = aoti_torch_dtype_float32();
  if (wanted.z_loss) give(tensors.z_loss_out, views[0], outputs.z_loss, call.empty_loss(loss_type));
  if (wanted.lse) give(tensors.lse, views[1], outputs.lse, call.empty_rows(f32));
  if (wanted.argmax)
    give(tensors.argmax, views[2], outputs.argmax, call.empty_rows(aoti_torch_dtype_int64()));
  if (wanted.hit) give(tensors.hit, views[3], outputs.hit, call.empty_rows(aoti_torch_dtype_bool()));
  if (wanted.logprob) give(tensors.logprob, views[4], outputs.logprob, call.empty_rows(f32));
  if (wanted.entropy) give(tensors.entropy, views[5], outputs.entropy, call.empty_rows(f32));
}

/// Runs the forward operation.
Outputs forward(Arguments& arguments, Gradient gradient, Rest rest) {
  Call call(arguments);
  std::optional<Vector> upstream;
  if (gradient != Gradient::none) upstream.emplace(arguments);
  call.read_options(arguments);
  const bool f32_loss = arguments.flag();
  const Wanted wanted = rest == Rest::is_said ? Wanted::read_with_lse(arguments) : Wanted{};
  call.prepare();

  const Tensor& like = call.logits_given;
  const std::int32_t loss_type = f32_loss ? aoti_torch_dtype_float32() : like.dtype();
  Outputs outputs{.loss = call.empty_loss(loss_type)};
  ce_cross_entropy_tensors tensors = CE_CROSS_ENTROPY_TENSORS_INIT;
  std::optional<Input> logits;
  ce_tensor logits_rows{}, grad_rows{};
  if (gradient == Gradient::in_place) {
    logits_rows = written_rows(like, call.class_dim, Call::name, "logits");
    tensors.grad = &logits_rows;
  } else {
    logits.emplace(like.share(), call.class_dim, Call::name, "logits");
    logits_rows = logits->rows;
  }
  if (gradient == Gradient::fresh) {
    outputs.grad = Tensor::empty_like(like);
    grad_rows = written_rows(*outputs.grad, call.class_dim, Call::name, "grad");
    tensors.grad = &grad_rows;
  }
  const ce_tensor loss = vector_of(outputs.loss);
  tensors.logits = &logits_rows;
  tensors.loss = &loss;
  call.bind_shared(tensors);
  if (upstream) tensors.upstream = upstream->bind(like, "upstream");

  Views views{};
  give_wanted(call, wanted, loss_type, tensors, views, outputs);
  require(ce_cross_entropy(context_of(like.device()), &call.options, &tensors, stream_of(like), nullptr));
  return outputs;
}

/// An output, or what stands for one of that dtype.
Tensor given_or(std::optional<Tensor>& output, Absent absent, std::int32_t dtype, const Tensor& like) {
  if (output) return std::move(*output);
  return absent == Absent::empty ? Tensor::empty(0, dtype, like) : Tensor::undefined();
}

/// Loss, and gradient where there is one, then z-loss, logsumexp, argmax, hit, log-probability and entropy.
template <Absent absent>
void give_back_all(StableIValue* stack, Outputs& made) {
  const Tensor like = made.loss.share();
  Tensor z_loss = given_or(made.z_loss, absent, like.dtype(), like);
  Tensor lse = given_or(made.lse, absent, aoti_torch_dtype_float32(), like);
  Tensor argmax = given_or(made.argmax, absent, aoti_torch_dtype_int64(), like);
  Tensor hit = given_or(made.hit, absent, aoti_torch_dtype_bool(), like);
  Tensor logprob = given_or(made.logprob, absent, aoti_torch_dtype_float32(), like);
  Tensor entropy = given_or(made.entropy, absent, aoti_torch_dtype_float32(), like);
  if (made.grad)
    give_back(stack, made.loss, *made.grad, z_loss, lse, argmax, hit, logprob, entropy);
  else
    give_back(stack, made.loss, z_loss, lse, argmax, hit, logprob, entropy);
}

/// ... -> (Tensor loss, and the rest)
template <Absent absent>
void cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::none, Rest::is_said);
  give_back_all<absent>(stack, made);
}

/// ... -> Tensor loss
void cross_entropy_loss(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::none, Rest::is_left_out);
  give_back(stack, made.loss);
}

/// ... -> (Tensor loss, Tensor grad)
void cross_entropy_loss_and_grad(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::fresh, Rest::is_left_out);
  give_back(stack, made.loss, *made.grad);
}

/// ... -> (Tensor loss, Tensor grad, and the rest)
template <Absent absent>
void cross_entropy_with_grad(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::fresh, Rest::is_said);
  give_back_all<absent>(stack, made);
}

/// ... -> (Tensor loss, and the rest), the gradient over the logits
template <Absent absent>
void cross_entropy_with_grad_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::in_place, Rest::is_said);
  give_back_all<absent>(stack, made);
}

/// ... -> (Tensor loss, Tensor z_loss, Tensor logprob), from logsumexps
void cross_entropy_from_lse(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Call call(arguments);
  const Tensor lse = arguments.tensor().contiguous();
  call.read_options(arguments);
  const bool f32_loss = arguments.flag(), wants_z_loss = arguments.flag();
  call.prepare();

  const Tensor& like = call.logits_given;
  const std::int32_t loss_type = f32_loss ? aoti_torch_dtype_float32() : like.dtype();
  const Input logits(like.share(), call.class_dim, Call::name, "logits");
  Tensor loss = call.empty_loss(loss_type), logprob = call.empty_rows(aoti_torch_dtype_float32());
  Tensor z_loss = wants_z_loss ? call.empty_loss(loss_type) : Tensor::empty(0, loss_type, like);
  const ce_tensor loss_view = vector_of(loss), z_loss_view = vector_of(z_loss),
                  logprob_rows = vector_of(logprob), lse_rows = vector_of(lse);
  ce_cross_entropy_tensors tensors = CE_CROSS_ENTROPY_TENSORS_INIT;
  tensors.logits = &logits.rows;
  tensors.loss = &loss_view;
  tensors.logprob = &logprob_rows;
  tensors.given_lse = &lse_rows;
  if (wants_z_loss) tensors.z_loss_out = &z_loss_view;
  call.bind_shared(tensors);
  require(ce_cross_entropy(context_of(like.device()), &call.options, &tensors, stream_of(like), nullptr));
  give_back(stack, loss, z_loss, logprob);
}

/// \returns the gradient, which is the logits themselves in place
Tensor backward(Arguments& arguments, Gradient gradient) {
  Call call(arguments);
  const Tensor lse = arguments.tensor().contiguous();
  Vector upstream(arguments), logprob(arguments), entropy(arguments), entropy_upstream(arguments),
      lse_upstream(arguments);
  call.read_options(arguments);
  call.prepare();

  const Tensor& like = call.logits_given;
  Tensor grad = gradient == Gradient::in_place ? like.share() : Tensor::empty_like(like);
  const ce_tensor grad_rows = written_rows(grad, call.class_dim, Call::name, "grad");
  std::optional<Input> logits;
  ce_cross_entropy_backward_tensors tensors = CE_CROSS_ENTROPY_BACKWARD_TENSORS_INIT;
  if (gradient == Gradient::in_place) {
    tensors.logits = &grad_rows;
  } else {
    logits.emplace(like.share(), call.class_dim, Call::name, "logits");
    tensors.logits = &logits->rows;
  }
  const ce_tensor lse_rows = vector_of(lse);
  call.bind_shared(tensors);
  tensors.lse = &lse_rows;
  tensors.upstream = upstream.bind(like, "upstream");
  tensors.logprob = call.bind_rows(logprob, "logprob");
  tensors.entropy = call.bind_rows(entropy, "entropy");
  tensors.entropy_upstream = call.bind_rows(entropy_upstream, "entropy_upstream");
  tensors.lse_upstream = call.bind_rows(lse_upstream, "lse_upstream");
  tensors.grad = &grad_rows;
  const ce_cross_entropy_backward_options options = ce_cross_entropy_backward_of(&call.options);
  require(ce_cross_entropy_backward(context_of(like.device()), &options, &tensors, stream_of(like), nullptr));
  return grad;
}

/// ... -> Tensor grad
void cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor grad = backward(arguments, Gradient::fresh);
  give_back(stack, grad);
}

/// ... -> (), the gradient over the logits
void cross_entropy_backward_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  static_cast<void>(backward(arguments, Gradient::in_place));
}

// ---- cross entropy of classes that ranks share ---------------------------------------------------------

/// [rows, words] or [ranks x rows, words], as rows of words.
ce_tensor words_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() != 2)
    refuse(Refusal::value_error,
           "cross_entropy: statistics has sizes " + text_of(sizes) + "; expected [rows, words]");
  return ce_matrix(tensor.data(), CE_DTYPE_F32, sizes[0], sizes[1]);
}

bool has_probabilities(const Call& call) {
  const ce_dtype type = call.target_rows.dtype;
  return type != CE_DTYPE_I64 && type != CE_DTYPE_I32;
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
  require(ce_cross_entropy_shard_words(&options, like.ce_type(), has_probabilities(call) ? 1 : 0, &words));
  Tensor statistics = empty_words(call.rows(), words, like);
  const Input logits(like.share(), call.class_dim, Call::name, "logits");
  const ce_tensor rows = words_of(statistics);
  ce_cross_entropy_shard_tensors tensors = CE_CROSS_ENTROPY_SHARD_TENSORS_INIT;
  tensors.logits = &logits.rows;
  tensors.target = &call.target_rows;
  tensors.weight = call.weight.bind(like, "weight");
  tensors.statistics = &rows;
  require(ce_cross_entropy_shard(context_of(like.device()), &options, &tensors, stream_of(like), nullptr));
  give_back(stack, statistics);
}

/// ... -> (Tensor loss, Tensor z_loss, Tensor lse, Tensor argmax, Tensor hit, Tensor logprob, Tensor entropy,
///         Tensor merged)
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
  const Wanted wanted = Wanted::read(arguments);
  call.prepare();
  const Tensor& like = call.logits_given;
  options.logits = like.ce_type();
  options.probabilities = has_probabilities(call) ? 1 : 0;
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
  tensors.target = options.probabilities != 0 ? nullptr : &call.target_rows;
  tensors.weight = call.weight.bind(like, "weight");
  tensors.row_weight = call.bind_rows(*call.row_weight, "row_weight");
  tensors.divisor = call.divisor->bind(like, "divisor");
  tensors.loss = &loss;
  Views views{};
  give_wanted(call, wanted, loss_type, tensors, views, outputs);
  require(ce_cross_entropy_merge(context_of(like.device()), &options, &tensors, stream_of(like), nullptr));
  constexpr std::size_t before = 7;
  give_back_all<absent>(stack, outputs);
  give_back(stack + before, merged);
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
  Tensor grad = gradient == Gradient::in_place ? like.share() : Tensor::empty_like(like);
  const ce_tensor grad_rows = written_rows(grad, call.class_dim, Call::name, "grad");
  std::optional<Input> logits;
  ce_cross_entropy_shard_backward_tensors tensors = CE_CROSS_ENTROPY_SHARD_BACKWARD_TENSORS_INIT;
  if (gradient == Gradient::in_place) {
    tensors.logits = &grad_rows;
  } else {
    logits.emplace(like.share(), call.class_dim, Call::name, "logits");
    tensors.logits = &logits->rows;
  }
  require_same_device(statistics, "statistics", like);
  const ce_tensor merged = words_of(statistics);
  tensors.statistics = &merged;
  call.bind_shared(tensors);
  tensors.upstream = upstream.bind(like, "upstream");
  tensors.entropy_upstream = call.bind_rows(entropy_upstream, "entropy_upstream");
  tensors.lse_upstream = call.bind_rows(lse_upstream, "lse_upstream");
  tensors.grad = &grad_rows;
  require(ce_cross_entropy_shard_backward(context_of(like.device()), &options, &tensors, stream_of(like),
                                          nullptr));
  if constexpr (gradient != Gradient::in_place) give_back(stack, grad);
}

/// What both operators on ranks that tell each other are given.
struct ExchangeCall : Call {
  explicit ExchangeCall(Arguments& arguments)
      : Call(arguments), upstream(arguments), grad(arguments.tensor()) {
    read_options(arguments);
    const bool f32_loss = arguments.flag();
    exchange.options = &options;
    exchange.first_class = arguments.integer();
    exchange.classes = arguments.integer();
    exchange.peers = reinterpret_cast<const ce_peer_memory*>(arguments.integer());
    const Wanted wanted = Wanted::read(arguments);
    prepare();
    require_same_device(grad, "grad", logits_given);
    logits.emplace(logits_given.share(), class_dim, Call::name, "logits");
    grad_rows = written_rows(grad, class_dim, Call::name, "grad");
    const std::int32_t loss_type = f32_loss ? aoti_torch_dtype_float32() : logits_given.dtype();
    outputs.loss = empty_loss(loss_type);
    loss = vector_of(outputs.loss);
    tensors.logits = &logits->rows;
    tensors.grad = &grad_rows;
    tensors.loss = &loss;
    bind_shared(tensors);
    tensors.upstream = upstream.bind(logits_given, "upstream");
    give_wanted(*this, wanted, loss_type, tensors, views, outputs);
  }
  ExchangeCall(const ExchangeCall&) = delete;
  ExchangeCall& operator=(const ExchangeCall&) = delete;

  Vector upstream;
  Tensor grad;
  ce_cross_entropy_exchange_options exchange = CE_CROSS_ENTROPY_EXCHANGE_OPTIONS_INIT;
  ce_cross_entropy_exchange_tensors tensors = CE_CROSS_ENTROPY_EXCHANGE_TENSORS_INIT;
  Outputs outputs{.loss = Tensor::undefined()};

 private:
  std::optional<Input> logits;
  ce_tensor grad_rows{}, loss{};
  Views views{};
};

/// ... -> (Tensor loss, Tensor z_loss, Tensor lse, Tensor argmax, Tensor hit, Tensor logprob, Tensor entropy)
template <Absent absent>
void cross_entropy_exchange(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  ExchangeCall call(arguments);
  const Tensor& like = call.logits_given;
  require(ce_cross_entropy_exchange(context_of(like.device()), &call.exchange, &call.tensors, stream_of(like),
                                    nullptr));
  give_back_all<absent>(stack, call.outputs);
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

/// (Tensor(a!) grad, Tensor upstream) -> ()
void scale_gradient(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* name = "scale_gradient_";
  Arguments arguments(stack);
  const Tensor grad = arguments.tensor(), upstream = arguments.tensor();
  require_same_device(upstream, "upstream", grad);
  if (!grad.is_dense())
    refuse(Refusal::value_error, std::string() + name + ": grad has gaps; expected a dense tensor");
  if (grad.elements() == 0) return;
  const ce_tensor elements = vector_of(grad), factor = vector_of(upstream);
  require(ce_scale_gradient(context_of(grad.device()), &elements, &factor, stream_of(grad)));
}

// ---- schemas ------------------------------------------------------------------------------------------

using Boxed = void (*)(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs);

struct Operator {
  std::string name, arguments, returns;
  Boxed boxed, twin;
};

template <class Forward, class Backward>
void add_softmax(std::vector<Operator>& all) {
  const auto add = [&all](const std::string& name, const char* arguments, const char* returns, Boxed boxed) {
    all.push_back({name, arguments, returns, boxed, boxed});
  };
  const std::string forward = Forward::name, backward = Backward::name;
  add(forward, "Tensor input, int dim", "Tensor", softmax<Forward>);
  add(forward + "_out", "Tensor input, int dim, Tensor(a!) out", "()", softmax_out<Forward>);
  add(forward + "_", "Tensor(a!) self, int dim", "()", softmax_in_place<Forward>);
  add(backward, "Tensor grad_output, Tensor output, int dim", "Tensor", softmax_backward<Backward>);
  add(backward + "_out", "Tensor grad_output, Tensor output, int dim, Tensor(a!) grad_input", "()",
      softmax_backward_out<Backward>);
}

std::vector<Operator> operators() {
  const std::string options =
      ", Tensor? row_weight, Tensor? row_scale, Tensor? divisor, int ignore_index, int reduction, float "
      "label_smoothing, "
      "float z_loss, float softcap, float logit_scale, float token_scaling";
  const std::string f32_loss = options + ", bool f32_loss";
  const std::string wanted =
      f32_loss +
      ", bool return_z_loss, bool return_argmax, bool return_hit, bool return_logprob, bool return_entropy";
  const std::string read = "Tensor logits, Tensor target, Tensor? weight",
                    written = "Tensor(a!) logits, Tensor target, Tensor? weight",
                    upstream = ", Tensor? upstream";
  const std::string backward =
      " logits, Tensor target, Tensor? weight, Tensor lse" + upstream +
      ", Tensor? logprob, Tensor? entropy, Tensor? entropy_upstream, Tensor? lse_upstream" + options;
  const std::string rest =
      "Tensor z_loss, Tensor lse, Tensor argmax, Tensor hit, Tensor logprob, Tensor entropy)";

  std::vector<Operator> all;
  const auto add = [&all](const char* name, const std::string& arguments, const std::string& returns,
                          Boxed boxed, Boxed twin) {
    all.push_back({name, arguments, returns, boxed, twin});
  };
  add_softmax<SoftmaxNames, SoftmaxBackwardNames>(all);
  add_softmax<LogSoftmaxNames, LogSoftmaxBackwardNames>(all);
  add("cross_entropy", read + wanted, "(Tensor loss, " + rest, cross_entropy<Absent::empty>,
      cross_entropy<Absent::undefined>);
  add("cross_entropy_loss", read + f32_loss, "Tensor", cross_entropy_loss, cross_entropy_loss);
  add("cross_entropy_loss_and_grad", read + upstream + f32_loss, "(Tensor loss, Tensor grad)",
      cross_entropy_loss_and_grad, cross_entropy_loss_and_grad);
  add("cross_entropy_with_grad", read + upstream + wanted, "(Tensor loss, Tensor grad, " + rest,
      cross_entropy_with_grad<Absent::empty>, cross_entropy_with_grad<Absent::undefined>);
  add("cross_entropy_with_grad_", written + upstream + wanted, "(Tensor loss, " + rest,
      cross_entropy_with_grad_in_place<Absent::empty>, cross_entropy_with_grad_in_place<Absent::undefined>);
  add("cross_entropy_from_lse", read + ", Tensor lse" + f32_loss + ", bool return_z_loss",
      "(Tensor loss, Tensor z_loss, Tensor logprob)", cross_entropy_from_lse, cross_entropy_from_lse);
  add("cross_entropy_backward", "Tensor" + backward, "Tensor", cross_entropy_backward,
      cross_entropy_backward);
  add("cross_entropy_backward_", "Tensor(a!)" + backward, "()", cross_entropy_backward_in_place,
      cross_entropy_backward_in_place);
  const std::string of_shard = options + ", int first_class, int classes";
  const std::string shard_backward = " logits, Tensor target, Tensor? weight, Tensor statistics" + upstream +
                                     ", Tensor? entropy_upstream, Tensor? lse_upstream" + of_shard;
  add("cross_entropy_shard", read + of_shard + ", bool lse, bool argmax, bool entropy", "Tensor",
      cross_entropy_shard, cross_entropy_shard);
  add("cross_entropy_merge",
      read + ", Tensor statistics" + f32_loss +
          ", int classes, int ranks, bool z_loss, bool lse, bool argmax, bool hit, bool logprob, bool "
          "entropy",
      "(Tensor loss, " + rest.substr(0, rest.size() - 1) + ", Tensor merged)",
      cross_entropy_merge<Absent::empty>, cross_entropy_merge<Absent::undefined>);
  add("cross_entropy_shard_backward", "Tensor" + shard_backward, "Tensor",
      cross_entropy_shard_backward<Gradient::fresh>, cross_entropy_shard_backward<Gradient::fresh>);
  add("cross_entropy_shard_backward_", "Tensor(a!)" + shard_backward, "()",
      cross_entropy_shard_backward<Gradient::in_place>, cross_entropy_shard_backward<Gradient::in_place>);
  const std::string exchange = read + upstream + ", Tensor(a!) grad" + f32_loss +
                               ", int first_class, int classes, int peers, bool z_loss, bool lse, bool "
                               "argmax, bool hit, bool logprob, "
                               "bool entropy";
  add("cross_entropy_exchange", exchange, "(Tensor loss, " + rest, cross_entropy_exchange<Absent::empty>,
      cross_entropy_exchange<Absent::undefined>);
  add("cross_entropy_exchange_is_possible", exchange, "bool", cross_entropy_exchange_is_possible,
      cross_entropy_exchange_is_possible);
  add("scale_gradient_", "Tensor(a!) grad, Tensor upstream", "()", scale_gradient, scale_gradient);
  return all;
}

}  // namespace

STABLE_TORCH_LIBRARY(ce, library) {
  for (const char* name : {"_eager_softmax", "_eager_log_softmax"})
    library.def((std::string(name) + "(Tensor input, int dim) -> Tensor").c_str());
  for (const Operator& one : operators())
    for (const std::string& name : {one.name, "_" + one.name})
      library.def((name + "(" + one.arguments + ") -> " + one.returns).c_str());
}

STABLE_TORCH_LIBRARY_IMPL(ce, CUDA, library) {
  library.impl("_eager_softmax", softmax<SoftmaxNames>);
  library.impl("_eager_log_softmax", softmax<LogSoftmaxNames>);
  for (const Operator& one : operators()) {
    library.impl(one.name.c_str(), one.boxed);
    library.impl(("_" + one.name).c_str(), one.twin);
  }
}

// The host device, of which Python decides.
STABLE_TORCH_LIBRARY_IMPL(ce, CPU, library) {
  for (const Operator& one : operators()) library.impl(("_" + one.name).c_str(), one.twin);
}

}  // namespace ce_torch
