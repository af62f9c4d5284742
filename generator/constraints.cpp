#include "generator/constraints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "generator/ceil_div.hpp"
#include "templates/arguments.cuh"
#include "templates/ring_layout.cuh"
#include "templates/row/layout.cuh"
#include "templates/shared_layouts.cuh"

namespace ce::generator {
namespace {

constexpr int widest_access = 16;  // bytes

int threads(const Config& config) { return 32 * config.warps; }

/// Registers that a thread may use if one block is to fit a multiprocessor.
int register_limit(const Config& config, const Limits& limits) {
  return std::min(255, limits.registers_per_multiprocessor / threads(config));
}

/// The same limit for warps with different roles. They are counted in fours, since four schedulers share the registers.
int register_limit_of_roles(const Config& config, const Limits& limits) {
  return register_limit({.warps = (config.warps + 3) / 4 * 4}, limits);
}

/// Registers beyond those that hold the row: addresses, statistics, temporaries.
constexpr int working_registers = 28;

/// 32-bit words of one vector of every input.
int words_of_vector(const Config& config, const Problem& problem) {
  return inputs(problem) * std::max(1, config.vec * size_of(problem.dtype) / 4);
}

/// The shape of a row in the config's vectors. config.vec must not be 0.
RowShape shape_of(const Config& config, const Problem& problem) {
  return {
      .columns = static_cast<int>(problem.columns),
      .vec = config.vec,
      .element_bytes = size_of(problem.dtype),
      .aligned = starts_on_vectors(problem, config.vec),
      .from_line = config.lanes == 0 || counts_from_line(config.lanes, config.vec, size_of(problem.dtype))};
}

Rejection rejects_loads(const Config& config, const Limits& limits) {
  if (load_names[static_cast<std::size_t>(config.load)] == "evict_last" && limits.capability != 0 &&
      limits.capability < 80)
    return "evict_last needs sm_80 or later";
  return {};
}

Rejection rejects_access(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_loads(config, limits)) return reason;
  const int bytes = config.vec * size_of(problem.dtype);
  if (problem.alignment == Alignment::element)
    return config.vec == 1 ? Rejection{}
                           : "input and output are not both aligned to the same vector boundary";
  if (bytes > widest_access)
    return fmt::format("one access has {} bytes; the device can do {} at most", bytes, widest_access);
  // Rows of a few bytes may have a lane each.
  if (bytes < 4 && (config.lanes == 0 || problem.columns > 16)) return "access of a single 16-bit element";
  // A narrower access only spreads a short row over more threads.
  const std::int64_t widest_row = bytes == widest_access ? problem.columns : bytes == 8 ? 1024 : 256;
  if (problem.columns > widest_row) return "access is too narrow for a wide row";
  return {};
}

Rejection rejects_stores(const Config& config, const Problem& problem) {
  if (!has_output(problem) && config.store != 0) return "the operation stores nothing per element";
  return {};
}

/// Rejections of every variant that loads and stores vector by vector.
Rejection rejects_vectors(const Config& config, const Problem& problem, const Limits& limits) {
  Rejection reason = rejects_access(config, problem, limits);
  return reason ? reason : rejects_stores(config, problem);
}

/// Rejections of every variant whose lanes hold narrow rows.
/// \param words  32-bit words of a lane's rows
Rejection rejects_held(std::int64_t words, const Config& config, const Limits& limits) {
  if (words > std::min(64, register_limit(config, limits) - working_registers))
    return fmt::format("the rows alone need {} registers per thread", words);
  return {};
}

/// Clamps to an int: more bytes than that fit no shared memory either.
int int_of(std::int64_t bytes) { return static_cast<int>(std::min<std::int64_t>(bytes, 1 << 30)); }

/// Never 0: a tile smaller than a vector is rejected, but the function may be called before that.
int chunk_vectors(const Config& config) {
  const int vectors = config.unroll > 0 ? config.unroll * 32 * (config.warps - 1) : config.tile / config.vec;
  return std::max(1, vectors);
}

/// Bytes of one column of a row.
int input_bytes(const Problem& problem) { return size_of(problem.dtype) * inputs(problem); }

/// Bytes of one column, including its class weight if a block holds the weights of its columns.
int column_bytes(const Problem& problem) {
  return input_bytes(problem) + (reads_all_weights(problem) ? size_of(problem.weight_dtype) : 0);
}

/// Rejections of every variant with bulk copies.
/// \param threads       threads that read each chunk
/// \param column_bytes  bytes of shared memory for each column of a row
Rejection rejects_bulk_copies(const Config& config, const Problem& problem, const Limits& limits, int threads,
                              int column_bytes) {
  if (problem.alignment == Alignment::element || config.vec * size_of(problem.dtype) != widest_access)
    return "bulk copies move 16-byte vectors";
  if (Rejection reason = rejects_stores(config, problem)) return reason;
  const int chunk = chunk_vectors(config);
  if (chunk % threads != 0 || chunk / threads * inputs(problem) > 4)
    return "chunk is not a multiple of the threads that read it, or has more than 4 vectors per thread";
  const std::int64_t slice = problem.columns / config.vec / config.cluster;
  if (slice < threads) return "some threads would have no vector";
  if (config.cluster > 1 && slice * widest_access < 8192)
    return "each block's slice of the row is so small that the cluster barrier dominates";
  if (2 * slice < chunk) return "chunk is wider than the block's slice of the row";
  if (config.cluster > 8 && problem.columns * column_bytes <= std::int64_t{7} * limits.shared_bytes_per_block)
    return "8 blocks can hold the row, and more would leave multiprocessors idle";
  return {};
}

/// The statistics to which the operation's kernels reduce a row (templates/operations).
StatsMembers stats_of(const Problem& problem) {
  switch (row_of(problem.operation).family) {
    case Family::softmax: return softmax_stats();
    case Family::cross_entropy:
      return cross_entropy_stats(problem.operation != Operation::cross_entropy_backward,
                                 problem.probabilities, problem.has.smoothing, problem.weights,
                                 problem.has.argmax_out || problem.has.hit_out,
                                 problem.has.entropy_out || problem.has.entropy_upstream);
    default: return softmax_backward_stats();
  }
}

bool is_narrow(const Problem& problem) { return problem.dtype != DType::f32; }

/// The shared memory of a persistent variant.
RingLayout ring_of(const Config& config, const Problem& problem, const RingRoles& roles) {
  const RowShape shape = shape_of(config, problem);
  const bool has_target = is_cross_entropy(problem.operation) && !problem.probabilities;
  const bool has_marks = roles.finalizes_apart && problem.has.softcap && is_narrow(problem);
  return {
      .roles = roles,
      .inputs = inputs(problem),
      .slice_vectors = shape.slice_vectors(config.cluster),
      .cluster = config.cluster,
      .stages = config.stages,
      .bytes_of_message = message_bytes(stats_of(problem).words(is_narrow(problem)), has_target, has_marks),
      .bytes_of_finalized = roles.finalizes_apart ? finalized_bytes(problem.has.entropy_upstream) : 0,
      .weight_bytes =
          reads_all_weights(problem) ? shape.weight_bytes(config.cluster, size_of(problem.weight_dtype)) : 0};
}
RingLayout pipeline_of(const Config& config, const Problem& problem) {
  return ring_of(config, problem, pipeline_roles(config.warps, chunk_vectors(config)));
}
RingLayout pipeline_decoupled_of(const Config& config, const Problem& problem) {
  return ring_of(config, problem,
                 pipeline_decoupled_roles(config.warps, config.reducers, chunk_vectors(config), config.hold,
                                          problem.has.softcap));
}
RingLayout persistent_of(const Config& config, const Problem& problem) {
  return ring_of(config, problem, persistent_roles(config.warps, config.unroll, config.hold));
}
RingLayout persistent_reduce_of(const Config& config, const Problem& problem) {
  return ring_of(config, problem, persistent_reduce_roles(config.warps, config.unroll));
}

/// Rejections of every ring that holds whole rows.
/// \param most  eighths of a slice that its chunks may have room for, at most
Rejection rejects_chunks(const RingLayout& ring, int most = 9) {
  if (8ll * ring.chunks() * ring.roles.chunk_vectors > static_cast<long long>(most) * ring.slice_vectors)
    return "the chunk is mostly empty";
  if (ring.chunks() > 32) return "more than 32 chunks";
  return {};
}

}  // namespace

std::int64_t vectors_of(const Config& config, const Problem& problem) {
  return shape_of(config, problem).most_vectors();
}

int stats_bytes(const Problem& problem) { return stats_of(problem).bytes(is_narrow(problem)); }

Rejection rejects_block(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const std::int64_t vectors = vectors_of(config, problem);
  if (config.warps > 1 &&
      threads(config) >= 2 * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors))))
    return "more than half of the threads would have no vector";
  const std::int64_t held = ceil_div(vectors, threads(config)) * words_of_vector(config, problem);
  if (held > std::min(96, register_limit(config, limits) - working_registers))
    return fmt::format("the row alone needs {} registers per thread", held);
  return {};
}

Rejection rejects_two_pass(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0) return "tile is not a multiple of the block's access";
  if (config.tile / step > 4) return "more than 4 vectors per thread and tile";
  if (config.tile / step * config.vec * inputs(problem) > register_limit(config, limits) - working_registers)
    return "tile is too large for the registers";
  if (config.tile > 256 && config.tile >= 2 * static_cast<std::int64_t>(
                                                  std::bit_ceil(static_cast<std::uint64_t>(problem.columns))))
    return "tile is wider than the row";
  if (config.warps < 8 && problem.columns > 1024 * config.warps) return "too few warps for a wide row";
  return {};
}

Rejection rejects_merge(const Config& config, const Problem& problem, const Limits&) {
  if (config.warps > 1 && 32 * config.warps >= 2 * problem.rows) return "most threads would have no row";
  return {};
}

Rejection rejects_bandwidth(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0 || config.tile / step > 8)
    return "tile is not a multiple of the block's access, or is too many of them";
  return {};
}

Rejection rejects_warp(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  // Such a row would be all prologue and epilogue, and the lanes would have no vector.
  if (config.vec > problem.columns) return "access is wider than the row";
  const bool whole = starts_on_vectors(problem, config.vec) && problem.columns % config.vec == 0;
  const std::int64_t ends = whole ? 1 : 2 * config.vec - 1;  // lanes for prologue and epilogue
  if (config.lanes < ends) return "too few lanes for the elements of prologue and epilogue";
  const std::int64_t vectors = vectors_of(config, problem), per_lane = ceil_div(vectors, config.lanes);
  if (config.lanes >=
      2 * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(vectors, ends)))))
    return "more than half of the lanes would have no vector";
  if (Rejection reason =
          rejects_held(config.rows * per_lane * words_of_vector(config, problem), config, limits))
    return reason;
  if (config.rows > 1 && per_lane * config.rows > 8)
    return "fewer rows per group of lanes already load enough bytes at a time";
  return {};
}

namespace {

/// The shape of narrow rows.
PackedShape packed_of(const Config& config, const Problem& problem) {
  return {.columns = static_cast<int>(std::min(problem.columns, widest_dense_row)),
          .element_bytes = size_of(problem.dtype),
          .rows = config.rows,
          .inputs = inputs(problem)};
}

}  // namespace

int packed_bytes(const Config& config, const Problem& problem) {
  return int_of(packed_of(config, problem).shared_bytes(config.warps));
}

Rejection rejects_packed(const Config& config, const Problem& problem, const Limits& limits) {
  if (problem.alignment != Alignment::dense)
    return "the alignment of the rows is not dense: rows are wide, or have gaps between them";
  if (Rejection reason = rejects_loads(config, limits)) return reason;
  const PackedShape shape = packed_of(config, problem);
  if (shape.is_one_access() && shape.access() < 4) return "access of a single 16-bit element";
  constexpr int most_values = 96;  // each value has code of its own
  const int values = config.rows * shape.columns;
  if (values > most_values) return fmt::format("{} values per thread are too many", values);
  if (Rejection reason = rejects_held(shape.inputs * shape.lane_bytes() / 4, config, limits)) return reason;
  if (packed_bytes(config, problem) > limits.shared_bytes_per_block)
    return "the rows need more shared memory than a block has";
  return {};
}

namespace {

TransposeShape transposed(const Config& config, const Problem& problem) {
  return {.vectors = static_cast<int>(std::min<std::int64_t>(vectors_of(config, problem), 1 << 16)),
          .lanes = config.lanes,
          .inputs = inputs(problem)};
}

}  // namespace

int transpose_bytes(const Config& config, const Problem& problem) {
  return int_of(transposed(config, problem).shared_bytes(config.warps));
}

Rejection rejects_transpose(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  if (config.vec * size_of(problem.dtype) != widest_access) return "rows are copied in 16-byte vectors";
  if (!starts_on_vectors(problem, config.vec) || problem.columns % config.vec != 0)
    return "a row does not consist of whole vectors";
  const TransposeShape shape = transposed(config, problem);
  if (shape.vectors < 2 * shape.lanes) return "a lane would have less than two vectors";
  if (shape.vectors % shape.lanes != 0) return "some lanes would have fewer vectors than others";
  if (Rejection reason =
          rejects_held(shape.vectors / shape.lanes * words_of_vector(config, problem), config, limits))
    return reason;
  if (transpose_bytes(config, problem) > limits.shared_bytes_per_block)
    return "the rows need more shared memory than a block has";
  return {};
}

Rejection rejects_elementwise(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0 || config.tile / step > 4)
    return "tile is not a multiple of the block's access, or is too many of them";
  if (config.tile / step * words_of_vector(config, problem) >
      register_limit(config, limits) - working_registers)
    return "tile is too large for the registers";
  if (config.tile > 256 && config.tile >= 2 * problem.columns) return "tile is wider than the row";
  return {};
}

Rejection rejects_split(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  if (problem.rows > most_split_rows)
    return "the problem has enough rows to use the whole GPU without splitting them";
  if (rows_bucket(problem.rows) * config.split > most_split_blocks)
    return "more blocks than the memory for partial results allows";
  if (problem.columns / config.split < threads(config) * config.vec)
    return "some threads would have no vector";
  if (problem.columns / config.split > 64 * threads(config) * config.vec)
    return "too few blocks for a wide row";
  return {};
}

Rejection rejects_strided(const Config& config, const Problem& problem, const Limits&) {
  if (Rejection reason = rejects_stores(config, problem)) return reason;
  if (config.warps > 1 && problem.columns < config.warps) return "some warps would have no class";
  return {};
}

namespace {

ClusterLayout cluster_of(const Config& config, const Problem& problem) {
  return {.inputs = inputs(problem),
          .slice_vectors = shape_of(config, problem).slice_vectors(config.cluster),
          .chunk_vectors = chunk_vectors(config),
          .warps = config.warps,
          .cluster = config.cluster,
          .bytes_of_stats = stats_bytes(problem),
          .bytes_of_message = message_bytes(stats_of(problem).words(is_narrow(problem)), false, false)};
}

}  // namespace

int cluster_bytes(const Config& config, const Problem& problem) {
  return int_of(cluster_of(config, problem).bytes());
}

Rejection rejects_cluster(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_bulk_copies(config, problem, limits, threads(config), input_bytes(problem)))
    return reason;
  const std::int64_t slice = problem.columns / config.cluster;
  if (slice > 16 * config.tile) return "more than 16 chunks";
  if (cluster_bytes(config, problem) > limits.shared_bytes_per_block)
    return "the block's slice of the row needs more shared memory than a block has";
  return {};
}

int pipeline_bytes(const Config& config, const Problem& problem) {
  return int_of(pipeline_of(config, problem).bytes());
}
int persistent_bytes(const Config& config, const Problem& problem) {
  return int_of(persistent_of(config, problem).bytes());
}
int persistent_reduce_bytes(const Config& config, const Problem& problem) {
  return int_of(persistent_reduce_of(config, problem).bytes());
}
int pipeline_decoupled_bytes(const Config& config, const Problem& problem) {
  return int_of(pipeline_decoupled_of(config, problem).bytes());
}

Rejection rejects_pipeline(const Config& config, const Problem& problem, const Limits& limits) {
  if (config.warps < 3 || config.warps % 2 == 0)
    return "warps must be one loader and two teams of the same size";
  if (Rejection reason =
          rejects_bulk_copies(config, problem, limits, 32 * ((config.warps - 1) / 2), input_bytes(problem)))
    return reason;
  if (problem.columns * size_of(problem.dtype) < 16384) return "the row fits in registers and needs no ring";
  const RingLayout ring = pipeline_of(config, problem);
  if (pipeline_bytes(config, problem) > limits.shared_bytes_per_block)
    return "the ring needs more shared memory than a block has";
  if (config.stages >= ring.chunks()) return "the ring would hold two rows";
  return rejects_chunks(ring);
}

int writer_warps(const Config& config) { return config.warps - 2 - config.reducers; }

/// Number of blocks that a multiprocessor can hold at once.
int pipeline_decoupled_blocks(const Config& config, const Problem& problem, const Limits& limits) {
  constexpr int fewest_registers = 48;  // least number of registers with which a thread works
  return std::min((limits.shared_bytes_per_block + shared_bytes_of_the_system) /
                      (pipeline_decoupled_bytes(config, problem) + shared_bytes_of_the_system),
                  limits.registers_per_multiprocessor / (threads(config) * fewest_registers));
}

Rejection rejects_pipeline_decoupled(const Config& config, const Problem& problem, const Limits& limits) {
  if (config.reducers < 1 || 2 * writer_warps(config) < config.reducers ||
      writer_warps(config) > 2 * config.reducers)
    return "warps must be a loader, a finalizer, reducers, and half to twice as many writers as reducers";
  const int reducers = 32 * config.reducers, writers = 32 * writer_warps(config);
  if (Rejection reason = rejects_bulk_copies(config, problem, limits, reducers, column_bytes(problem)))
    return reason;
  // All ranks need a kernel, whatever their columns.
  const bool any_columns = exchanges(problem.operation);
  if (!any_columns && problem.columns * size_of(problem.dtype) < 16384)
    return "the row fits in registers and needs no ring";
  const int chunk = chunk_vectors(config);
  if (chunk % writers != 0) return "chunk is not a multiple of the writers' threads";
  // With a soft cap, each vector takes more work, most of it in the reducers.
  const bool light = problem.dtype != DType::f32 && !problem.has.softcap;
  const int vectors = chunk * inputs(problem);
  if (!any_columns && (vectors < (light ? 3 : 2) * reducers || vectors < 2 * writers))
    return "each thread has too few vectors per chunk";
  if (light && reducers > writers) return "more reducers than writers";
  if (config.hold * writers % chunk != 0) return "registers would hold part of a chunk";
  const RingLayout ring = pipeline_decoupled_of(config, problem);
  const int chunks = ring.chunks(), ahead = ring.roles.held_chunks;
  if (ahead == 0 ? config.hold * writers != chunk : chunks % ahead != 0)
    return "the ends of rows would be at different positions in the registers";
  if (ahead > 4) return "registers would hold more than 4 chunks";
  if (ahead > 1 && !reads_all_weights(problem)) return "registers would hold chunks that fit in the ring";
  // The chunks that are held, and the one being processed.
  const int held = (config.hold + chunk / writers) * words_of_vector(config, problem);
  if (held + 32 > register_limit_of_roles(config, limits))
    return fmt::format("the row alone needs {} registers per thread", held);
  const int most_stages = std::min(10, 4 * chunks);  // five rows in all
  if (config.stages > most_stages) return "the ring would hold more than five rows";
  constexpr int fewest_bytes = 16384;  // bytes that are loaded ahead, at least
  if (config.stages * chunk * inputs(problem) * widest_access < fewest_bytes)
    return "too few bytes are loaded ahead";
  const int blocks = pipeline_decoupled_blocks(config, problem, limits);
  if (blocks < 1) return "the ring needs more shared memory than a block has";
  if (Config more = config;
      ++more.stages <= most_stages && pipeline_decoupled_blocks(more, problem, limits) == blocks)
    return "the shared memory has room for another stage";
  return any_columns ? rejects_chunks(ring, 16) : rejects_chunks(ring);
}

Rejection rejects_persistent(const Config& config, const Problem& problem, const Limits& limits) {
  if (!has_output(problem)) return "the operation writes no output row";
  if (config.warps < 2 || config.unroll < 1) return "warps must be a loader and one or more workers";
  if (Rejection reason =
          rejects_bulk_copies(config, problem, limits, 32 * (config.warps - 1), column_bytes(problem)))
    return reason;
  if (3 * problem.columns * input_bytes(problem) <= 2 * limits.shared_bytes_per_block)
    return "shared memory can hold the row and half of the next one";
  if (config.unroll * inputs(problem) < 2) return "each thread would load only one vector at a time";
  if (config.hold % config.unroll != 0) return "registers would hold part of a chunk";
  // The chunk that is read ahead and the one being processed, besides the chunks that are held.
  const int held = (config.hold + 2 * config.unroll) * words_of_vector(config, problem);
  const int working = is_cross_entropy(problem.operation) ? 44 : 32;
  if (held + working > register_limit_of_roles(config, limits))
    return fmt::format("the row alone needs {} registers per thread", held);
  const RingLayout ring = persistent_of(config, problem);
  const int chunks = ring.chunks(), in_ring = chunks - ring.roles.held_chunks;
  if (in_ring < 0) return "registers would hold more than the block's slice of the row";
  if (in_ring + config.stages >= 2 * chunks) return "the ring would hold two rows";
  if (persistent_bytes(config, problem) > limits.shared_bytes_per_block)
    return "the ring needs more shared memory than a block has";
  if (Config more = config; ++more.stages, persistent_bytes(more, problem) <= limits.shared_bytes_per_block)
    return "the shared memory has room for another stage";
  return rejects_chunks(ring);
}

Rejection rejects_persistent_reduce(const Config& config, const Problem& problem, const Limits& limits) {
  if (config.warps < 2 || config.unroll < 1) return "warps must be a loader and one or more workers";
  if (config.cluster != 1) return "blocks that share a row would have to wait for each other";
  if (Rejection reason = rejects_bulk_copies(config, problem, limits, 32 * (config.warps - 1), 0))
    return reason;
  if (4 * problem.columns * input_bytes(problem) <= limits.shared_bytes_per_block)
    return "the row fits in registers and needs no ring";
  if (config.stages >= 2 * persistent_reduce_of(config, problem).chunks())
    return "the ring would hold two rows";
  if (persistent_reduce_bytes(config, problem) > limits.shared_bytes_per_block)
    return "the ring needs more shared memory than a block has";
  if (4 * persistent_reduce_bytes(config, problem) <= limits.shared_bytes_per_block)
    return "too few bytes are loaded ahead";
  return {};
}

}  // namespace ce::generator
