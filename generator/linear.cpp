#include "generator/linear.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/ceil_div.hpp"

namespace ce::generator {
namespace {

std::int64_t one_block(const Config&, const Problem&) { return 1; }

}  // namespace

Program linear_convert(DType from, DType to) {
  constexpr std::uint32_t threads = 256, unroll = 4, vec = 4;
  return single_kernel({.file = "linear/convert.cuh",
                        .entry = "ce_linear_convert",
                        .words = fmt::format("linear_convert {} to {}", name(from), name(to)),
                        .own_arguments = true,
                        // What row/row.cuh asks of a problem comes last.
                        .constants = {type_constant("From", from), type_constant("To", to),
                                      fmt::format("static constexpr int threads = {}, unroll = {}, vec = {}",
                                                  threads, unroll, vec),
                                      type_constant("Element", from), "static constexpr int inputs = 1",
                                      "static constexpr bool batched = false, strided = false"},
                        .threads = threads,
                        .persistent = true,
                        .blocks = [](const Config&, const Problem& problem) {
                          return std::max<std::int64_t>(1, ceil_div(problem.rows, threads * unroll * vec));
                        }});
}

Program linear_divisor(const LinearDivisor& divisor) {
  constexpr std::uint32_t threads = 1024;
  const auto& [target, weight, probabilities, weights, scales] = divisor;
  return single_kernel(
      {.file = "linear/divisor.cuh",
       .entry = "ce_linear_divisor",
       .words = fmt::format("linear_divisor target={} weight={}{}{}{}", name(target), name(weight),
                            probabilities ? " probabilities" : "", weights ? " weights" : "",
                            scales ? " scales" : ""),
       .own_arguments = true,
       .constants = {type_constant("Target", target), type_constant("Weight", weight),
                     fmt::format("static constexpr int threads = {}", threads),
                     fmt::format("static constexpr bool probabilities = {}, weights = {}, scales = {}",
                                 probabilities, weights, scales)},
       .threads = threads,
       .shared_bytes = threads * 16,  // DivisorShared
       .blocks = one_block});
}

Program linear_loss_sum(DType loss) {
  constexpr std::uint32_t threads = 32;
  return single_kernel(
      {.file = "linear/loss_sum.cuh",
       .entry = "ce_linear_loss_sum",
       .words = fmt::format("linear_loss_sum {}", name(loss)),
       .own_arguments = true,
       .constants = {type_constant("Loss", loss), fmt::format("static constexpr int threads = {}", threads)},
       .threads = threads,
       .blocks = one_block});
}

Program linear_column_sums(DType element) {
  constexpr std::uint32_t threads = 128, unroll = 8;
  return single_kernel(
      {.file = "linear/column_sums.cuh",
       .entry = "ce_linear_column_sums",
       .words = fmt::format("linear_column_sums {}", name(element)),
       .own_arguments = true,
       .constants = {type_constant("Element", element),
                     fmt::format("static constexpr int threads = {}, unroll = {}", threads, unroll)},
       .threads = threads,
       .blocks = [](const Config&, const Problem& problem) {
         return ceil_div(problem.columns, std::int64_t{threads});
       }});
}

}  // namespace ce::generator
