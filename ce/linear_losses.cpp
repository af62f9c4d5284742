#include "ce/linear_losses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/log.hpp"
#include "ce/error.hpp"
#include "ce/linear_tensors.hpp"
#include "ce/linear_valid_tokens.hpp"
#include "ce/rank_agreement.hpp"
#include "ce/rank_exchange.hpp"
#include "ce/request.hpp"
#include "ce/workspaces.hpp"

namespace ce {
namespace {

/// Whether the stream is CU_STREAM_PER_THREAD.
bool is_stream_of_thread(Stream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) == 2; }

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

// ---- Scratch memory ------------------------------------------------------------------------------------

LinearWorkspaces::Lent LinearWorkspaces::get(Stream stream, std::int64_t bytes, const void* group) {
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& known =
        entries_[{stream, is_stream_of_thread(stream) ? this_thread() : nullptr, group}];
    if (known == nullptr) known = std::make_unique<Entry>();
    entry = known.get();
  }
  Lent lent;
  lent.lock_ = std::unique_lock(entry->mutex);
  const bool capturing = stream != nullptr && device_.capturing(stream);
  const auto wanted = static_cast<std::size_t>(bytes);
  if (entry->buffer.size() < wanted) {
    if (capturing)
      throw Unsupported(
          fmt::format("the call is being captured into a graph and cannot allocate the {} bytes of scratch "
                      "memory that it needs: set LinearCrossEntropy::Tensors::workspace, or make the same "
                      "call on this stream once before the capture",
                      bytes));
    if (entry->in_graphs) {
      entry->captured.push_back(std::move(entry->buffer));
      entry->in_graphs = false;
    } else if (entry->buffer.size() > 0) {
      device_.synchronize(stream);  // waiting does not matter: the shape is new, and must be tuned anyway
    }
    entry->buffer = {};
    entry->buffer = runtime::Buffer(device_, wanted);
  }
  entry->in_graphs |= capturing;
  lent.data_ = entry->buffer.bytes();
  return lent;
}

// ---- One call ------------------------------------------------------------------------------------------

class LinearCall {
 public:
  LinearCall(LinearLosses& losses, Context& context, const LinearCrossEntropy& operation,
             const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape, const LinearPlan& plan,
             const Shard* shard, std::byte* workspace, Stream stream)
      : losses_(losses),
        context_(context),
        operation_(operation),
        shape_(shape),
        plan_(plan),
        shard_(shard),
        workspace_(workspace),
        stream_(stream),
        valid_(shape.drops_tokens() ? std::optional<ValidTokens>(std::in_place, losses.kernels_, operation,
                                                                 tensors, shape, plan, workspace)
                                    : std::nullopt),
        tensors_(valid_ ? valid_->tensors() : tensors),
        sums_losses_(plan.schedule.chunks > 1 && shape.reduction != Reduction::none) {}

  /// Checks the arguments of a chunk's losses before anything is written. The calls of ranks check their own.
  /// \throws InvalidArgument
  void check() {
    if (shape_.tokens == 0 || shard_ != nullptr) return;
    first_ = 0;
    count_ = std::min(plan_.schedule.chunk_tokens, shape_.tokens);
    if (shape_.statistics || exponentials())
      static_cast<void>(bind_named(merge_of(1), merge_tensors(0, 1), losses_.device_));
    else
      static_cast<void>(bind_named(operation_.cross_entropy, losses_tensors(0), losses_.device_));
  }

  /// Null if no kernel turns out to serve it without logits, and if ranks share the classes.
  const Choice* run() {
    if (shape_.tokens == 0) return run_without_tokens();
    if (shape_.statistics) return run_without_logits();
    if (exponentials() && !tune_statistics()) return nullptr;
    tune();
    return enqueue();
  }

  /// Enqueues all chunks with the results of tuning so far.
  const Choice* enqueue() {
    const Choice* choice = nullptr;
    prepare();
    for (std::int64_t chunk = 0; chunk < plan_.schedule.chunks; ++chunk) {
      first_ = chunk * plan_.schedule.chunk_tokens;
      count_ = std::min(plan_.schedule.chunk_tokens, shape_.tokens - first_);
      if (valid_) valid_->gather_hidden(first_, count_, stream_);
      if (exponentials()) {
        choice = make_exponentials(chunk);
        make_gradients_of_exponentials(chunk);
      } else {
        make(logits_product());
        choice = make_losses(chunk);
        make_gradients(chunk);
      }
      settled_ = settled_ && (choice == nullptr || !choice->provisional);
    }
    finish();
    return choice;
  }
  /// Whether later calls find their kernels chosen.
  [[nodiscard]] bool is_settled() const noexcept { return settled_; }

 private:
  [[nodiscard]] void* at(const LinearPiece& piece) const noexcept { return workspace_ + piece.start; }
  template <class T>
  [[nodiscard]] T* at(const LinearPiece& piece) const noexcept {
    return piece.bytes > 0 ? static_cast<T*>(at(piece)) : nullptr;
  }
  [[nodiscard]] static bool has(const LinearPiece& piece) noexcept { return piece.bytes > 0; }
  [[nodiscard]] LinearKernels& kernels() const noexcept { return losses_.kernels_; }
  [[nodiscard]] bool exponentials() const noexcept { return plan_.schedule.exponentials; }

  // ---- Statistics of rows while their logits are made ----

  /// The options of the statistics kernel.
  [[nodiscard]] const generator::LinearStatistics& statistics() const noexcept {
    return exponentials() ? *shape_.exponentials : *shape_.statistics;
  }
  /// The shape of the chunk as a call of its own.
  [[nodiscard]] LinearShape shape_of_chunk() const {
    LinearShape shape = shape_;
    shape.tokens = count_;
    shape.statistics = statistics();
    return shape;
  }
  /// The members of all kernels' arguments that describe the chunk's rows.
  [[nodiscard]] Arguments row_arguments() const {
    const CrossEntropy& options = operation_.cross_entropy;
    const auto f32_of_rows = [&](const ConstTensor& tensor) {
      return static_cast<const float*>(elements_of(tensor, first_, count_).data);
    };
    Arguments arguments{.rows = count_,
                        .target = elements_of(tensors_.target, first_, count_).data,
                        .weight = tensors_.class_weight.data,
                        .row_weight = f32_of_rows(tensors_.row_weight),
                        .row_scale = f32_of_rows(tensors_.row_scale),
                        .divisor = static_cast<const float*>(divisor_of().data),
                        .lse_upstream = f32_of_rows(tensors_.lse_upstream),
                        .statistics_words = statistics().words(),
                        .classes = shape_.classes,
                        .ignore_index = options.ignore_index};
    amount_of(&generator::CrossEntropyFlags::scale, arguments) = options.logit_scale;
    amount_of(&generator::CrossEntropyFlags::softcap, arguments) = options.softcap;
    amount_of(&generator::CrossEntropyFlags::z_loss, arguments) = options.z_loss;
    return arguments;
  }
  [[nodiscard]] LinearStatisticsArguments statistics_arguments() const {
    const ConstTensor hidden = hidden_rows();
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
  /// Races the ways to run the kernel, unless the result is known. Returns false if none is right.
  [[nodiscard]] bool tune_statistics() {
    LinearForward& forward = losses_.forward_;
    runtime::Device& device = losses_.device_;
    first_ = 0;
    count_ = std::min(plan_.schedule.chunk_tokens, shape_.tokens);
    const LinearShape shape = shape_of_chunk();
    if (losses_.tunes_ && forward.known(shape).open && !(stream_ != nullptr && device.capturing(stream_))) {
      device.synchronize(stream_);
      const Stream trials = device.trial_stream();
      if (valid_) {
        valid_->gather(trials);
        valid_->gather_hidden(first_, count_, trials);
      }
      if (exponentials()) kernels().find_references(statistics(), exponentials_arguments(), trials);
      forward.tune(shape, statistics_arguments(), losses_.seconds_);
    }
    return forward.known(shape).serves;
  }
  /// The way to run the kernel on the chunk.
  [[nodiscard]] LinearWay way() const { return losses_.forward_.known(shape_of_chunk()).way; }
  /// Runs the kernel.
  void leave_statistics(const LinearWay& way, Stream stream) {
    if (exponentials()) kernels().find_references(statistics(), exponentials_arguments(), stream);
    losses_.forward_.launch(shape_of_chunk(), way, statistics_arguments(), stream);
  }
  /// Computes the chunk's statistics, and the losses from them.
  const Choice* take_statistics(std::int64_t chunk, const LinearWay& way) {
    leave_statistics(way, stream_);
    const int splits = way.messages();
    return &context_.run(merge_of(splits), merge_tensors(chunk, splits), stream_);
  }
  [[nodiscard]] CrossEntropyMerge merge_of(int splits) const {
    return {.options = operation_.cross_entropy,
            .classes = shape_.classes,
            .ranks = splits,
            .logits = shape_.logits};
  }
  [[nodiscard]] CrossEntropyMerge::Tensors merge_tensors(std::int64_t chunk, int splits) const {
    auto of_chunk = rows_of_losses<CrossEntropyMerge::Tensors>(chunk);
    of_chunk.statistics =
        tensor(at<float>(plan_.statistics), splits * count_, std::int64_t{statistics().words()});
    return of_chunk;
  }

  const Choice* run_without_logits() {
    if (!tune_statistics()) return nullptr;
    if (valid_) {
      valid_->gather(stream_);
      valid_->gather_hidden(0, count_, stream_);
    }
    const Choice* const choice = take_statistics(0, way());
    if (valid_) valid_->scatter(stream_);
    return choice;
  }

  // ---- Gradients of exponentials ----

  [[nodiscard]] LinearExponentialsArguments exponentials_arguments() const {
    const ConstTensor hidden = hidden_rows();
    const Tensor hidden_grad = hidden_gradient_rows();
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
        .weight_grad = has(plan_.weight_sum) ? at(plan_.weight_sum) : tensors_.weight_grad.data};
    arguments.call.upstream = upstream_of().data;
    arguments.call.statistics = at<unsigned>(plan_.statistics);
    return arguments;
  }

  /// Computes the factors from the kernel's results.
  void find_factors(const LinearWay& way, LinearExponentialsArguments arguments, Stream stream) {
    arguments.call.ranks = way.messages();
    arguments.tiles = way.schedule.column_tiles();
    arguments.tile_columns = way.tile.columns;
    const ConstTensor upstream = upstream_of();
    kernels().find_factors({.statistics = statistics(),
                            .upstream = upstream.data != nullptr ? upstream.dtype : DType::f32,
                            .z_loss = operation_.cross_entropy.z_loss != 0},
                           arguments, stream);
  }

  const Choice* make_exponentials(std::int64_t chunk) {
    const LinearWay way = this->way();
    const Choice* const choice = take_statistics(chunk, way);
    find_factors(way, exponentials_arguments(), stream_);
    return choice;
  }

  void make_gradients_of_exponentials(std::int64_t chunk) {
    const LinearExponentialsArguments arguments = exponentials_arguments();
    if (shape_.hidden_grad) {
      make(hidden_product());
      kernels().make_hidden_gradient(statistics(), arguments, stream_);
      if (valid_) valid_->scatter_hidden_grad(first_, count_, stream_);
    }
    if (shape_.weight_grad) {
      make(weight_product(chunk > 0));
      kernels().add_targets(statistics(), has(plan_.weight_sum) ? DType::f32 : shape_.weight_grad_dtype,
                            arguments, stream_);
    }
  }

  // ---- Losses and gradients of logits ----

  const Choice* run_cross_entropy(const CrossEntropy::Tensors& tensors) {
    if (shard_ == nullptr) return &context_.run(operation_.cross_entropy, tensors, stream_);
    context_.run(operation_.cross_entropy, tensors, *shard_, stream_);
    return nullptr;
  }

  /// The hidden states of the chunk.
  [[nodiscard]] ConstTensor hidden_rows() const {
    return valid_ ? valid_->hidden(count_) : rows_of(tensors_.hidden, first_, count_);
  }

  /// Enqueues work that all chunks share.
  void prepare() {
    if (valid_) valid_->gather(stream_);
    if (has(plan_.bias))
      kernels().convert(tensors_.bias.data, tensors_.bias.dtype, at(plan_.bias), shape_.logits,
                        shape_.classes, stream_);
    if (has(plan_.upstream))
      kernels().convert(tensors_.upstream.data, tensors_.upstream.dtype, at(plan_.upstream), DType::f32,
                        shape_.upstreams, stream_);
    if (has(plan_.divisor) && tensors_.divisor.data == nullptr) {
      const bool probabilities = is_floating(tensors_.target.dtype),
                 weights = tensors_.class_weight.data != nullptr && !probabilities;
      const LinearArguments arguments{
          .rows = shape_.tokens,
          .columns = shape_.all_classes,
          .target = probabilities ? nullptr : tensors_.target.data,
          .weight = weights ? tensors_.class_weight.data : nullptr,
          .scaled_weight = has(plan_.class_weight) ? static_cast<float*>(at(plan_.class_weight)) : nullptr,
          .divisor = static_cast<float*>(at(plan_.divisor)),
          .ignore_index = operation_.cross_entropy.ignore_index};
      kernels().divisor({.target_dtype = probabilities ? DType::i64 : tensors_.target.dtype,
                         .weight_dtype = weights ? tensors_.class_weight.dtype : DType::f32,
                         .probabilities = probabilities,
                         .weights = weights,
                         .scales = has(plan_.class_weight)},
                        arguments, stream_);
    }
  }

  /// A product and its memory.
  struct Product {
    tuner::TokenMatmul matmul;
    runtime::MatmulOperands operands;
  };

  [[nodiscard]] Product product(runtime::Matmul matmul, std::int64_t runtime::Matmul::*tokens, const void* a,
                                const void* b, void* d, const void* bias = nullptr) const {
    matmul.alignment = runtime::alignment_of({a, b, d});
    matmul.any_order = losses_.any_order_;
    return {{matmul, tokens}, {.a = a, .b = b, .bias = bias, .d = d, .workspace = at(plan_.products)}};
  }
  void make(const Product& product) {
    const runtime::MatmulAlgorithm algorithm = losses_.products_.choose(product.matmul, plan_.products.bytes);
    losses_.device_.matmuls().launch(product.matmul.matmul, algorithm, product.operands, stream_);
  }

  [[nodiscard]] Product logits_product() const {
    const ConstTensor hidden = hidden_rows();
    const void* bias = has(plan_.bias) ? at(plan_.bias) : tensors_.bias.data;
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
  /// The gradient of the logits in the dtype of the products.
  [[nodiscard]] const void* logits_gradient() const noexcept {
    return has(plan_.rounded_logits) ? at(plan_.rounded_logits) : at(plan_.logits);
  }
  [[nodiscard]] Tensor hidden_gradient_rows() const {
    return valid_ && shape_.hidden_grad ? valid_->hidden_grad(count_)
                                        : rows_of(tensors_.hidden_grad, first_, count_);
  }
  /// The product of the hidden states' gradient: in f32 if its rows are rounded later, with exponentials after
  /// multiplying by their factors.
  [[nodiscard]] Product hidden_product() const {
    const Tensor to = has(plan_.hidden_product)
                          ? tensor(at<float>(plan_.hidden_product), count_, shape_.hidden)
                          : hidden_gradient_rows();
    return product(hidden_matmul(shape_, tensors_.weight, count_, to.dtype, stride_of(to)),
                   &runtime::Matmul::m, logits_gradient(), tensors_.weight.data, to.data);
  }
  [[nodiscard]] Tensor scaled_hidden() const {
    return {at(plan_.scaled_hidden), shape_.dtype, count_, shape_.hidden, shape_.hidden_stride()};
  }
  [[nodiscard]] Product weight_product(bool accumulates) const {
    const ConstTensor hidden = exponentials() ? ConstTensor(scaled_hidden()) : hidden_rows();
    const bool apart = has(plan_.weight_sum);
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

  /// Races the algorithms of new products, in the memory of the first chunk, which the call overwrites later. Enqueued
  /// work has ended before, and the races when this returns.
  void tune() {
    if (!losses_.tunes_) return;
    first_ = 0;
    count_ = std::min(plan_.schedule.chunk_tokens, shape_.tokens);
    std::vector<Product> all;
    if (!exponentials()) all.push_back(logits_product());
    if (shape_.hidden_grad) all.push_back(hidden_product());
    if (shape_.weight_grad) {
      all.push_back(weight_product(false));
      if (plan_.schedule.chunks > 1) all.push_back(weight_product(true));
    }
    runtime::Device& device = losses_.device_;
    tuner::MatmulChooser& products = losses_.products_;
    const std::int64_t most = plan_.products.bytes;
    const auto is_open = [&](const Product& one) { return products.is_open(one.matmul, most); };
    if (std::none_of(all.begin(), all.end(), is_open)) return;
    if (stream_ != nullptr && device.capturing(stream_)) return;
    device.synchronize(stream_);
    if (valid_) {
      valid_->gather(device.trial_stream());
      valid_->gather_hidden(first_, count_, device.trial_stream());
    }
    // Fills the inputs of gradient products with values of realistic size.
    const Stream trials = device.trial_stream();
    if (exponentials()) {
      const LinearWay way = this->way();
      leave_statistics(way, trials);
      LinearExponentialsArguments arguments = exponentials_arguments();
      arguments.call.divisor = nullptr;  // no kernel has computed it yet
      find_factors(way, arguments, trials);
    } else {
      const Product& logits = all.front();
      device.matmuls().launch(logits.matmul.matmul, products.choose(logits.matmul, most), logits.operands,
                              trials);
    }
    if (has(plan_.rounded_logits))
      kernels().convert(at(plan_.logits), shape_.logits, at(plan_.rounded_logits), shape_.dtype,
                        count_ * shape_.logits_stride(), trials);
    for (const Product& one : all)
      if (is_open(one)) products.tune(one.matmul, one.operands, most, losses_.seconds_);
    device.synchronize(device.trial_stream());
  }

  /// The destination of this chunk's losses.
  [[nodiscard]] Tensor loss_of(std::int64_t chunk) const {
    auto* scratch = static_cast<std::byte*>(at(plan_.losses));
    if (sums_losses_) return {scratch + 4 * chunk, DType::f32, 1};
    const bool of_rows = shape_.reduction == Reduction::none;
    if (tensors_.loss.data != nullptr)
      return of_rows ? elements_of(tensors_.loss, first_, count_) : tensors_.loss;
    const DType dtype = tensors_.upstream.data != nullptr ? tensors_.upstream.dtype : DType::f32;
    return {scratch, dtype, of_rows ? count_ : 1};
  }
  [[nodiscard]] Tensor z_loss_of(std::int64_t chunk) const {
    if (tensors_.z_loss_out.data == nullptr) return {};
    if (sums_losses_) return {static_cast<std::byte*>(at(plan_.z_losses)) + 4 * chunk, DType::f32, 1};
    return shape_.reduction == Reduction::none ? elements_of(tensors_.z_loss_out, first_, count_)
                                               : tensors_.z_loss_out;
  }
  [[nodiscard]] ConstTensor upstream_of() const {
    ConstTensor upstream = tensors_.upstream;
    if (has(plan_.upstream)) upstream = {at(plan_.upstream), DType::f32, shape_.upstreams};
    return shape_.upstreams == shape_.tokens && shape_.upstreams > 1 ? elements_of(upstream, first_, count_)
                                                                     : upstream;
  }
  [[nodiscard]] ConstTensor divisor_of() const {
    if (tensors_.divisor.data != nullptr || !has(plan_.divisor)) return tensors_.divisor;
    return {at(plan_.divisor), DType::f32, 1};
  }

  /// The inputs and per-row outputs of the losses, however these are computed.
  template <class OfLosses>
  [[nodiscard]] OfLosses rows_of_losses(std::int64_t chunk) const {
    const auto own = [&](const auto& tensor) { return elements_of(tensor, first_, count_); };
    OfLosses of_chunk;
    of_chunk.target =
        is_floating(tensors_.target.dtype) ? rows_of(tensors_.target, first_, count_) : own(tensors_.target);
    of_chunk.weight = tensors_.class_weight;
    of_chunk.loss = loss_of(chunk);
    of_chunk.z_loss_out = z_loss_of(chunk);
    of_chunk.divisor = divisor_of();
    for (const auto& input : token_inputs)
      if (const auto member = input.template of<OfLosses>(); member != nullptr)
        of_chunk.*member = own(tensors_.*input.member);
    for (const auto& output : token_outputs)
      if (const auto member = output.template of<OfLosses>(); member != nullptr)
        of_chunk.*member = own(tensors_.*output.member);
    return of_chunk;
  }

  [[nodiscard]] CrossEntropy::Tensors losses_tensors(std::int64_t chunk) const {
    auto of_chunk = rows_of_losses<CrossEntropy::Tensors>(chunk);
    const Tensor logits{at(plan_.logits), shape_.logits, count_, shape_.classes, shape_.logits_stride()};
    of_chunk.logits = logits;
    of_chunk.upstream = upstream_of();
    if (has(plan_.class_weight)) of_chunk.weight = {at(plan_.class_weight), DType::f32, shape_.all_classes};
    if (shape_.gradient()) of_chunk.grad = logits;
    return of_chunk;
  }
  const Choice* make_losses(std::int64_t chunk) { return run_cross_entropy(losses_tensors(chunk)); }

  void make_gradients(std::int64_t chunk) {
    const void* const gradient = at(plan_.logits);
    const std::int64_t stride = shape_.logits_stride();
    if (shape_.bias_grad)
      kernels().sum_columns(shape_.logits,
                            {.input = gradient,
                             .output = has(plan_.bias_sum) ? at(plan_.bias_sum) : tensors_.bias_grad.data,
                             .rows = count_,
                             .columns = shape_.classes,
                             .stride = stride,
                             .accumulates = chunk > 0},
                            stream_);
    if (shape_.converts_logits()) {
      kernels().convert(gradient, shape_.logits, at(plan_.rounded_logits), shape_.dtype, count_ * stride,
                        stream_);
    }
    if (shape_.hidden_grad) make(hidden_product());
    if (has(plan_.hidden_product)) {
      const Tensor rounded = hidden_gradient_rows();
      kernels().convert(at(plan_.hidden_product), DType::f32, rounded.data, rounded.dtype,
                        count_ * shape_.hidden, stream_);
    }
    if (shape_.hidden_grad && valid_) valid_->scatter_hidden_grad(first_, count_, stream_);
    if (shape_.weight_grad) make(weight_product(chunk > 0));
  }

  /// Enqueues the work after the last chunk.
  void finish() {
    if (sums_losses_ && (tensors_.loss.data != nullptr || tensors_.z_loss_out.data != nullptr)) {
      const auto* of_chunks = static_cast<const float*>(at(plan_.losses));
      const auto* z_of_chunks = static_cast<const float*>(at(plan_.z_losses));
      const DType dtype = tensors_.loss.data != nullptr ? tensors_.loss.dtype : tensors_.z_loss_out.dtype;
      kernels().sum_losses(dtype,
                           {.rows = plan_.schedule.chunks,
                            .losses = of_chunks,
                            .z_losses = z_of_chunks,
                            .loss = tensors_.loss.data,
                            .z_loss = tensors_.z_loss_out.data},
                           stream_);
    }
    if (has(plan_.weight_sum))
      kernels().convert(at(plan_.weight_sum), DType::f32, tensors_.weight_grad.data, shape_.weight_grad_dtype,
                        shape_.classes * shape_.hidden, stream_);
    if (has(plan_.bias_sum))
      kernels().convert(at(plan_.bias_sum), DType::f32, tensors_.bias_grad.data, shape_.bias_grad_dtype,
                        shape_.classes, stream_);
    if (valid_) valid_->scatter(stream_);
  }

  /// A call without tokens: the loss of nothing, and gradients of zero for sums over tokens.
  const Choice* run_without_tokens() {
    CrossEntropy::Tensors nothing{.logits = {.dtype = shape_.logits, .rows = 0, .columns = shape_.classes},
                                  .target = {.dtype = tensors_.target.dtype, .rows = 0},
                                  .loss = tensors_.loss,
                                  .z_loss_out = tensors_.z_loss_out,
                                  .divisor = tensors_.divisor};
    if (is_floating(tensors_.target.dtype)) nothing.target.columns = shape_.classes;
    if (nothing.loss.data == nullptr && shape_.reduction != Reduction::none)
      nothing.loss = {at(plan_.losses), DType::f32, 1};
    else if (nothing.loss.data == nullptr)
      nothing.loss = {.dtype = DType::f32, .rows = 0};
    const Choice* const choice = run_cross_entropy(nothing);
    for (const Tensor* grad : {&tensors_.weight_grad, &tensors_.bias_grad})
      if (grad->data != nullptr)
        losses_.device_.fill(grad->data, 0,
                             static_cast<std::size_t>(grad->rows * grad->columns * size_of(grad->dtype)),
                             stream_);
    return choice;
  }

  LinearLosses& losses_;
  Context& context_;
  const LinearCrossEntropy& operation_;
  const LinearShape& shape_;
  const LinearPlan& plan_;
  const Shard* const shard_;  ///< set if ranks share the classes
  std::byte* const workspace_;
  const Stream stream_;
  std::optional<ValidTokens> valid_;  ///< set if ignored tokens are left out
  const LinearCrossEntropy::Tensors tensors_;
  const bool sums_losses_;              ///< each chunk writes a part of the loss
  std::int64_t first_ = 0, count_ = 0;  ///< tokens of the current chunk
  bool settled_ = true;
};

// ---- All calls -----------------------------------------------------------------------------------------

LinearSchedule LinearLosses::schedule(const LinearShape& shape) {
  const auto known = plans_.of(shape);
  LinearSchedule schedule = known->plan.schedule;
  if (tunes_) schedule.workspace_bytes = known->most_bytes();
  return schedule;
}

LinearSchedule LinearLosses::schedule(const LinearCrossEntropy& operation,
                                      const LinearCrossEntropy::Tensors& tensors) {
  return schedule(shape(operation, tensors));
}

LinearSchedule LinearLosses::schedule(const LinearCrossEntropy& operation,
                                      const LinearCrossEntropy::Tensors& tensors, const Shard& shard) {
  return schedule(shape_of(operation, tensors, device_, &shard));
}

LinearShape LinearLosses::shape(const LinearCrossEntropy& operation,
                                const LinearCrossEntropy::Tensors& tensors) {
  LinearShape shape = shape_of(operation, tensors, device_);
  if (shape.statistics && !forward_.known(shape).serves) shape.statistics.reset();
  return shape;
}

const Choice& LinearLosses::run(Context& context, const LinearCrossEntropy& operation,
                                const LinearCrossEntropy::Tensors& tensors, Stream stream) {
  const runtime::Session session(device_);
  LinearShape shape = this->shape(operation, tensors);
  if (const Choice* choice = run(context, operation, tensors, shape, nullptr, stream)) return *choice;
  // The caller's workspace may be sized for statistics, or for exponentials.
  shape.statistics.reset();
  shape.exponentials.reset();
  LinearCrossEntropy::Tensors without_workspace = tensors;
  without_workspace.workspace = {};
  return *run(context, operation, without_workspace, shape, nullptr, stream);
}

void LinearLosses::run(Context& context, const LinearCrossEntropy& operation,
                       const LinearCrossEntropy::Tensors& tensors, const Shard& shard, Stream stream) {
  const runtime::Session session(device_);
  const LinearShape shape = shape_of(operation, tensors, device_, &shard);
  require_same_chunks(shard.communicator, shape, stream);
  run(context, operation, tensors, shape, &shard, stream);
}

void LinearLosses::require_same_chunks(const Communicator& communicator, const LinearShape& shape,
                                       Stream stream) {
  if (stream != nullptr && device_.capturing(stream)) return;
  const std::tuple key(static_cast<const void*>(communicator.state), communicator.rank, communicator.size,
                       shape);
  {
    const std::lock_guard lock(mutex_);
    if (of_ranks_.contains(key)) return;
  }
  constexpr auto names = std::to_array<std::string_view>(
      {"hidden.rows", "hidden.columns", "gradients", "valid_tokens", "chunk_tokens"});
  const std::array own{shape.drops_tokens() ? shape.all_tokens : shape.tokens, shape.hidden,
                       std::int64_t{shape.gradient() ? 1 : 0}, shape.drops_tokens() ? shape.valid_tokens : -1,
                       shape.chunk_tokens};
  const std::vector<std::byte> bytes =
      gather_from_ranks(device_, communicator, std::as_bytes(std::span(own)), stream);
  std::vector<std::int64_t> told(bytes.size() / sizeof(std::int64_t));
  std::memcpy(told.data(), bytes.data(), bytes.size());
  require_the_same(names, told);
  const std::lock_guard lock(mutex_);
  of_ranks_.insert(key);
}

const Choice* LinearLosses::run(Context& context, const LinearCrossEntropy& operation,
                                const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
                                const Shard* shard, Stream stream) {
  auto known = plans_.of(shape);
  const bool races = tunes_ && !known->open.empty() && !(stream != nullptr && device_.capturing(stream));
  std::int64_t bytes = races ? known->most_bytes() : known->plan.schedule.workspace_bytes;
  LinearWorkspaces::Lent lent;
  std::byte* workspace = nullptr;
  if (const Tensor& own = tensors.workspace; own.data != nullptr) {
    const std::int64_t least = known->plan.schedule.workspace_bytes;
    bytes = own.rows * own.columns;
    if (bytes < least)
      throw InvalidArgument("workspace", text_of_count(bytes),
                            fmt::format("{} or more: LinearSchedule::workspace_bytes", text_of_count(least)));
    workspace = static_cast<std::byte*>(own.data);
  } else {
    lent = workspaces_.get(stream, bytes, shard != nullptr ? shard->communicator.state : nullptr);
    workspace = lent.data();
  }
  if (LinearCall call(*this, context, operation, tensors, shape, known->plan, shard, workspace, stream);
      call.check(), !races)
    return call.run();
  race(context, operation, tensors, shape, workspace, bytes, stream);
  // Another thread's race may have chosen a plan that does not fit this call's memory.
  if (const auto now = plans_.of(shape); now->plan.schedule.workspace_bytes <= bytes) known = now;
  return LinearCall(*this, context, operation, tensors, shape, known->plan, shard, workspace, stream).run();
}

// ---- The race of chunks --------------------------------------------------------------------------------

Stream LinearLosses::trial_stream() {
  // The host device has no streams, and its trial stream is the caller's.
  return device_.model().is_host() ? reinterpret_cast<Stream>(this) : device_.trial_stream();
}

void LinearLosses::forget_targets_of_trials(Context& context) {
  try {
    context.check(trial_stream());
  } catch (const TargetOutOfRange&) {
    // the call itself counts it once more, on the caller's stream
  }
}

void LinearLosses::race(Context& context, const LinearCrossEntropy& operation,
                        const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
                        std::byte* workspace, std::int64_t bytes, Stream stream) {
  const auto known = plans_.of(shape);
  const auto fits = [&](const LinearPlan& plan) { return plan.schedule.workspace_bytes <= bytes; };
  if (std::count_if(known->open.begin(), known->open.end(), fits) < 2) return;
  const Stream trials = trial_stream();
  device_.synchronize(stream);
  std::vector<LinearCall> calls;
  std::vector<const LinearPlan*> plans;
  std::vector<std::string> names;
  // The first calls tune their kernels: nothing may be tuned while a call is timed.
  for (const LinearPlan& plan : known->open) {
    if (!fits(plan)) continue;
    LinearCall call(*this, context, operation, tensors, shape, plan, nullptr, workspace, trials);
    if (call.run() == nullptr) continue;  // no kernel computes exponentials correctly
    if (!call.is_settled()) {
      log(LogLevel::info,
          fmt::format("{}: sizes of chunks are not compared, because a kernel is not tuned yet",
                      LinearCrossEntropy::name));
      plans_.close(shape);
      return forget_targets_of_trials(context);
    }
    calls.push_back(call);
    plans.push_back(&plan);
    names.push_back(text_of(plan));
  }
  if (calls.empty()) {
    plans_.close(shape);  // the call itself finds another way
    return forget_targets_of_trials(context);
  }
  const LinearSamples samples(device_, tensors, trials);
  const tuner::RaceResult result =
      tuner::run(device_,
                 {.subject = LinearCrossEntropy::name,
                  .names = names,
                  .launch = [&](std::size_t i) { calls[i].enqueue(); },
                  .set_back = [&] { samples.set_back(); },
                  .read = [&] { return samples.read(); },
                  .agrees = [&](const auto& made, const auto& right) { return samples.agree(made, right); }},
                 seconds_);
  forget_targets_of_trials(context);
  const auto position = std::find(names.begin(), names.end(), result.winner);
  const LinearPlan& winner = *plans[static_cast<std::size_t>(position - names.begin())];
  log(LogLevel::info,
      fmt::format("tuned {} of {} tokens x {} x {} classes on {}: chunks of {} tokens{} in {:.1f} us, the "
                  "best of {}; "
                  "chunks of {} took {:.1f} us",
                  LinearCrossEntropy::name, shape.tokens, shape.hidden, shape.classes, device_.model().name,
                  winner.schedule.chunk_tokens, winner.schedule.exponentials ? " by exponentials" : "",
                  result.winner_us, result.runners, plans.front()->schedule.chunk_tokens, result.first_us));
  plans_.keep(shape, result);
}

}  // namespace ce
