#include "generator/variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "ce/base/error.hpp"
#include "generator/templates.hpp"

namespace ce::generator {
namespace {

using Rejection = std::optional<std::string>;

constexpr int widest_access = 16;  // bytes

int threads(const Config& config) { return 32 * config.warps; }

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Registers that a thread may use when the block is to be resident at all.
int register_limit(const Config& config, const Limits& limits) {
  return std::min(255, limits.registers_per_multiprocessor / threads(config));
}

/// Registers beyond those that hold the row: addresses, statistics, temporaries.
constexpr int working_registers = 28;

Rejection rejects_access(const Config& config, const Problem& problem) {
  const int bytes = config.vec * size_of(problem.dtype);
  if (problem.alignment == Alignment::element)
    return config.vec == 1 ? Rejection{} : "input and output share no vector boundary";
  if (bytes > widest_access)
    return fmt::format("{} bytes in one access; {} is the most", bytes, widest_access);
  if (bytes < 4) return "16-bit elements one by one";
  // A narrower access only spreads a short row over more threads.
  const std::int64_t widest_row = bytes == widest_access ? problem.columns : bytes == 8 ? 1024 : 256;
  if (problem.columns > widest_row) return "narrow access to a wide row";
  return {};
}

Rejection rejects_stores(const Config& config, const Problem& problem) {
  if (!has_output(problem) && config.store != 0) return "nothing is stored per element";
  return {};
}

Rejection first_of(std::initializer_list<Rejection> rejections) {
  for (const Rejection& rejection : rejections)
    if (rejection) return rejection;
  return {};
}

Rejection rejects_block(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = first_of({rejects_access(config, problem), rejects_stores(config, problem)}))
    return reason;
  const std::int64_t vectors = std::max<std::int64_t>(1, problem.columns / config.vec);
  if (config.warps > 1 &&
      threads(config) >= 2 * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors))))
    return "more than half of the threads without a vector";
  const std::int64_t held =
      ceil_div(vectors, threads(config)) * std::max(1, config.vec * size_of(problem.dtype) / 4);
  if (held > std::min(96, register_limit(config, limits) - working_registers))
    return fmt::format("{} registers a thread for the row alone", held);
  return {};
}

Rejection rejects_online(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = first_of({rejects_access(config, problem), rejects_stores(config, problem)}))
    return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0) return "tile is no multiple of the block's access";
  if (config.tile / step > 4) return "more than 4 vectors a thread and tile";
  if (config.tile / step * config.vec > register_limit(config, limits) - working_registers)
    return "tile too large for the registers";
  if (config.tile > 256 && config.tile >= 2 * static_cast<std::int64_t>(
                                                  std::bit_ceil(static_cast<std::uint64_t>(problem.columns))))
    return "tile wider than the row";
  if (config.warps < 8 && problem.columns > 1024 * config.warps) return "few warps for a wide row";
  return {};
}

Rejection rejects_stream(const Config& config, const Problem& problem, const Limits&) {
  const int step = threads(config) * config.vec;
  return first_of({rejects_access(config, problem), rejects_stores(config, problem),
                   config.tile % step != 0 || config.tile / step > 8
                       ? Rejection("tile does not fit the block")
                       : Rejection{}});
}

bool serves_rows(Operation operation) {
  return operation == Operation::softmax || operation == Operation::cross_entropy;
}
bool serves_streams(Operation operation) { return !serves_rows(operation); }

/// Statistics {float max, sum} of each warp.
int statistics_bytes(const Config& config, const Problem&) { return 8 * config.warps; }
int word_bytes(const Config& config, const Problem&) { return 4 * config.warps; }

/// A part of the row, an arrival for each chunk, and the statistics of warps and blocks, as `Shared` in
/// cluster.cuh.
int cluster_bytes(const Config& config, const Problem& problem) {
  const std::int64_t part = ceil_div(problem.columns / config.vec, config.cluster);
  const std::int64_t chunks = ceil_div(part, config.tile / config.vec);
  return static_cast<int>(ceil_div(16 * part + 8 * chunks + 8 * (config.warps + config.cluster), 16) * 16);
}

/// What every variant with bulk copies asks for.
Rejection rejects_bulk_copies(const Config& config, const Problem& problem, const Limits& limits) {
  if (limits.capability != 0 && limits.capability < 90) return "clusters and bulk copies need sm_90";
  if (problem.alignment == Alignment::element || config.vec * size_of(problem.dtype) != widest_access)
    return "bulk copies move 16-byte vectors";
  if (Rejection reason = rejects_stores(config, problem)) return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0 || config.tile / step > 4) return "chunk does not fit the block";
  const std::int64_t part = problem.columns / config.vec / config.cluster;
  if (part < threads(config)) return "less than a vector for each thread";
  if (config.cluster > 1 && part * widest_access < 8192)
    return "parts so small that the cluster barrier dominates";
  if (2 * part * config.vec < config.tile) return "chunk wider than the part";
  return {};
}

Rejection rejects_cluster(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_bulk_copies(config, problem, limits)) return reason;
  const std::int64_t part = problem.columns / config.cluster;
  if (part > 16 * config.tile) return "more than 16 chunks";
  if (cluster_bytes(config, problem) > limits.shared_bytes_per_block)
    return "part larger than the shared memory";
  return {};
}

/// A ring of whole chunks with two arrivals each, and two sets of statistics, as `Shared` in persistent.cuh.
int persistent_bytes(const Config& config, const Problem& problem) {
  const std::int64_t part = ceil_div(problem.columns / config.vec, config.cluster);
  const std::int64_t slots = ceil_div(part, config.tile / config.vec) + config.stages;
  const std::int64_t bytes =
      slots * (config.tile / config.vec * 16 + 16) + 16 * (config.warps + config.cluster);
  return static_cast<int>(std::min<std::int64_t>(ceil_div(bytes, 16) * 16, 1 << 30));
}

Rejection rejects_persistent(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_bulk_copies(config, problem, limits)) return reason;
  if (problem.columns * size_of(problem.dtype) < 32768) return "a ring for a row that the registers hold";
  if (persistent_bytes(config, problem) > limits.shared_bytes_per_block)
    return "ring larger than the shared memory";
  const std::int64_t part = ceil_div(problem.columns / config.vec, config.cluster);
  const std::int64_t chunks = ceil_div(part, config.tile / config.vec);
  if (config.stages > 2 * chunks) return "more than two rows ahead";
  if (chunks > 16) return "more than 16 chunks";
  return {};
}

std::int64_t cluster_per_row(const Config& config, const Problem& problem) {
  return problem.rows * config.cluster;
}
std::int64_t block_per_row(const Config&, const Problem& problem) { return problem.rows; }
std::int64_t block_per_tile(const Config& config, const Problem& problem) {
  return ceil_div(problem.rows * problem.columns, config.tile);
}

constexpr std::array<Variant, 5> all_variants{{
    {"block", "block.cuh", serves_rows, rejects_block, statistics_bytes, block_per_row},
    {"online", "online.cuh", serves_rows, rejects_online, statistics_bytes, block_per_row},
    {"cluster", "cluster.cuh", serves_rows, rejects_cluster, cluster_bytes, cluster_per_row},
    {"persistent", "persistent.cuh", serves_rows, rejects_persistent, persistent_bytes, cluster_per_row,
     true},
    {"stream", "stream.cuh", serves_streams, rejects_stream, word_bytes, block_per_tile},
}};

}  // namespace

std::vector<const Axis*> Variant::axes() const {
  std::vector<const Axis*> found;
  const std::vector<AxisLine> lines = axis_lines(template_text(file));
  for (const Axis& axis : generator::axes())
    if (std::any_of(lines.begin(), lines.end(), [&](const AxisLine& line) { return line.axis == axis.name; }))
      found.push_back(&axis);
  return found;
}

std::vector<Config> Variant::points() const {
  std::vector<Config> points{{.variant = std::string(name)}};
  for (const AxisLine& line : axis_lines(template_text(file))) {
    const Axis* axis = find_axis(line.axis);
    if (axis == nullptr) throw InvalidArgument("axis", line.axis, "an axis that Config has");
    std::vector<Config> extended;
    for (const Config& point : points)
      for (const std::string& text : line.values) {
        const auto value = parse_value(*axis, text);
        if (!value) throw InvalidArgument(line.axis, text, "a value of that axis");
        extended.push_back(point);
        extended.back().*axis->value = *value;
      }
    points = std::move(extended);
  }
  return points;
}

std::span<const Variant> variants() noexcept { return all_variants; }

const Variant& variant(std::string_view name) {
  std::string known;
  for (const Variant& candidate : all_variants) {
    if (candidate.name == name) return candidate;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate.name);
  }
  throw InvalidArgument("variant", fmt::format("\"{}\"", name), "one of " + known);
}

std::vector<Config> space(const Problem& problem, const Limits& limits) {
  std::vector<Config> fitting;
  for (const Variant& candidate : all_variants) {
    if (!candidate.serves(problem.operation)) continue;
    for (Config& point : candidate.points())
      if (!candidate.rejects(point, problem, limits)) fitting.push_back(std::move(point));
  }
  return fitting;
}

Config safe_default(const Problem& problem, const Limits& limits) {
  // Default cache behaviour; the row in registers where it fits with a few vectors a thread, else tiles.
  std::vector<Config> candidates = space(problem, limits);
  const auto distance = [&](const Config& config) {
    const double per_thread = static_cast<double>(problem.columns) / (config.vec * threads(config));
    const double ideal = config.variant == "block" ? 4 : 32;
    const double ratio = per_thread / ideal;
    return (config.load == 0 && config.store == 0 ? 0. : 1e6) + (config.variant == "block" ? 0. : 1e3) -
           config.vec * 10. + (config.tile != 0 ? 1000. / config.tile : 0.) + (ratio > 1 ? ratio : 1 / ratio);
  };
  if (candidates.empty()) throw Unsupported(fmt::format("no config of any variant fits {}", title(problem)));
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](const Config& a, const Config& b) { return distance(a) < distance(b); });
}

}  // namespace ce::generator
