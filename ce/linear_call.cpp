#include "ce/linear_call.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "ce/context_impl.hpp"
#include "ce/request.hpp"

namespace ce {

void LinearCall::check() {
  if (shape_.tokens == 0 || shard_ != nullptr) return;
  operands_.select(0);
  static_cast<void>(problem_of_losses(1));
}

generator::Problem LinearCall::problem_of_losses(int splits) const {
  if (merges()) return bind(operands_.merge(splits), operands_.merge_tensors(splits), parts_.device).problem;
  return bind(operation_.cross_entropy, operands_.losses_tensors(), parts_.device).problem;
}

void LinearCall::require_winners() {
  Chooser& chooser = context_.impl_->chooser;
  if (chooser.policy() != Policy::frozen || shard_ != nullptr) return;
  for (const std::int64_t chunk :
       {std::int64_t{0}, plan_.schedule.chunks - 1}) {  // all but the last are equal
    operands_.select(chunk);
    static_cast<void>(chooser.choose(problem_of_losses(merges() ? way().messages() : 1), stream_));
  }
}

const Choice* LinearCall::run() {
  if (shape_.tokens == 0) return run_without_tokens();
  if (shape_.statistics) return run_without_logits();
  if (operands_.exponentials() && !tune_statistics()) return nullptr;
  require_winners();
  tune_products();
  return enqueue();
}

const Choice* LinearCall::enqueue() {
  const Choice* choice = nullptr;
  prepare();
  for (std::int64_t chunk = 0; chunk < plan_.schedule.chunks; ++chunk) {
    operands_.select(chunk);
    if (auto& valid = operands_.valid()) valid->gather_hidden(operands_.first(), operands_.count(), stream_);
    if (operands_.exponentials()) {
      const LinearWay way = this->way();
      choice = take_statistics(way);
      find_factors(way, operands_.exponentials_arguments(), stream_);
      make_gradients_of_exponentials();
    } else {
      make(operands_.logits_product());
      choice = run_cross_entropy(operands_.losses_tensors());
      make_gradients_of_logits();
    }
    has_chosen_kernels_ = has_chosen_kernels_ && (choice == nullptr || !choice->provisional);
  }
  finish();
  return choice;
}

/// A call without tokens: the loss of nothing, and gradients of zero for sums over tokens.
const Choice* LinearCall::run_without_tokens() {
  const LinearCrossEntropy::Tensors& tensors = operands_.tensors();
  // With a stride, logits of one f32 class do not look like a tensor that is not given.
  CrossEntropy::Tensors nothing{
      .logits = {.dtype = shape_.logits, .rows = 0, .columns = shape_.classes, .row_stride = shape_.classes},
      .target = {.dtype = tensors.target.dtype, .rows = 0},
      .loss = tensors.loss,
      .z_loss_out = tensors.z_loss_out,
      .divisor = tensors.divisor};
  if (is_floating(tensors.target.dtype)) nothing.target.columns = shape_.classes;
  if (nothing.loss.data == nullptr && shape_.reduction != Reduction::none)
    nothing.loss = {operands_.at(plan_.losses), DType::f32, 1};
  else if (nothing.loss.data == nullptr)
    nothing.loss = {.dtype = DType::f32, .rows = 0};
  const Choice* const choice = run_cross_entropy(nothing);
  for (const Tensor* grad : {&tensors.weight_grad, &tensors.bias_grad})
    if (grad->data != nullptr)
      parts_.device.fill(grad->data, 0,
                         static_cast<std::size_t>(grad->rows * grad->columns * size_of(grad->dtype)),
                         stream_);
  return choice;
}

const Choice* LinearCall::run_without_logits() {
  if (!tune_statistics()) return nullptr;
  require_winners();
  operands_.select(0);
  gather_chunk(stream_);
  const Choice* const choice = take_statistics(way());
  if (auto& valid = operands_.valid()) valid->scatter(stream_);
  return choice;
}

// ---- Races ---------------------------------------------------------------------------------------------

bool LinearCall::tune_statistics() {
  runtime::Device& device = parts_.device;
  operands_.select(0);
  const LinearShape shape = operands_.shape();
  if (parts_.tunes && parts_.forward.known(shape).open && !is_captured()) {
    device.synchronize(stream_);
    const Stream trials = device.trial_stream();
    gather_chunk(trials);
    if (operands_.exponentials())
      parts_.kernels.find_references(operands_.statistics(), operands_.exponentials_arguments(), trials);
    parts_.forward.tune(shape, operands_.statistics_arguments(), parts_.seconds);
  }
  return parts_.forward.known(shape).serves;
}

void LinearCall::tune_products() {
  if (!parts_.tunes) return;
  operands_.select(0);
  std::vector<LinearProduct> all;
  if (!operands_.exponentials()) all.push_back(operands_.logits_product());
  if (shape_.hidden_grad) all.push_back(operands_.hidden_product());
  if (shape_.weight_grad) {
    all.push_back(operands_.weight_product(false));
    if (plan_.schedule.chunks > 1) all.push_back(operands_.weight_product(true));
  }
  runtime::Device& device = parts_.device;
  tuner::MatmulChooser& products = parts_.products;
  const std::int64_t most = plan_.products.bytes;
  const auto is_open = [&](const LinearProduct& one) { return products.is_open(one.matmul, most); };
  if (std::none_of(all.begin(), all.end(), is_open) || is_captured()) return;
  device.synchronize(stream_);
  const Stream trials = device.trial_stream();
  gather_chunk(trials);
  // Fills the inputs of gradient products with values of realistic size.
  if (operands_.exponentials()) {
    const LinearWay way = this->way();
    leave_statistics(way, trials);
    LinearExponentialsArguments arguments = operands_.exponentials_arguments();
    arguments.call.divisor = nullptr;  // no kernel has computed it yet
    find_factors(way, arguments, trials);
  } else {
    const LinearProduct& logits = all.front();
    device.matmuls().launch(logits.matmul.matmul, products.choose(logits.matmul, most), logits.operands,
                            trials);
  }
  if (plan_.rounded_logits.exists())
    parts_.kernels.convert(operands_.at(plan_.logits), shape_.logits, operands_.at(plan_.rounded_logits),
                           shape_.dtype, operands_.count() * shape_.logits_stride(), trials);
  for (const LinearProduct& one : all)
    if (is_open(one)) products.tune(one.matmul, one.operands, most, parts_.seconds);
  device.synchronize(trials);
}

// ---- Steps ---------------------------------------------------------------------------------------------

void LinearCall::make(const LinearProduct& product) {
  const runtime::MatmulAlgorithm algorithm = parts_.products.choose(product.matmul, plan_.products.bytes);
  parts_.device.matmuls().launch(product.matmul.matmul, algorithm, product.operands, stream_);
}

const Choice* LinearCall::run_cross_entropy(const CrossEntropy::Tensors& tensors) {
  if (shard_ == nullptr) return &context_.run(operation_.cross_entropy, tensors, stream_);
  context_.run(operation_.cross_entropy, tensors, *shard_, stream_);
  return nullptr;
}

void LinearCall::prepare() {
  const LinearCrossEntropy::Tensors& tensors = operands_.tensors();
  if (auto& valid = operands_.valid()) valid->gather(stream_);
  if (plan_.bias.exists())
    parts_.kernels.convert(tensors.bias.data, tensors.bias.dtype, operands_.at(plan_.bias), shape_.logits,
                           shape_.classes, stream_);
  if (plan_.upstream.exists())
    parts_.kernels.convert(tensors.upstream.data, tensors.upstream.dtype, operands_.at(plan_.upstream),
                           DType::f32, shape_.upstreams, stream_);
  if (plan_.divisor.exists() && tensors.divisor.data == nullptr)
    parts_.kernels.divisor(operands_.divisor_kernel(), operands_.divisor_arguments(), stream_);
}

void LinearCall::gather_chunk(Stream stream) {
  auto& valid = operands_.valid();
  if (!valid) return;
  valid->gather(stream);
  valid->gather_hidden(operands_.first(), operands_.count(), stream);
}

void LinearCall::leave_statistics(const LinearWay& way, Stream stream) {
  if (operands_.exponentials())
    parts_.kernels.find_references(operands_.statistics(), operands_.exponentials_arguments(), stream);
  parts_.forward.launch(operands_.shape(), way, operands_.statistics_arguments(), stream);
}

const Choice* LinearCall::take_statistics(const LinearWay& way) {
  leave_statistics(way, stream_);
  const int splits = way.messages();
  return &context_.run(operands_.merge(splits), operands_.merge_tensors(splits), stream_);
}

void LinearCall::find_factors(const LinearWay& way, LinearExponentialsArguments arguments, Stream stream) {
  arguments.call.ranks = way.messages();
  arguments.tiles = way.schedule.column_tiles();
  arguments.tile_columns = way.tile.columns;
  const ConstTensor upstream = operands_.upstream();
  parts_.kernels.find_factors({.statistics = operands_.statistics(),
                               .upstream = upstream.data != nullptr ? upstream.dtype : DType::f32,
                               .z_loss = operation_.cross_entropy.z_loss != 0},
                              arguments, stream);
}

void LinearCall::make_gradients_of_exponentials() {
  const LinearExponentialsArguments arguments = operands_.exponentials_arguments();
  if (shape_.hidden_grad) {
    make(operands_.hidden_product());
    parts_.kernels.make_hidden_gradient(operands_.statistics(), arguments, stream_);
    if (auto& valid = operands_.valid())
      valid->scatter_hidden_grad(operands_.first(), operands_.count(), stream_);
  }
  if (shape_.weight_grad) {
    make(operands_.weight_product(operands_.chunk() > 0));
    parts_.kernels.add_targets(operands_.statistics(),
                               plan_.weight_sum.exists() ? DType::f32 : shape_.weight_grad_dtype, arguments,
                               stream_);
  }
}

void LinearCall::make_gradients_of_logits() {
  const LinearCrossEntropy::Tensors& tensors = operands_.tensors();
  const bool accumulates = operands_.chunk() > 0;
  const std::int64_t rows = operands_.count(), stride = shape_.logits_stride();
  if (shape_.bias_grad)
    parts_.kernels.sum_columns(
        shape_.logits,
        {.input = operands_.at(plan_.logits),
         .output = plan_.bias_sum.exists() ? operands_.at(plan_.bias_sum) : tensors.bias_grad.data,
         .rows = rows,
         .columns = shape_.classes,
         .stride = stride,
         .accumulates = accumulates},
        stream_);
  if (shape_.converts_logits())
    parts_.kernels.convert(operands_.at(plan_.logits), shape_.logits, operands_.at(plan_.rounded_logits),
                           shape_.dtype, rows * stride, stream_);
  if (shape_.hidden_grad) make(operands_.hidden_product());
  if (plan_.hidden_product.exists()) {
    const Tensor rounded = operands_.hidden_gradient();
    parts_.kernels.convert(operands_.at(plan_.hidden_product), DType::f32, rounded.data, rounded.dtype,
                           rows * shape_.hidden, stream_);
  }
  if (auto& valid = operands_.valid(); valid && shape_.hidden_grad)
    valid->scatter_hidden_grad(operands_.first(), rows, stream_);
  if (shape_.weight_grad) make(operands_.weight_product(accumulates));
}

void LinearCall::finish() {
  const LinearCrossEntropy::Tensors& tensors = operands_.tensors();
  if (operands_.sums_losses() && (tensors.loss.data != nullptr || tensors.z_loss_out.data != nullptr)) {
    const DType dtype = tensors.loss.data != nullptr ? tensors.loss.dtype : tensors.z_loss_out.dtype;
    parts_.kernels.sum_losses(dtype,
                              {.rows = plan_.schedule.chunks,
                               .losses = operands_.at<const float>(plan_.losses),
                               .z_losses = operands_.at<const float>(plan_.z_losses),
                               .loss = tensors.loss.data,
                               .z_loss = tensors.z_loss_out.data},
                              stream_);
  }
  if (plan_.weight_sum.exists())
    parts_.kernels.convert(operands_.at(plan_.weight_sum), DType::f32, tensors.weight_grad.data,
                           shape_.weight_grad_dtype, shape_.classes * shape_.hidden, stream_);
  if (plan_.bias_sum.exists())
    parts_.kernels.convert(operands_.at(plan_.bias_sum), DType::f32, tensors.bias_grad.data,
                           shape_.bias_grad_dtype, shape_.classes, stream_);
  if (auto& valid = operands_.valid()) valid->scatter(stream_);
}

}  // namespace ce
