#include "ce/linear_plan.hpp"

#include <algorithm>

#include "ce/linear_statistics.hpp"
#include "generator/ceil_div.hpp"

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
/// Height of the products' tiles.
constexpr std::int64_t tile_tokens = 128;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return ceil_div(value, step) * step; }

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

}  // namespace

std::int64_t bytes_of_piece(std::int64_t bytes) noexcept { return rounded_up(bytes, piece_alignment); }

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
  return std::min(product_bytes, budget / 8 / piece_alignment * piece_alignment);
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
