#include "generator/variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/made_once.hpp"
#include "ce/error.hpp"
#include "generator/ceil_div.hpp"
#include "generator/constraints.hpp"
#include "generator/templates.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {
namespace {

bool is_merge(const Problem& problem) { return problem.operation == Operation::cross_entropy_merge; }
bool serves_merges(const Problem& problem) { return is_merge(problem) && !problem.strided; }
bool serves_rows(const Problem& problem) {
  return !is_ceiling(problem.operation) && !is_merge(problem) && !exchanges(problem.operation) &&
         !problem.strided;
}
/// Rows narrow enough to be held in registers; not rows whose logsumexp is given.
bool serves_held_rows(const Problem& problem) {
  return serves_rows(problem) && (reduces(problem) || has_output(problem));
}
/// Rows without further tensors that are read or written per row.
bool serves_plain_rows(const Problem& problem) {
  return serves_rows(problem) && !is_cross_entropy(problem.operation);
}
bool serves_reductions(const Problem& problem) { return serves_rows(problem) && reduces(problem); }
/// Each chunk in registers has code of its own; with a soft cap that would be too much code.
bool serves_without_cap(const Problem& problem) { return serves_reductions(problem) && !problem.has.softcap; }
/// Exchanging statistics between ranks needs a warp with no other work.
bool serves_costly_outputs(const Problem& problem) {
  if (exchanges(problem.operation)) return !problem.strided;
  return serves_reductions(problem) && has_output(problem) && has_costly_options(problem);
}
bool serves_cheap_outputs(const Problem& problem) {
  return serves_reductions(problem) && has_output(problem) && !has_costly_options(problem);
}
bool serves_outputs_alone(const Problem& problem) { return serves_rows(problem) && !reduces(problem); }
bool serves_losses_alone(const Problem& problem) {
  return serves_reductions(problem) && !has_output(problem);
}
bool serves_strided(const Problem& problem) {
  return !is_ceiling(problem.operation) && !is_merge(problem) && !exchanges(problem.operation) &&
         problem.strided;
}
bool serves_streams(const Problem& problem) { return is_ceiling(problem.operation); }

/// SoftmaxStats of each warp, or of each lane.
int warp_stats_bytes(const Config& config, const Problem& problem) {
  return stats_bytes(problem) * config.warps;
}
int lane_stats_bytes(const Config& config, const Problem& problem) {
  return 32 * stats_bytes(problem) * config.warps;
}
int no_bytes(const Config&, const Problem&) { return 0; }
int word_bytes(const Config& config, const Problem&) { return 4 * config.warps; }

std::int64_t cluster_per_row(const Config& config, const Problem& problem) {
  return problem.rows * config.cluster;
}
std::int64_t block_per_row(const Config&, const Problem& problem) { return problem.rows; }
std::int64_t block_per_tile(const Config& config, const Problem& problem) {
  return ceil_div(problem.rows * problem.columns, config.tile);
}

/// Without outputs each thread processes a row.
std::int64_t block_per_row_tile(const Config& config, const Problem& problem) {
  if (!has_output(problem)) return ceil_div(problem.rows, std::int64_t{32} * config.warps);
  // A tile smaller than a vector is rejected, but the function may be called before that.
  const int tile_vectors = std::max(1, config.tile / config.vec);
  return problem.rows * std::max<std::int64_t>(1, ceil_div(vectors_of(config, problem), tile_vectors));
}
/// For variants whose lanes share rows, or have several each.
std::int64_t block_per_rows(const Config& config, const Problem& problem) {
  const std::int64_t lanes = std::int64_t{32} * config.warps;
  return ceil_div(problem.rows, std::max(1, config.rows) * lanes / std::max(1, config.lanes));
}
std::int64_t blocks_per_row(const Config& config, const Problem& problem) {
  return problem.rows * config.split;
}
std::int64_t thread_per_row(const Config& config, const Problem& problem) {
  return ceil_div(problem.rows, 32 * config.warps);
}
std::int64_t block_per_32_rows(const Config&, const Problem& problem) { return ceil_div(problem.rows, 32); }

constexpr std::array<VariantStep, 1> one_step{{{"ce_row"}}};
constexpr std::array<VariantStep, 2> two_steps{{{"ce_partial"}, {"ce_row", true}}};

constexpr Variant all_variants[] = {
    {.name = "warp",
     .file = "kernels/warp.cuh",
     .serves = serves_held_rows,
     .constraints = rejects_warp,
     .shared_bytes = no_bytes,
     .blocks = block_per_rows,
     .steps = one_step},
    {.name = "packed",
     .file = "kernels/packed.cuh",
     .serves = serves_plain_rows,
     .constraints = rejects_packed,
     .shared_bytes = packed_bytes,
     .blocks = block_per_rows,
     .steps = one_step},
    {.name = "transpose",
     .file = "kernels/transpose.cuh",
     .serves = serves_losses_alone,
     .constraints = rejects_transpose,
     .shared_bytes = transpose_bytes,
     .blocks = block_per_rows,
     .steps = one_step},
    {.name = "block",
     .file = "kernels/block.cuh",
     .serves = serves_reductions,
     .constraints = rejects_block,
     .shared_bytes = warp_stats_bytes,
     .blocks = block_per_row,
     .steps = one_step},
    {.name = "two_pass",
     .file = "kernels/two_pass.cuh",
     .serves = serves_reductions,
     .constraints = rejects_two_pass,
     .shared_bytes = warp_stats_bytes,
     .blocks = block_per_row,
     .steps = one_step},
    {.name = "cluster",
     .file = "kernels/cluster.cuh",
     .serves = serves_reductions,
     .constraints = rejects_cluster,
     .shared_bytes = cluster_bytes,
     .blocks = cluster_per_row,
     .steps = one_step,
     .minimum_capability = 90},
    {.name = "pipeline",
     .file = "kernels/pipeline.cuh",
     .serves = serves_cheap_outputs,
     .constraints = rejects_pipeline,
     .shared_bytes = pipeline_bytes,
     .blocks = cluster_per_row,
     .persistent = true,
     .steps = one_step,
     .takes_rows = true,
     .minimum_capability = 90},
    {.name = "pipeline_decoupled",
     .file = "kernels/pipeline_decoupled.cuh",
     .serves = serves_costly_outputs,
     .constraints = rejects_pipeline_decoupled,
     .shared_bytes = pipeline_decoupled_bytes,
     .blocks = cluster_per_row,
     .persistent = true,
     .steps = one_step,
     .takes_rows = true,
     .minimum_capability = 90},
    {.name = "persistent",
     .file = "kernels/persistent.cuh",
     .serves = serves_without_cap,
     .constraints = rejects_persistent,
     .shared_bytes = persistent_bytes,
     .blocks = cluster_per_row,
     .persistent = true,
     .steps = one_step,
     .takes_rows = true,
     .minimum_capability = 90},
    {.name = "persistent_reduce",
     .file = "kernels/persistent_reduce.cuh",
     .serves = serves_losses_alone,
     .constraints = rejects_persistent_reduce,
     .shared_bytes = persistent_reduce_bytes,
     .blocks = block_per_row,
     .persistent = true,
     .steps = one_step,
     .takes_rows = true,
     .minimum_capability = 90},
    {.name = "split",
     .file = "kernels/split.cuh",
     .serves = serves_reductions,
     .constraints = rejects_split,
     .shared_bytes = warp_stats_bytes,
     .blocks = blocks_per_row,
     .steps = two_steps,
     .partial_bytes = most_split_blocks * split_partial_bytes},
    {.name = "elementwise",
     .file = "kernels/elementwise.cuh",
     .serves = serves_outputs_alone,
     .constraints = rejects_elementwise,
     .shared_bytes = no_bytes,
     .blocks = block_per_row_tile,
     .steps = one_step},
    {.name = "strided",
     .file = "kernels/strided.cuh",
     .serves = serves_strided,
     .constraints = rejects_strided,
     .shared_bytes = lane_stats_bytes,
     .blocks = block_per_32_rows,
     .steps = one_step},
    {.name = "merge",
     .file = "kernels/merge.cuh",
     .serves = serves_merges,
     .constraints = rejects_merge,
     .shared_bytes = no_bytes,
     .blocks = thread_per_row,
     .steps = one_step},
    {.name = "bandwidth",
     .file = "kernels/bandwidth.cuh",
     .serves = serves_streams,
     .constraints = rejects_bandwidth,
     .shared_bytes = word_bytes,
     .blocks = block_per_tile,
     .steps = one_step},
};

std::vector<const Axis*> axes_of(const Variant& variant) {
  std::vector<const Axis*> found;
  const std::vector<AxisLine> lines = axis_lines(template_text(variant.file));
  for (const Axis& axis : generator::axes())
    if (std::any_of(lines.begin(), lines.end(), [&](const AxisLine& line) { return line.axis == axis.name; }))
      found.push_back(&axis);
  return found;
}

/// The values of an axis that a template has.
struct AxisValues {
  const Axis* axis;
  std::vector<int> values;
};

std::vector<AxisValues> values_of(const Variant& variant) {
  std::vector<AxisValues> found;
  for (const AxisLine& line : axis_lines(template_text(variant.file))) {
    AxisValues& of = found.emplace_back(AxisValues{.axis = find_axis(line.axis), .values = {}});
    if (of.axis == nullptr) throw InvalidArgument("axis", line.axis, "an axis of Config");
    for (const std::string& text : line.values) {
      const auto value = parse_value(*of.axis, text);
      if (!value) throw InvalidArgument(line.axis, text, "a value of that axis");
      of.values.push_back(*value);
    }
  }
  return found;
}

std::vector<Config> points_of(const Variant& variant) {
  std::vector<Config> points{{.variant = std::string(variant.name)}};
  for (const auto& [axis, values] : values_of(variant)) {
    std::vector<Config> extended;
    for (const Config& point : points)
      for (const int value : values) {
        extended.push_back(point);
        extended.back().*axis->value = value;
      }
    points = std::move(extended);
  }
  return points;
}

/// Applies `read` to every variant's template at the first call, and keeps the results.
template <auto read>
const auto& read_once(std::string_view name) {
  using Read = decltype(read(all_variants[0]));
  static constinit MadeOnce<std::map<std::string_view, Read>> of_variants;
  const auto read_all = [] {
    std::map<std::string_view, Read> found;
    for (const Variant& variant : all_variants) found.emplace(variant.name, read(variant));
    return found;
  };
  return of_variants.get(read_all).at(name);
}

}  // namespace

std::optional<std::string> Variant::rejects(const Config& config, const Problem& problem,
                                            const Limits& limits) const {
  if (!runs_on(limits))
    return fmt::format("{} needs sm_{}, but the device is sm_{}", name, minimum_capability,
                       limits.capability);
  return constraints(config, problem, limits);
}

const std::vector<const Axis*>& Variant::axes() const { return read_once<axes_of>(name); }

const std::vector<Config>& Variant::points() const { return read_once<points_of>(name); }

bool Variant::has(const Config& point) const {
  const std::vector<AxisValues>& all = read_once<values_of>(name);
  return std::all_of(all.begin(), all.end(), [&](const AxisValues& of) {
    return std::find(of.values.begin(), of.values.end(), point.*of.axis->value) != of.values.end();
  });
}

std::span<const Variant> variants() noexcept { return all_variants; }

const Variant& variant(std::string_view name) {
  for (const Variant& candidate : all_variants)
    if (candidate.name == name) return candidate;
  std::string known;
  for (const Variant& candidate : all_variants)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate.name);
  throw InvalidArgument("variant", fmt::format("\"{}\"", name), "one of " + known);
}

std::optional<std::string> why_not(const Config& config, const Problem& problem, const Limits& limits) {
  const auto named = std::find_if(std::begin(all_variants), std::end(all_variants),
                                  [&](const Variant& candidate) { return candidate.name == config.variant; });
  if (named == std::end(all_variants)) return fmt::format("there is no variant {}", config.variant);
  if (!named->serves(problem)) return fmt::format("{} does not support the problem", config.variant);
  if (!named->has(config)) return fmt::format("the space of {} does not contain it", config.variant);
  return named->rejects(config, problem, limits);
}

std::vector<Config> space(const Problem& problem, const Limits& limits) {
  std::vector<Config> fitting;
  for (const Variant& candidate : all_variants) {
    if (!candidate.serves(problem)) continue;
    for (const Config& point : candidate.points())
      if (!candidate.rejects(point, problem, limits)) fitting.push_back(point);
  }
  return fitting;
}

}  // namespace ce::generator
