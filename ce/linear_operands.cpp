#include "ce/linear_operands.hpp"

#include <algorithm>
#include <type_traits>

#include "ce/linear_tensors.hpp"

namespace ce {
namespace {

/// A range of rows of a matrix.
template <class T>
T rows_of(const T& tensor, std::int64_t first, std::int64_t count) {
  if (tensor.data == nullptr) return {};
  T rows = tensor;
  using Byte = std::conditional_t<std::is_same_v<T, Tensor>, std::byte, const std::byte>;
  rows.data = static_cast<Byte*>(tensor.data) + first * tensor.row_step() * size_of(tensor.dtype);
  rows.rows = count;
  rows.row_stride = tensor.row_step();
  return rows;
}

/// A range of elements of a vector, which is a column or a row.
template <class T>
T elements_of(const T& tensor, std::int64_t first, std::int64_t count) {
  if (tensor.data == nullptr) return {};
  using Byte = std::conditional_t<std::is_same_v<T, Tensor>, std::byte, const std::byte>;
  return {static_cast<Byte*>(tensor.data) + first * size_of(tensor.dtype), tensor.dtype, count};
}

std::int64_t stride_of(const ConstTensor& tensor) noexcept {
  return std::max(tensor.row_step(), tensor.columns);
}

}  // namespace

LinearOperands::LinearOperands(LinearKernels& kernels, const LinearCrossEntropy& operation,
                               const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
                               const LinearPlan& plan, std::byte* workspace, bool any_order)
    : operation_(operation),
      shape_(shape),
      plan_(plan),
      workspace_(workspace),
      any_order_(any_order),
      valid_(shape.drops_tokens() ? std::optional<ValidTokens>(std::in_place, kernels, operation, tensors,
                                                               shape, plan, workspace)
                                  : std::nullopt),
      tensors_(valid_ ? valid_->tensors() : tensors),
      sums_losses_(plan.schedule.chunks > 1 && shape.reduction != Reduction::none) {}

// ---- The whole call ------------------------------------------------------------------------------------

const generator::LinearStatistics& LinearOperands::statistics() const noexcept {
  return exponentials() ? *shape_.exponentials : *shape_.statistics;
}

ConstTensor LinearOperands::divisor() const {
  if (tensors_.divisor.data != nullptr || !plan_.divisor.exists()) return tensors_.divisor;
  return {at(plan_.divisor), DType::f32, 1};
}

generator::LinearDivisor LinearOperands::divisor_kernel() const {
  const bool probabilities = is_floating(tensors_.target.dtype),
             weights = tensors_.class_weight.data != nullptr && !probabilities;
  return {.target_dtype = probabilities ? DType::i64 : tensors_.target.dtype,
          .weight_dtype = weights ? tensors_.class_weight.dtype : DType::f32,
          .probabilities = probabilities,
          .weights = weights,
          .scales = plan_.class_weight.exists()};
}

LinearArguments LinearOperands::divisor_arguments() const {
  const generator::LinearDivisor kernel = divisor_kernel();
  return {.rows = shape_.tokens,
          .columns = shape_.all_classes,
          .target = kernel.probabilities ? nullptr : tensors_.target.data,
          .weight = kernel.weights ? tensors_.class_weight.data : nullptr,
          .scaled_weight = at<float>(plan_.class_weight),
          .divisor = at<float>(plan_.divisor),
          .ignore_index = operation_.cross_entropy.ignore_index};
}

// ---- The chunk -----------------------------------------------------------------------------------------

void LinearOperands::select(std::int64_t chunk) noexcept {
  chunk_ = chunk;
  first_ = chunk * plan_.schedule.chunk_tokens;
  count_ = std::min(plan_.schedule.chunk_tokens, shape_.tokens - first_);
}

LinearShape LinearOperands::shape() const {
  LinearShape shape = shape_;
  shape.tokens = count_;
  shape.statistics = statistics();
  return shape;
}

ConstTensor LinearOperands::hidden() const {
  return valid_ ? valid_->hidden(count_) : rows_of(tensors_.hidden, first_, count_);
}

Tensor LinearOperands::hidden_gradient() const {
  return valid_ && shape_.hidden_grad ? valid_->hidden_grad(count_)
                                      : rows_of(tensors_.hidden_grad, first_, count_);
}

ConstTensor LinearOperands::upstream() const {
  ConstTensor upstream = tensors_.upstream;
  if (plan_.upstream.exists()) upstream = {at(plan_.upstream), DType::f32, shape_.upstreams};
  return shape_.upstreams == shape_.tokens && shape_.upstreams > 1 ? elements_of(upstream, first_, count_)
                                                                   : upstream;
}

const void* LinearOperands::logits_gradient() const noexcept {
  return plan_.rounded_logits.exists() ? at(plan_.rounded_logits) : at(plan_.logits);
}

// ---- Products ------------------------------------------------------------------------------------------

LinearProduct LinearOperands::product(runtime::Matmul matmul, std::int64_t runtime::Matmul::*tokens,
                                      const void* a, const void* b, void* d, const void* bias) const {
  matmul.alignment = runtime::alignment_of({a, b, d});
  matmul.any_order = any_order_;
  return {{matmul, tokens}, {.a = a, .b = b, .bias = bias, .d = d, .workspace = at(plan_.products)}};
}

LinearProduct LinearOperands::logits_product() const {
  const ConstTensor hidden = this->hidden();
  const void* bias = plan_.bias.exists() ? at(plan_.bias) : tensors_.bias.data;
  return product({.m = count_,
                  .n = shape_.classes,
                  .k = shape_.hidden,
                  .input = shape_.dtype,
                  .output = shape_.logits,
                  .b_transposed = true,
                  .bias = bias != nullptr,
                  .a_stride = stride_of(hidden),
                  .b_stride = stride_of(tensors_.weight),
                  .d_stride = shape_.logits_stride()},
                 &runtime::Matmul::m, hidden.data, tensors_.weight.data, at(plan_.logits), bias);
}

LinearProduct LinearOperands::hidden_product() const {
  const Tensor to = plan_.hidden_product.exists()
                        ? tensor(at<float>(plan_.hidden_product), count_, shape_.hidden)
                        : hidden_gradient();
  return product(hidden_matmul(shape_, tensors_.weight, count_, to.dtype, stride_of(to)), &runtime::Matmul::m,
                 logits_gradient(), tensors_.weight.data, to.data);
}

LinearProduct LinearOperands::weight_product(bool accumulates) const {
  const ConstTensor hidden = exponentials() ? ConstTensor{at(plan_.scaled_hidden), shape_.dtype, count_,
                                                          shape_.hidden, shape_.hidden_stride()}
                                            : this->hidden();
  const bool apart = plan_.weight_sum.exists();
  return product({.m = shape_.classes,
                  .n = shape_.hidden,
                  .k = count_,
                  .input = shape_.dtype,
                  .output = apart ? DType::f32 : shape_.weight_grad_dtype,
                  .a_transposed = true,
                  .accumulates = accumulates,
                  .a_stride = shape_.logits_stride(),
                  .b_stride = stride_of(hidden),
                  .d_stride = shape_.hidden},
                 &runtime::Matmul::k, logits_gradient(), hidden.data,
                 apart ? at(plan_.weight_sum) : tensors_.weight_grad.data);
}

// ---- Kernels of statistics and exponentials ------------------------------------------------------------

/// The members of all kernels' arguments that describe the chunk's rows.
Arguments LinearOperands::row_arguments() const {
  const CrossEntropy& options = operation_.cross_entropy;
  const auto f32_of_rows = [&](const ConstTensor& tensor) {
    return static_cast<const float*>(elements_of(tensor, first_, count_).data);
  };
  Arguments arguments{.rows = count_,
                      .target = elements_of(tensors_.target, first_, count_).data,
                      .weight = tensors_.class_weight.data,
                      .row_weight = f32_of_rows(tensors_.row_weight),
                      .row_scale = f32_of_rows(tensors_.row_scale),
                      .divisor = static_cast<const float*>(divisor().data),
                      .lse_upstream = f32_of_rows(tensors_.lse_upstream),
                      .statistics_words = statistics().words(),
                      .classes = shape_.classes,
                      .ignore_index = options.ignore_index};
  amount_of(&generator::CrossEntropyFlags::scale, arguments) = options.logit_scale;
  amount_of(&generator::CrossEntropyFlags::softcap, arguments) = options.softcap;
  amount_of(&generator::CrossEntropyFlags::z_loss, arguments) = options.z_loss;
  return arguments;
}

LinearStatisticsArguments LinearOperands::statistics_arguments() const {
  const ConstTensor hidden = this->hidden();
  LinearStatisticsArguments arguments{.operands = {.of_rows = hidden.data,
                                                   .of_columns = tensors_.weight.data,
                                                   .rows = count_,
                                                   .columns = shape_.classes,
                                                   .depth = shape_.hidden,
                                                   .row_stride = stride_of(hidden),
                                                   .column_stride = stride_of(tensors_.weight)},
                                      .call = row_arguments(),
                                      .bias = tensors_.bias.data};
  arguments.call.statistics_out = at<unsigned>(plan_.statistics);
  if (exponentials()) {
    arguments.reference = at<float>(plan_.reference);
    arguments.exponentials = at(plan_.logits);
    arguments.exponentials_stride = shape_.logits_stride();
    arguments.raised = at<int>(plan_.raised);
    arguments.maxima = at<float>(plan_.maxima);
  }
  return arguments;
}

LinearExponentialsArguments LinearOperands::exponentials_arguments() const {
  const ConstTensor hidden = this->hidden();
  const Tensor hidden_grad = hidden_gradient();
  LinearExponentialsArguments arguments{
      .call = row_arguments(),
      .upstream_step = shape_.upstreams > 1 ? 1 : 0,
      .counted = valid_ ? valid_->counted() : nullptr,
      .limit = shape_.valid_tokens,
      .hidden = hidden.data,
      .weight = tensors_.weight.data,
      .columns = shape_.hidden,
      .hidden_stride = stride_of(hidden),
      .weight_stride = stride_of(tensors_.weight),
      .reference = at<float>(plan_.reference),
      .exponentials = at(plan_.logits),
      .exponentials_stride = shape_.logits_stride(),
      .raised = at<int>(plan_.raised),
      .maxima = at<float>(plan_.maxima),
      .row_factor = at<float>(plan_.row_factor),
      .target_factor = at<float>(plan_.target_factor),
      .scaled_hidden = at<std::byte>(plan_.scaled_hidden),
      .scaled_stride = shape_.hidden_stride(),
      .order = at<int>(plan_.order),
      .classes_in_order = at<int>(plan_.classes_in_order),
      .product = at<float>(plan_.hidden_product),
      .hidden_grad = hidden_grad.data,
      .hidden_grad_stride = stride_of(hidden_grad),
      .weight_grad = plan_.weight_sum.exists() ? at(plan_.weight_sum) : tensors_.weight_grad.data};
  arguments.call.upstream = upstream().data;
  arguments.call.statistics = at<unsigned>(plan_.statistics);
  return arguments;
}

// ---- Losses --------------------------------------------------------------------------------------------

Tensor LinearOperands::loss() const {
  if (sums_losses_) return {at<float>(plan_.losses) + chunk_, DType::f32, 1};
  const bool of_rows = shape_.reduction == Reduction::none;
  if (tensors_.loss.data != nullptr)
    return of_rows ? elements_of(tensors_.loss, first_, count_) : tensors_.loss;
  const DType dtype = tensors_.upstream.data != nullptr ? tensors_.upstream.dtype : DType::f32;
  return {at(plan_.losses), dtype, of_rows ? count_ : 1};
}

Tensor LinearOperands::z_loss() const {
  if (tensors_.z_loss_out.data == nullptr) return {};
  if (sums_losses_) return {at<float>(plan_.z_losses) + chunk_, DType::f32, 1};
  return shape_.reduction == Reduction::none ? elements_of(tensors_.z_loss_out, first_, count_)
                                             : tensors_.z_loss_out;
}

template <class OfLosses>
OfLosses LinearOperands::rows_of_losses() const {
  const auto own = [&](const auto& tensor) { return elements_of(tensor, first_, count_); };
  OfLosses of_chunk;
  of_chunk.target =
      is_floating(tensors_.target.dtype) ? rows_of(tensors_.target, first_, count_) : own(tensors_.target);
  of_chunk.weight = tensors_.class_weight;
  of_chunk.loss = loss();
  of_chunk.z_loss_out = z_loss();
  of_chunk.divisor = divisor();
  for (const auto& input : token_inputs)
    if (const auto member = input.template of<OfLosses>(); member != nullptr)
      of_chunk.*member = own(tensors_.*input.member);
  for (const auto& output : token_outputs)
    if (const auto member = output.template of<OfLosses>(); member != nullptr)
      of_chunk.*member = own(tensors_.*output.member);
  return of_chunk;
}

CrossEntropyMerge LinearOperands::merge(int splits) const {
  return {.options = operation_.cross_entropy,
          .classes = shape_.classes,
          .ranks = splits,
          .logits = shape_.logits};
}

CrossEntropyMerge::Tensors LinearOperands::merge_tensors(int splits) const {
  auto of_chunk = rows_of_losses<CrossEntropyMerge::Tensors>();
  of_chunk.statistics =
      tensor(at<float>(plan_.statistics), splits * count_, std::int64_t{statistics().words()});
  return of_chunk;
}

CrossEntropy::Tensors LinearOperands::losses_tensors() const {
  auto of_chunk = rows_of_losses<CrossEntropy::Tensors>();
  const Tensor logits{at(plan_.logits), shape_.logits, count_, shape_.classes, shape_.logits_stride()};
  of_chunk.logits = logits;
  of_chunk.upstream = upstream();
  if (plan_.class_weight.exists()) of_chunk.weight = {at(plan_.class_weight), DType::f32, shape_.all_classes};
  if (shape_.gradient()) of_chunk.grad = logits;
  return of_chunk;
}

}  // namespace ce
