#include "generator/linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/made_once.hpp"
#include "generator/ceil_div.hpp"

namespace ce::generator {
namespace {

constexpr std::string_view statistics_file = "kernels/gemm/statistics.cuh";
/// The kernels in templates/linear/exponentials/.
constexpr std::array<std::string_view, 6> exponentials_kernels{
    "reference", "factors", "scale", "hidden_gradient", "order", "weight_gradient"};

std::string exponentials_file(std::string_view kernel) {
  return fmt::format("linear/exponentials/{}.cuh", kernel);
}

std::int64_t one_block(const Config&, const Problem&) { return 1; }

}  // namespace

Program linear_convert(DType from, DType to) {
  constexpr std::uint32_t threads = 256, unroll = 4, vec = 4;
  return single_kernel({.file = "linear/convert.cuh",
                        .entry = "ce_linear_convert",
                        .words = fmt::format("linear_convert {} to {}", name(from), name(to)),
                        .own_arguments = true,
                        // The constants that row/row.cuh reads come last.
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

Program linear_places(DType target) {
  constexpr std::uint32_t threads = 1024;
  return single_kernel({.file = "linear/places.cuh",
                        .entry = "ce_linear_places",
                        .words = fmt::format("linear_places target={}", name(target)),
                        .own_arguments = true,
                        .constants = {type_constant("Target", target),
                                      fmt::format("static constexpr int threads = {}", threads)},
                        .threads = threads,
                        .shared_bytes = threads * 16,  // PlacesShared
                        .blocks = one_block});
}

namespace {

Program move_rows(std::string_view file, std::string_view entry, std::string_view verb, int unit_bytes) {
  constexpr std::uint32_t threads = 256, unroll = 4;
  return single_kernel(
      {.file = file,
       .entry = entry,
       .words = fmt::format("linear_{} unit={}", verb, unit_bytes),
       .own_arguments = true,
       .constants = {fmt::format("static constexpr int threads = {}, unit_bytes = {}", threads, unit_bytes)},
       .threads = threads,
       .persistent = true,
       .blocks = [](const Config&, const Problem& problem) {
         const std::int64_t units = problem.rows * problem.columns;
         return std::max<std::int64_t>(1, ceil_div(units, threads * unroll));
       }});
}

}  // namespace

Program linear_gather(int unit_bytes) {
  return move_rows("linear/gather.cuh", "ce_linear_gather", "gather", unit_bytes);
}

Program linear_scatter(int unit_bytes) {
  return move_rows("linear/scatter.cuh", "ce_linear_scatter", "scatter", unit_bytes);
}

int LinearStatistics::words() const noexcept {
  const StatsMembers members = cross_entropy_stats(true, false, smoothing, weights, indices, moment);
  return shard_words(members, size_of(logits) == 2, true, softcap);
}

std::string LinearStatistics::text() const {
  std::string text =
      fmt::format("linear_statistics {} logits={} target={}", name(input), name(logits), name(target_dtype));
  if (bias) text += fmt::format(" bias={}", name(bias_dtype));
  if (weights) text += fmt::format(" weight={}", name(weight_dtype));
  for (const auto& [word, set] : {std::pair{"smoothing", smoothing},
                                  {"scale", scale},
                                  {"softcap", softcap},
                                  {"row_scale", row_scales},
                                  {"argmax", indices},
                                  {"entropy", moment},
                                  {"exponentials", exponentials}})
    if (set) text += fmt::format(" {}", word);
  return text;
}

std::span<const ProductTile> product_tiles() noexcept {
  // As many stages as fit into shared memory.
  static constexpr std::array<ProductTile, 4> tiles{
      {{192, 5, 2, false}, {256, 4, 2, false}, {128, 7, 2, true}, {192, 5, 1, false}}};
  return tiles;
}

std::string to_text(const ProductTile& tile) {
  return fmt::format("tile={}x{},stages={},cluster={}{}", ProductTile::rows, tile.columns, tile.stages,
                     tile.cluster, tile.turns ? ",turns" : "");
}

namespace {

std::string flag_constant(std::string_view name, bool value) {
  return fmt::format("static constexpr bool {} = {}", name, value);
}

/// Constants of all kernels that read or write statistics.
std::vector<std::string> constants_of(const LinearStatistics& statistics) {
  return {type_constant("Input", statistics.input), type_constant("Element", statistics.logits),
          type_constant("Target", statistics.target_dtype), type_constant("Bias", statistics.bias_dtype),
          type_constant("Weight", statistics.weight_dtype), flag_constant("bias", statistics.bias),
          flag_constant("weights", statistics.weights), flag_constant("smoothing", statistics.smoothing),
          flag_constant("scale", statistics.scale), flag_constant("softcap", statistics.softcap),
          flag_constant("row_scales", statistics.row_scales), flag_constant("indices", statistics.indices),
          flag_constant("moment", statistics.moment), flag_constant("exponentials", statistics.exponentials),
          amount_constant(option_of(&CrossEntropyFlags::scale)),
          amount_constant(option_of(&CrossEntropyFlags::softcap)),
          // The number of classes is a runtime argument, as for shards. Nothing else is read or written.
          "static constexpr bool sharded = true, merges = false, single_class = false",
          "static constexpr bool gradient = false", "static constexpr int columns = 0, inputs = 1",
          "static constexpr bool batched = false, strided = false"};
}

/// A kernel of templates/linear/exponentials/.
Program exponentials_kernel(std::string_view name, const LinearStatistics& statistics, SingleKernel kernel) {
  const std::string file = exponentials_file(name), entry = fmt::format("ce_linear_{}", name);
  kernel.file = file;
  kernel.entry = entry;
  kernel.words = fmt::format("linear_{} {}{}", name, statistics.text(), kernel.words);
  kernel.own_arguments = true;
  std::vector<std::string> constants = constants_of(statistics);
  constants.push_back(fmt::format("static constexpr int threads = {}", kernel.threads));
  std::move(kernel.constants.begin(), kernel.constants.end(), std::back_inserter(constants));
  kernel.constants = std::move(constants);
  return single_kernel(kernel);
}

template <std::uint32_t rows_of_block>
std::int64_t blocks_of_rows(const Config&, const Problem& problem) {
  return ceil_div(std::max<std::int64_t>(1, problem.rows), std::int64_t{rows_of_block});
}

}  // namespace

Program linear_step(LinearStep step, const LinearStatistics& statistics) {
  constexpr std::uint32_t lanes = 32, warps = 4, threads_of_row = 256, rows_at_once = 1024;
  switch (step) {
    case LinearStep::reference:
      return exponentials_kernel("reference", statistics,
                                 {.threads = warps * lanes, .blocks = blocks_of_rows<warps>});
    case LinearStep::scale:
      return exponentials_kernel("scale", statistics,
                                 {.threads = threads_of_row, .blocks = blocks_of_rows<1>});
    case LinearStep::hidden_gradient:
      return exponentials_kernel("hidden_gradient", statistics,
                                 {.threads = threads_of_row, .blocks = blocks_of_rows<1>});
    case LinearStep::order:
      return exponentials_kernel(
          "order", statistics,
          {.constants = {fmt::format("static constexpr int rows_at_once = {}", rows_at_once)},
           .threads = lanes,
           .shared_bytes = rows_at_once * 4,  // OrderShared
           .blocks = blocks_of_rows<lanes>});
  }
  throw std::logic_error("unknown step of the exponentials");
}

Program linear_factors(const LinearFactors& factors) {
  constexpr std::uint32_t threads = 64;
  return exponentials_kernel(
      "factors", factors.statistics,
      {.words = fmt::format(" upstream={}{}", name(factors.upstream), factors.z_loss ? " z_loss" : ""),
       .constants = {type_constant("Upstream", factors.upstream), flag_constant("z_loss", factors.z_loss),
                     amount_constant(option_of(&CrossEntropyFlags::z_loss))},
       .threads = threads,
       .blocks = blocks_of_rows<threads>});
}

Program linear_weight_gradient(const LinearStatistics& statistics, DType gradient) {
  constexpr std::uint32_t threads = 128, unroll = 8;
  return exponentials_kernel("weight_gradient", statistics,
                             {.words = fmt::format(" to {}", name(gradient)),
                              .constants = {type_constant("Gradient", gradient),
                                            fmt::format("static constexpr int unroll = {}", unroll)},
                              .threads = threads,
                              .blocks = [](const Config&, const Problem& problem) {
                                return std::max<std::int64_t>(
                                    1,
                                    problem.rows * ceil_div(problem.columns, std::int64_t{threads} * unroll));
                              }});
}

const std::string& linear_template_digest(bool exponentials) {
  static constinit MadeOnce<std::string> of_kernel, of_gradients;
  return (exponentials ? of_gradients : of_kernel).get([&] {
    std::set<std::string, std::less<>> files{std::string(statistics_file)};
    if (exponentials)
      for (const std::string_view kernel : exponentials_kernels) files.insert(exponentials_file(kernel));
    return digest_of_templates(std::move(files));
  });
}

Program linear_statistics(const LinearStatistics& statistics, const ProductTile& tile) {
  std::vector<std::string> constants = constants_of(statistics);
  constants.push_back(fmt::format("static constexpr int tile_columns = {}, stages = {}, cluster = {}",
                                  tile.columns, tile.stages, tile.cluster));
  constants.push_back(flag_constant("turns", tile.turns));
  return single_kernel({.file = statistics_file,
                        .entry = "ce_linear_statistics",
                        .words = statistics.text() + " " + to_text(tile),
                        .own_arguments = true,
                        .constants = std::move(constants),
                        .threads = ProductTile::threads,
                        .shared_bytes = static_cast<std::uint32_t>(tile.shared_bytes()),
                        .cluster = static_cast<std::uint32_t>(tile.cluster),
                        .architecture_specific = true,
                        .blocks = [](const Config&, const Problem& problem) { return problem.rows; }});
}

}  // namespace ce::generator
