#include "ce/linear_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "ce/error.hpp"
#include "ce/linear_plan.hpp"
#include "ce/linear_statistics.hpp"
#include "ce/linear_tensors.hpp"
#include "ce/linear_valid_tokens.hpp"
#include "ce/rank_agreement.hpp"
#include "generator/ceil_div.hpp"
#include "runtime/split_matmuls.hpp"

namespace ce {
namespace {

/// With a larger hidden size, the saved pass over the logits is too small a part of the work to make up for the slower
/// products.
constexpr std::int64_t most_hidden_of_exponentials = 3072;

constexpr std::int64_t line_bytes = 128;

/// Elements from one row to the next, if each begins on a cache line.
std::int64_t stride_in_lines(std::int64_t elements, std::int64_t bytes_of_element) {
  const std::int64_t of_line = line_bytes / bytes_of_element;
  return generator::ceil_div(elements, of_line) * of_line;
}

/// Checks for contiguous rows at equal distances.
void check_rows(std::string_view name, const ConstTensor& tensor, const runtime::Device& device) {
  check_tensor(name, tensor, device);
  if (!is_floating(tensor.dtype))
    throw InvalidArgument(fmt::format("{}.dtype", name), text_of(tensor.dtype), "f32, f16 or bf16");
  if (tensor.batch_rows != 0 || (tensor.columns > 1 && tensor.column_stride != 1))
    throw InvalidArgument(name, text_of_view(tensor),
                          "rows of adjacent elements, with one distance between all rows");
}

/// What is expected of a dtype, for messages.
std::string f32_or(DType own, std::string_view whose) {
  return own == DType::f32 ? fmt::format("f32, the dtype of {}", whose)
                           : fmt::format("f32, or {}, the dtype of {}", name(own), whose);
}

/// Checks vectors [tokens] of any dtype; CrossEntropy checks the rest.
void check_of_tokens(std::string_view name, const ConstTensor& tensor, std::int64_t tokens,
                     const runtime::Device& device) {
  if (!is_given(name, tensor)) return;
  check_tensor(name, tensor, device);
  check_vector(name, tensor, tokens);
}

void check_dtypes(const LinearCrossEntropy& operation, DType dtype) {
  if (const auto logits = operation.logits_dtype; logits && *logits != DType::f32 && *logits != dtype)
    throw InvalidArgument("logits_dtype", text_of(*logits), f32_or(dtype, "hidden"));
  if (operation.memory_budget < 0)
    throw InvalidArgument("memory_budget", fmt::to_string(operation.memory_budget), "0 or more");
  if (operation.chunk_tokens < 0)
    throw InvalidArgument("chunk_tokens", fmt::to_string(operation.chunk_tokens), "0 or more");
}

void check_memory(const LinearCrossEntropy::Tensors& tensors) {
  CallMemory memory;
  const auto add = [&](std::string_view name, const ConstTensor& tensor, bool written) {
    if (tensor.data != nullptr) memory.add(name, tensor, written);
  };
  add("hidden", tensors.hidden, false);
  add("weight", tensors.weight, false);
  add("bias", tensors.bias, false);
  add("target", tensors.target, false);
  add("upstream", tensors.upstream, false);
  add("class_weight", tensors.class_weight, false);
  for (const auto& input : token_inputs) add(input.name, tensors.*input.member, false);
  add("divisor", tensors.divisor, false);
  add("loss", tensors.loss, true);
  add("z_loss_out", tensors.z_loss_out, true);
  for (const auto& output : token_outputs) add(output.name, tensors.*output.member, true);
  add("hidden_grad", tensors.hidden_grad, true);
  add("weight_grad", tensors.weight_grad, true);
  add("bias_grad", tensors.bias_grad, true);
  add("workspace", tensors.workspace, true);
}

/// Whether CUDA's library splits the product of all tokens for the gradient of hidden, which then has f32 sums. On the
/// host device small products count, too, so that its tests cover the rounding of sums.
bool may_be_made_in_two(const LinearShape& shape, const ConstTensor& weight, const runtime::Device& device) {
  const runtime::Matmul product = hidden_matmul(shape, weight, shape.tokens, DType::f32, shape.hidden);
  const bool is_host = device.model().is_host();
  return runtime::split(product, is_host ? 0 : runtime::SplitMatmuls::worth_it).has_value();
}

/// A call whose checks fill in its shape, one after the other.
class CheckedCall {
 public:
  CheckedCall(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
              const runtime::Device& device, const Shard* shard)
      : operation_(operation), tensors_(tensors), device_(device), shard_(shard) {
    if (shard != nullptr) require_communicator(shard->communicator);
    take_matrices();
    take_bias();
    take_gradients();
    take_accumulation();
    check_tensors_of_tokens();
    check_z_loss();
    take_upstream();
    take_valid_tokens();
    take_hidden_product();
    take_class_weight();
    check_workspace();
    check_memory(tensors);
    if (shard != nullptr)
      take_ranks();
    else
      take_kernels();
  }

  [[nodiscard]] const LinearShape& shape() const noexcept { return shape_; }

 private:
  void take_matrices() {
    const ConstTensor &hidden = tensors_.hidden, &weight = tensors_.weight;
    require("hidden", hidden);
    require("weight", weight);
    require("target", tensors_.target);
    check_rows("hidden", hidden, device_);
    check_rows("weight", weight, device_);
    if (weight.rows < 1)
      throw InvalidArgument("weight.rows", fmt::to_string(weight.rows), "1 or more classes");
    if (weight.columns != hidden.columns)
      throw InvalidArgument("weight.columns", fmt::to_string(weight.columns),
                            fmt::format("the {} columns of hidden", hidden.columns));
    check_dtype("weight", weight, hidden.dtype, "the dtype of hidden");
    check_dtypes(operation_, hidden.dtype);
    shape_ = {.tokens = hidden.rows,
              .hidden = hidden.columns,
              .classes = weight.rows,
              .all_classes = shard_ != nullptr ? shard_->classes : weight.rows,
              .dtype = hidden.dtype,
              .logits = operation_.logits_dtype.value_or(hidden.dtype),
              .reduction = operation_.cross_entropy.reduction,
              .budget = operation_.memory_budget,
              .chunk_tokens = operation_.chunk_tokens};
  }

  void take_bias() {
    if (!is_given("bias", tensors_.bias)) return;
    check_rows("bias", tensors_.bias, device_);
    check_vector("bias", tensors_.bias, shape_.classes);
    shape_.converts_bias = tensors_.bias.dtype != shape_.logits;
  }

  void take_gradients() {
    if (is_given("hidden_grad", tensors_.hidden_grad)) {
      check_same_shape("hidden_grad", tensors_.hidden_grad, "hidden", tensors_.hidden);
      check_rows("hidden_grad", tensors_.hidden_grad, device_);
      shape_.hidden_grad = true;
    }
    if (const ConstTensor& grad = *view_of(tensors_.weight_grad); is_given("weight_grad", grad)) {
      ConstTensor model = tensors_.weight;
      model.dtype = grad.dtype;
      check_same_shape("weight_grad", grad, "weight", model);
      check_rows("weight_grad", grad, device_);
      check_f32_or("weight_grad", grad, tensors_.weight.dtype, "weight");
      if (grad.rows > 1 && grad.row_step() != grad.columns)
        throw InvalidArgument("weight_grad", text_of_view(grad), "rows without gaps between them");
      shape_.weight_grad = true;
      shape_.weight_grad_dtype = grad.dtype;
    }
    if (is_given("bias_grad", tensors_.bias_grad)) {
      if (tensors_.bias.data == nullptr)
        throw InvalidArgument("bias_grad.data", "set", "null, because there is no bias");
      check_rows("bias_grad", tensors_.bias_grad, device_);
      check_vector("bias_grad", tensors_.bias_grad, shape_.classes);
      check_f32_or("bias_grad", tensors_.bias_grad, tensors_.bias.dtype, "bias");
      shape_.bias_grad = true;
      shape_.bias_grad_dtype = tensors_.bias_grad.dtype;
    }
  }

  void take_accumulation() {
    if (!operation_.accumulation) return;
    const DType own = shape_.weight_grad ? shape_.weight_grad_dtype : shape_.dtype;
    if (*operation_.accumulation != DType::f32 && *operation_.accumulation != own)
      throw InvalidArgument("accumulation", text_of(*operation_.accumulation), f32_or(own, "weight_grad"));
    (*operation_.accumulation == DType::f32 ? shape_.f32_accumulation : shape_.own_accumulation) = true;
  }

  [[nodiscard]] bool has_probabilities() const { return is_floating(tensors_.target.dtype); }

  /// Vectors of tokens are cut into chunks, so later checks do not see their full length.
  void check_tensors_of_tokens() {
    const ConstTensor& target = tensors_.target;
    if (has_probabilities()) {
      check_rows("target", target, device_);
      if (target.rows != shape_.tokens || target.columns != shape_.classes)
        throw InvalidArgument(
            "target", text_of_view(target),
            fmt::format("class indices, or probabilities {} x {}", shape_.tokens, shape_.classes));
    } else {
      check_of_tokens("target", target, shape_.tokens, device_);
    }
    const std::int64_t losses = shape_.reduction == Reduction::none ? shape_.tokens : 1;
    check_of_tokens("loss", tensors_.loss, losses, device_);
    check_of_tokens("z_loss_out", tensors_.z_loss_out, losses, device_);
    for (const auto& output : token_outputs)
      check_of_tokens(output.name, tensors_.*output.member, shape_.tokens, device_);
    for (const auto& input : token_inputs)
      check_of_tokens(input.name, tensors_.*input.member, shape_.tokens, device_);
    shape_.has_loss = is_given("loss", tensors_.loss);
    if (shape_.has_loss) check_f32_or("loss", tensors_.loss, shape_.logits);
  }

  /// The sum over several chunks has no kernel of cross entropy that would check these.
  void check_z_loss() {
    if (tensors_.z_loss_out.data == nullptr) return;
    if (shape_.has_loss)
      check_dtype("z_loss_out", tensors_.z_loss_out, tensors_.loss.dtype, "the dtype of loss");
    else
      check_f32_or("z_loss_out", tensors_.z_loss_out, shape_.logits);
  }

  void take_upstream() {
    if (const ConstTensor& upstream = tensors_.upstream; is_given("upstream", upstream)) {
      if (!shape_.gradient())
        throw InvalidArgument("upstream.data", "set", "null, because there is no gradient");
      check_tensor("upstream", upstream, device_);
      shape_.upstreams = is_vector(upstream, 1) ? 1 : shape_.tokens;
      check_vector("upstream", upstream, shape_.upstreams);
      check_f32_or("upstream", upstream, shape_.logits);
      if (shape_.has_loss) check_dtype("upstream", upstream, tensors_.loss.dtype, "the dtype of loss");
      shape_.converts_upstream = shape_.reduction != Reduction::none && upstream.dtype != DType::f32;
    }
    shape_.upstream_of_tokens = shape_.upstreams > 1;
  }

  void take_valid_tokens() {
    if (!operation_.valid_tokens) return;
    const std::int64_t valid_tokens = *operation_.valid_tokens;
    if (has_probabilities())
      throw InvalidArgument("valid_tokens", "set", "unset, because targets are probabilities");
    if (valid_tokens < 0 || valid_tokens > shape_.tokens)
      throw InvalidArgument("valid_tokens", fmt::to_string(valid_tokens),
                            fmt::format("0 to {}, the number of tokens", shape_.tokens));
    shape_.all_tokens = shape_.tokens;
    shape_.valid_tokens = valid_tokens;
    // At least one, so that a call in which no token counts needs no special case.
    shape_.tokens = std::min(shape_.all_tokens, std::max<std::int64_t>(valid_tokens, 1));
    if (shape_.upstream_of_tokens) shape_.upstreams = shape_.tokens;
    shape_.vector_bytes = bytes_of_vectors(operation_, tensors_, shape_);
  }

  void take_hidden_product() {
    if (!shape_.hidden_grad) return;
    const std::int64_t stride =
        shape_.drops_tokens() ? shape_.hidden_stride() : tensors_.hidden_grad.row_step();
    shape_.f32_hidden_product =
        stride == shape_.hidden && may_be_made_in_two(shape_, tensors_.weight, device_);
  }

  void take_class_weight() {
    shape_.scales_weights = shape_.reduction == Reduction::mean && !has_probabilities() &&
                            tensors_.class_weight.data != nullptr && operation_.cross_entropy.z_loss != 0 &&
                            tensors_.divisor.data == nullptr;
    if (!is_given("class_weight", tensors_.class_weight)) return;
    check_tensor("class_weight", tensors_.class_weight, device_);
    check_vector("class_weight", tensors_.class_weight, shape_.all_classes);
    check_f32_or("class_weight", tensors_.class_weight, shape_.logits);
  }

  void check_workspace() {
    const ConstTensor& workspace = *view_of(tensors_.workspace);
    if (!is_given("workspace", workspace)) return;
    check_dtype("workspace", workspace, DType::u8, "always");
    check_tensor("workspace", workspace, device_);
    check_vector("workspace", workspace, workspace.rows * workspace.columns);
    if (reinterpret_cast<std::uintptr_t>(workspace.data) % piece_alignment != 0)
      throw InvalidArgument("workspace.data", fmt::format("{}", workspace.data),
                            fmt::format("an address aligned to {} bytes", piece_alignment));
  }

  void take_ranks() {
    if (operation_.exponentials.value_or(false))
      throw InvalidArgument("exponentials", "true", "unset or false, because ranks share the classes");
    if (shape_.all_classes < shape_.classes)
      throw InvalidArgument("classes", fmt::to_string(shape_.all_classes),
                            fmt::format("{} or more, the number of rows of weight", shape_.classes));
    shape_.f32_accumulation = !shape_.own_accumulation;
    if (shape_.chunk_tokens == 0) shape_.chunk_tokens = chunk_of_ranks(shape_, shard_->communicator.size);
  }

  void take_kernels() {
    shape_.statistics = statistics_of(operation_, tensors_, shape_, device_);
    if (operation_.exponentials.value_or(shape_.hidden <= most_hidden_of_exponentials))
      shape_.exponentials = exponentials_of(operation_, tensors_, shape_, device_);
    shape_.wants_exponentials = operation_.exponentials.value_or(false);
    if (shape_.wants_exponentials && shape_.gradient() && shape_.tokens > 0 && !shape_.exponentials)
      throw InvalidArgument(
          "exponentials", "true",
          "unset or false, because this call cannot use them (see LinearCrossEntropy::exponentials)");
    if (shape_.statistics || shape_.exponentials) shape_.multiprocessors = device_.model().multiprocessors;
  }

  const LinearCrossEntropy& operation_;
  const LinearCrossEntropy::Tensors& tensors_;
  const runtime::Device& device_;
  const Shard* const shard_;
  LinearShape shape_;
};

}  // namespace

std::int64_t LinearShape::logits_stride() const noexcept {
  return stride_in_lines(classes, std::min(size_of(dtype), size_of(logits)));
}

std::int64_t LinearShape::hidden_stride() const noexcept { return stride_in_lines(hidden, size_of(dtype)); }

runtime::Matmul hidden_matmul(const LinearShape& shape, const ConstTensor& weight, std::int64_t tokens,
                              DType output, std::int64_t stride) {
  return {.m = tokens,
          .n = shape.hidden,
          .k = shape.classes,
          .input = shape.dtype,
          .output = output,
          .a_stride = shape.logits_stride(),
          .b_stride = std::max(weight.row_step(), weight.columns),
          .d_stride = stride};
}

LinearShape shape_of(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                     const runtime::Device& device, const Shard* shard) {
  return CheckedCall(operation, tensors, device, shard).shape();
}

}  // namespace ce
