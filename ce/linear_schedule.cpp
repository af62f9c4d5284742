#include "ce/linear_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "ce/error.hpp"
#include "ce/linear_statistics.hpp"
#include "ce/linear_tensors.hpp"
#include "ce/linear_valid_tokens.hpp"
#include "ce/rank_agreement.hpp"
#include "generator/ceil_div.hpp"
#include "runtime/split_matmuls.hpp"

namespace ce {
namespace {

using generator::ceil_div;

/// The recommended workspace of cuBLASLt on an H100; never more than an eighth of the budget.
constexpr std::int64_t product_bytes = std::int64_t{32} << 20;
/// With fewer tokens in a chunk, reading and writing the sums of the weight's gradient takes longer than its products.
constexpr std::int64_t least_f32_chunk = 256;
/// The smallest chunk, even if the budget does not hold it.
constexpr std::int64_t least_chunk = 64;
/// Chunks with fewer tokens are not raced: their products are slower than those of larger chunks.
constexpr std::int64_t least_raced_chunk = 1024;
/// With a larger hidden size, the saved pass over the logits is too small a part of the work to make up for the slower
/// products.
constexpr std::int64_t most_hidden_of_exponentials = 3072;
/// Height of the products' tiles.
constexpr std::int64_t tile_tokens = 128;
constexpr std::int64_t line_bytes = 128, piece_bytes = 256;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return ceil_div(value, step) * step; }

/// Checks for contiguous rows at equal distances.
void check_rows(std::string_view name, const ConstTensor& tensor, const runtime::Device& device) {
  check_tensor(name, tensor, device);
  if (!is_floating(tensor.dtype))
    throw InvalidArgument(fmt::format("{}.dtype", name), text_of(tensor.dtype), "f32, f16 or bf16");
  if (tensor.batch_rows != 0 || (tensor.columns > 1 && tensor.column_stride != 1))
    throw InvalidArgument(name, text_of_view(tensor),
                          "rows of adjacent elements, with one distance between all rows");
}

void check_f32_or_own(std::string_view name, const ConstTensor& tensor, DType own, std::string_view whose) {
  if (tensor.dtype != DType::f32)
    check_dtype(name, tensor, own, fmt::format("the dtype of {}, or f32", whose));
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
    throw InvalidArgument("logits_dtype", text_of(*logits),
                          fmt::format("f32, or {}, the dtype of hidden", name(dtype)));
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

}  // namespace

std::int64_t bytes_of_piece(std::int64_t bytes) noexcept { return rounded_up(bytes, piece_bytes); }

std::int64_t LinearShape::logits_stride() const noexcept {
  return rounded_up(classes, line_bytes / std::min(size_of(dtype), size_of(logits)));
}

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

std::int64_t LinearShape::hidden_stride() const noexcept {
  return rounded_up(hidden, line_bytes / size_of(dtype));
}

namespace {

/// Number of tiles in a row, at most.
std::int64_t tiles_of(const LinearShape& shape) {
  std::int64_t most = 0;
  for (const ProductTile& tile : generator::product_tiles())
    most = std::max(most, ceil_div(shape.classes, std::int64_t{tile.columns}));
  return most;
}

/// Bytes for each token of a chunk. With exponentials it is an upper bound: a row has at most as many messages as there
/// are multiplying warpgroups.
std::int64_t bytes_of_token(const LinearShape& shape, bool exponentials) {
  std::int64_t bytes = 0;
  if (exponentials) {
    bytes += shape.logits_stride() * size_of(shape.dtype) +
             shape.multiprocessors * std::int64_t{8} * shape.exponentials->words() +
             (tiles_of(shape) + 6) * 4;
    if (shape.weight_grad) bytes += shape.hidden_stride() * size_of(shape.dtype);
    if (shape.hidden_grad) bytes += shape.hidden * 4;
  } else {
    bytes += shape.logits_stride() * size_of(shape.logits);
    if (shape.converts_logits()) bytes += shape.logits_stride() * size_of(shape.dtype);
    if (shape.f32_hidden_product) bytes += shape.hidden * 4;
  }
  if (!shape.has_loss && shape.reduction == Reduction::none) bytes += 4;
  if (shape.drops_tokens())
    bytes += (shape.hidden_grad ? 2 : 1) * shape.hidden_stride() * size_of(shape.dtype);
  return bytes;
}

bool sums_apart(const LinearShape& shape) {
  return shape.weight_grad && shape.weight_grad_dtype != DType::f32;
}
std::int64_t bytes_of_weight_sum(const LinearShape& shape) { return shape.classes * shape.hidden * 4; }

/// Splits the tokens into chunks of about equal size, with at most `most` tokens.
std::int64_t even_chunk(std::int64_t tokens, std::int64_t most) {
  const std::int64_t even = rounded_up(ceil_div(tokens, ceil_div(tokens, most)), tile_tokens);
  if (even <= most) return even;
  return most >= tile_tokens ? most / tile_tokens * tile_tokens : most;
}

/// Whether CUDA's library splits the product of all tokens for the gradient of hidden, which then has f32 sums. On the
/// host device small products count, too, so that its tests cover the rounding of sums.
bool may_be_made_in_two(const LinearShape& shape, const ConstTensor& weight, const runtime::Device& device) {
  const runtime::Matmul product = hidden_matmul(shape, weight, shape.tokens, DType::f32, shape.hidden);
  const bool is_host = device.model().is_host();
  return runtime::split(product, is_host ? 0 : runtime::SplitMatmuls::worth_it).has_value();
}

/// The chunk size, equal on every rank for any number of own classes.
std::int64_t chunk_of_ranks(const LinearShape& shape, int ranks) {
  constexpr std::int64_t default_budget = std::int64_t{512} << 20;
  if (shape.tokens == 0) return 0;
  LinearShape mean = shape;
  mean.classes = ceil_div(shape.all_classes, ranks);
  std::int64_t of_token = mean.logits_stride() * size_of(shape.logits);
  if (shape.logits != shape.dtype) of_token += mean.logits_stride() * size_of(shape.dtype);
  const std::int64_t budget = shape.budget > 0 ? shape.budget : default_budget;
  const std::int64_t most = std::clamp(budget / of_token, std::min(least_chunk, shape.tokens), shape.tokens);
  const std::int64_t chunk = most == shape.tokens ? most : even_chunk(shape.tokens, most);
  const bool sums = sums_apart(shape) && !shape.own_accumulation;
  // Several chunks also need memory for the sums.
  return sums && shape.tokens <= chunk + bytes_of_weight_sum(mean) / of_token ? shape.tokens : chunk;
}

}  // namespace

LinearShape shape_of(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                     const runtime::Device& device, const Shard* shard) {
  if (shard != nullptr) require_communicator(shard->communicator);
  const ConstTensor &hidden = tensors.hidden, &weight = tensors.weight, &target = tensors.target;
  require("hidden", hidden);
  require("weight", weight);
  require("target", target);
  check_rows("hidden", hidden, device);
  check_rows("weight", weight, device);
  if (weight.rows < 1) throw InvalidArgument("weight.rows", fmt::to_string(weight.rows), "1 or more classes");
  if (weight.columns != hidden.columns)
    throw InvalidArgument("weight.columns", fmt::to_string(weight.columns),
                          fmt::format("the {} columns of hidden", hidden.columns));
  check_dtype("weight", weight, hidden.dtype, "the dtype of hidden");
  check_dtypes(operation, hidden.dtype);
  LinearShape shape{.tokens = hidden.rows,
                    .hidden = hidden.columns,
                    .classes = weight.rows,
                    .all_classes = shard != nullptr ? shard->classes : weight.rows,
                    .dtype = hidden.dtype,
                    .logits = operation.logits_dtype.value_or(hidden.dtype),
                    .reduction = operation.cross_entropy.reduction,
                    .budget = operation.memory_budget,
                    .chunk_tokens = operation.chunk_tokens};

  if (is_given("bias", tensors.bias)) {
    check_rows("bias", tensors.bias, device);
    check_vector("bias", tensors.bias, shape.classes);
    shape.converts_bias = tensors.bias.dtype != shape.logits;
  }
  if (is_given("hidden_grad", tensors.hidden_grad)) {
    check_same_shape("hidden_grad", tensors.hidden_grad, "hidden", hidden);
    check_rows("hidden_grad", tensors.hidden_grad, device);
    shape.hidden_grad = true;
  }
  if (const ConstTensor& grad = *view_of(tensors.weight_grad); is_given("weight_grad", grad)) {
    ConstTensor model = weight;
    model.dtype = grad.dtype;
    check_same_shape("weight_grad", grad, "weight", model);
    check_rows("weight_grad", grad, device);
    check_f32_or_own("weight_grad", grad, weight.dtype, "weight");
    if (grad.rows > 1 && grad.row_step() != grad.columns)
      throw InvalidArgument("weight_grad", text_of_view(grad), "rows without gaps between them");
    shape.weight_grad = true;
    shape.weight_grad_dtype = grad.dtype;
  }
  if (is_given("bias_grad", tensors.bias_grad)) {
    if (tensors.bias.data == nullptr)
      throw InvalidArgument("bias_grad.data", "set", "null, because there is no bias");
    check_rows("bias_grad", tensors.bias_grad, device);
    check_vector("bias_grad", tensors.bias_grad, shape.classes);
    check_f32_or_own("bias_grad", tensors.bias_grad, tensors.bias.dtype, "bias");
    shape.bias_grad = true;
    shape.bias_grad_dtype = tensors.bias_grad.dtype;
  }
  if (operation.accumulation) {
    const DType own = shape.weight_grad ? shape.weight_grad_dtype : shape.dtype;
    if (*operation.accumulation != DType::f32 && *operation.accumulation != own)
      throw InvalidArgument("accumulation", text_of(*operation.accumulation),
                            fmt::format("f32, or {}, the dtype of weight_grad", name(own)));
    (*operation.accumulation == DType::f32 ? shape.f32_accumulation : shape.own_accumulation) = true;
  }

  // Vectors of tokens are cut into chunks, so later checks do not see their full length.
  const bool probabilities = is_floating(target.dtype);
  if (probabilities) {
    check_rows("target", target, device);
    if (target.rows != shape.tokens || target.columns != shape.classes)
      throw InvalidArgument(
          "target", text_of_view(target),
          fmt::format("class indices, or probabilities {} x {}", shape.tokens, shape.classes));
  } else {
    check_of_tokens("target", target, shape.tokens, device);
  }
  if (shape.reduction == Reduction::none) {
    check_of_tokens("loss", tensors.loss, shape.tokens, device);
    check_of_tokens("z_loss_out", tensors.z_loss_out, shape.tokens, device);
  }
  for (const auto& output : token_outputs)
    check_of_tokens(output.name, tensors.*output.member, shape.tokens, device);
  for (const auto& input : token_inputs)
    check_of_tokens(input.name, tensors.*input.member, shape.tokens, device);
  shape.has_loss = is_given("loss", tensors.loss);
  if (const ConstTensor& upstream = tensors.upstream; is_given("upstream", upstream)) {
    if (!shape.gradient())
      throw InvalidArgument("upstream.data", "set", "null, because there is no gradient");
    check_tensor("upstream", upstream, device);
    shape.upstreams = is_vector(upstream, 1) ? 1 : shape.tokens;
    check_vector("upstream", upstream, shape.upstreams);
    check_f32_or("upstream", upstream, shape.logits);
    if (shape.has_loss) check_dtype("upstream", upstream, tensors.loss.dtype, "the dtype of loss");
    shape.converts_upstream = shape.reduction != Reduction::none && upstream.dtype != DType::f32;
  }
  shape.upstream_of_tokens = shape.upstreams > 1;
  if (const auto valid_tokens = operation.valid_tokens) {
    if (probabilities)
      throw InvalidArgument("valid_tokens", "set", "unset, because targets are probabilities");
    if (*valid_tokens < 0 || *valid_tokens > shape.tokens)
      throw InvalidArgument("valid_tokens", fmt::to_string(*valid_tokens),
                            fmt::format("0 to {}, the number of tokens", shape.tokens));
    shape.all_tokens = shape.tokens;
    shape.valid_tokens = *valid_tokens;
    // At least one, so that a call in which no token counts needs no special case.
    shape.tokens = std::min(shape.all_tokens, std::max<std::int64_t>(*valid_tokens, 1));
    if (shape.upstream_of_tokens) shape.upstreams = shape.tokens;
    shape.vector_bytes = bytes_of_vectors(operation, tensors, shape);
  }
  if (shape.hidden_grad) {
    const std::int64_t stride = shape.drops_tokens() ? shape.hidden_stride() : tensors.hidden_grad.row_step();
    shape.f32_hidden_product = stride == shape.hidden && may_be_made_in_two(shape, weight, device);
  }
  shape.scales_weights = shape.reduction == Reduction::mean && !probabilities &&
                         tensors.class_weight.data != nullptr && operation.cross_entropy.z_loss != 0 &&
                         tensors.divisor.data == nullptr;
  if (is_given("class_weight", tensors.class_weight)) {
    check_tensor("class_weight", tensors.class_weight, device);
    check_vector("class_weight", tensors.class_weight, shape.all_classes);
    check_f32_or("class_weight", tensors.class_weight, shape.logits);
  }
  if (const ConstTensor& workspace = *view_of(tensors.workspace); is_given("workspace", workspace)) {
    check_dtype("workspace", workspace, DType::u8, "always");
    check_tensor("workspace", workspace, device);
    check_vector("workspace", workspace, workspace.rows * workspace.columns);
    if (reinterpret_cast<std::uintptr_t>(workspace.data) % piece_bytes != 0)
      throw InvalidArgument("workspace.data", fmt::format("{}", workspace.data),
                            fmt::format("an address aligned to {} bytes", piece_bytes));
  }
  check_memory(tensors);
  if (shard != nullptr) {
    if (operation.exponentials.value_or(false))
      throw InvalidArgument("exponentials", "true", "unset or false, because ranks share the classes");
    if (shape.all_classes < shape.classes)
      throw InvalidArgument("classes", fmt::to_string(shape.all_classes),
                            fmt::format("{} or more, the number of rows of weight", shape.classes));
    shape.f32_accumulation = !shape.own_accumulation;
    if (shape.chunk_tokens == 0) shape.chunk_tokens = chunk_of_ranks(shape, shard->communicator.size);
    return shape;
  }
  shape.statistics = statistics_of(operation, tensors, shape, device);
  if (operation.exponentials.value_or(shape.hidden <= most_hidden_of_exponentials))
    shape.exponentials = exponentials_of(operation, tensors, shape, device);
  shape.wants_exponentials = operation.exponentials.value_or(false);
  if (shape.wants_exponentials && shape.gradient() && shape.tokens > 0 && !shape.exponentials)
    throw InvalidArgument(
        "exponentials", "true",
        "unset or false, because this call cannot use them (see LinearCrossEntropy::exponentials)");
  if (shape.statistics || shape.exponentials) shape.multiprocessors = device.model().multiprocessors;
  return shape;
}

namespace {

class Pieces {
 public:
  LinearPiece take(std::int64_t bytes) {
    const LinearPiece piece{next_, bytes};
    next_ += bytes_of_piece(bytes);
    return piece;
  }
  [[nodiscard]] std::int64_t total() const noexcept { return next_; }

 private:
  std::int64_t next_ = 0;
};

/// Takes memory for the tokens that count; `rows` of them at a time are in products.
void take_valid_tokens(const LinearShape& shape, std::int64_t rows, Pieces& pieces, LinearPlan& plan) {
  if (!shape.drops_tokens()) return;
  const auto bytes_of_numbers = [](std::int64_t count) { return bytes_of_piece(count * 8); };
  plan.valid_tokens = pieces.take(bytes_of_numbers(1) + bytes_of_numbers(shape.tokens) +
                                  bytes_of_numbers(shape.all_tokens) + shape.vector_bytes);
  const std::int64_t bytes = rows * shape.hidden_stride() * size_of(shape.dtype);
  plan.hidden = pieces.take(bytes);
  if (shape.hidden_grad) plan.hidden_grad = pieces.take(bytes);
}

/// Bytes of the statistics for that many tokens.
std::int64_t bytes_of_statistics(const LinearShape& shape, const generator::LinearStatistics& kernel,
                                 std::int64_t tokens) {
  return tokens * most_messages(shape.multiprocessors, tokens, shape.classes) * kernel.words() * 4;
}

void take_exponentials(const LinearShape& shape, std::int64_t chunk, std::int64_t chunks, Pieces& pieces,
                       LinearPlan& plan) {
  const std::int64_t last = shape.tokens - (chunks - 1) * chunk;  // fewer tokens may have more splits
  plan.logits = pieces.take(chunk * shape.logits_stride() * size_of(shape.dtype));
  plan.statistics = pieces.take(std::max(bytes_of_statistics(shape, *shape.exponentials, chunk),
                                         bytes_of_statistics(shape, *shape.exponentials, last)));
  plan.maxima = pieces.take(chunk * tiles_of(shape) * 4);
  for (LinearPiece* piece : {&plan.reference, &plan.raised, &plan.row_factor, &plan.target_factor,
                             &plan.order, &plan.classes_in_order})
    *piece = pieces.take(chunk * 4);
  if (shape.weight_grad)
    plan.scaled_hidden = pieces.take(chunk * shape.hidden_stride() * size_of(shape.dtype));
  if (shape.hidden_grad) plan.hidden_product = pieces.take(chunk * shape.hidden * 4);
}

LinearPlan planned(const LinearShape& shape, bool exponentials, std::int64_t chunk, bool f32_sum,
                   std::int64_t for_products) {
  LinearPlan plan;
  const std::int64_t chunks = shape.tokens == 0 ? 0 : ceil_div(shape.tokens, chunk);
  const bool sums = chunks > 1 && sums_apart(shape) && f32_sum, many = chunks > 1;
  plan.schedule = {.chunk_tokens = chunk,
                   .chunks = chunks,
                   .accumulation = sums || !sums_apart(shape) ? DType::f32 : shape.weight_grad_dtype,
                   .exponentials = exponentials};
  Pieces pieces;
  take_valid_tokens(shape, chunk, pieces, plan);
  if (exponentials) {
    take_exponentials(shape, chunk, chunks, pieces, plan);
  } else {
    const std::int64_t elements = chunk * shape.logits_stride();
    plan.logits = pieces.take(elements * size_of(shape.logits));
    if (shape.converts_logits()) plan.rounded_logits = pieces.take(elements * size_of(shape.dtype));
    if (shape.f32_hidden_product) plan.hidden_product = pieces.take(chunk * shape.hidden * 4);
  }
  if (sums) plan.weight_sum = pieces.take(bytes_of_weight_sum(shape));
  if (shape.bias_grad && shape.bias_grad_dtype != DType::f32) plan.bias_sum = pieces.take(shape.classes * 4);
  if (shape.converts_bias) plan.bias = pieces.take(shape.classes * size_of(shape.logits));
  if (many && shape.scales_weights) plan.class_weight = pieces.take(shape.all_classes * 4);
  if (many && shape.converts_upstream) plan.upstream = pieces.take(shape.upstreams * 4);
  if ((many || exponentials) && shape.reduction == Reduction::mean) plan.divisor = pieces.take(4);
  if (many && shape.reduction != Reduction::none) {
    plan.losses = pieces.take(chunks * 4);
    plan.z_losses = pieces.take(chunks * 4);
  } else if (!shape.has_loss) {
    plan.losses = pieces.take(shape.reduction == Reduction::none ? chunk * 4 : 4);
  }
  plan.products = pieces.take(for_products);
  plan.schedule.workspace_bytes = pieces.total();
  return plan;
}

std::int64_t bytes_for_products(std::int64_t budget) {
  return std::min(product_bytes, budget / 8 / piece_bytes * piece_bytes);
}

/// Uses the largest chunks that the budget holds, or the smallest ones.
LinearPlan plan_for(const LinearShape& shape, std::int64_t budget, bool exponentials) {
  const auto plan = [&](std::int64_t chunk, bool f32_sum) {
    return planned(shape, exponentials, chunk, f32_sum, bytes_for_products(budget));
  };
  const bool may_sum = !shape.own_accumulation;
  if (shape.chunk_tokens > 0 || shape.tokens == 0) {
    const LinearPlan first = plan(std::min(shape.chunk_tokens, shape.tokens), may_sum);
    if (shape.f32_accumulation || first.schedule.workspace_bytes <= budget) return first;
    return plan(first.schedule.chunk_tokens, false);
  }
  if (const LinearPlan whole = plan(shape.tokens, false); whole.schedule.workspace_bytes <= budget)
    return whole;
  const auto most_with = [&](bool f32_sum) {
    const std::int64_t of_token = bytes_of_token(shape, exponentials);
    // The fixed part, from a plan for chunks of one token; with exponentials it includes one token.
    const std::int64_t beside = plan(1, f32_sum).schedule.workspace_bytes - (exponentials ? 0 : of_token);
    return std::max<std::int64_t>((budget - beside) / of_token, 0);
  };
  bool f32_sum = may_sum && sums_apart(shape);
  std::int64_t most = most_with(f32_sum);
  if (f32_sum && !shape.f32_accumulation && most < std::min(least_f32_chunk, shape.tokens)) {
    f32_sum = false;
    most = most_with(false);
  }
  return plan(even_chunk(shape.tokens, std::clamp(most, std::min(least_chunk, shape.tokens), shape.tokens)),
              f32_sum);
}

}  // namespace

LinearPlan plan_for(const LinearShape& shape, std::int64_t budget) {
  if (!shape.statistics) return plan_for(shape, budget, shape.wants_exponentials && shape.exponentials);
  LinearPlan plan;  // ignores the budget: this is the minimum
  Pieces pieces;
  plan.schedule = {.chunk_tokens = shape.tokens, .chunks = 1};
  take_valid_tokens(shape, shape.tokens, pieces, plan);
  plan.statistics = pieces.take(bytes_of_statistics(shape, *shape.statistics, shape.tokens));
  if (!shape.has_loss) plan.losses = pieces.take(shape.reduction == Reduction::none ? shape.tokens * 4 : 4);
  plan.schedule.workspace_bytes = pieces.total();
  return plan;
}

std::vector<LinearPlan> plans_for(const LinearShape& shape, std::int64_t budget) {
  std::vector<LinearPlan> all{plan_for(shape, budget)};
  if (shape.statistics || shape.chunk_tokens > 0 || shape.tokens == 0) return all;
  const auto add_parts_of_last = [&](int most_parts) {
    if (sums_apart(shape) && shape.own_accumulation) return;
    const LinearSchedule largest = all.back().schedule;
    for (int parts = 2; parts <= most_parts; parts *= 2) {
      const std::int64_t chunk = even_chunk(
          shape.tokens, rounded_up(ceil_div(largest.chunk_tokens, std::int64_t{parts}), tile_tokens));
      if (chunk < least_raced_chunk || chunk >= all.back().schedule.chunk_tokens) break;
      LinearPlan plan = planned(shape, largest.exponentials, chunk, true, bytes_for_products(budget));
      plan.parts = parts;
      if (plan.schedule.workspace_bytes <= budget) all.push_back(plan);
    }
  };
  add_parts_of_last(8);
  if (!shape.exponentials || shape.wants_exponentials) return all;
  const LinearPlan plan = plan_for(shape, budget, true);
  const bool rounds_more =
      plan.schedule.accumulation != DType::f32 && plan.schedule.chunks > all.front().schedule.chunks;
  if (rounds_more || plan.schedule.workspace_bytes > budget) return all;
  all.push_back(plan);
  add_parts_of_last(2);
  return all;
}

}  // namespace ce
