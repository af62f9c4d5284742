#include "generator/constraints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "generator/ceil_div.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {
namespace {

constexpr int widest_access = 16;  // bytes

int threads(const Config& config) { return 32 * config.warps; }

/// Registers that a thread may use when the block is to be resident at all.
int register_limit(const Config& config, const Limits& limits) {
  return std::min(255, limits.registers_per_multiprocessor / threads(config));
}

/// The same where warps have different things to do: as many in fours, since four schedulers share the registers.
int register_limit_of_roles(const Config& config, const Limits& limits) {
  return register_limit({.warps = (config.warps + 3) / 4 * 4}, limits);
}

/// Registers beyond those that hold the row: addresses, statistics, temporaries.
constexpr int working_registers = 28;

/// 32-bit words of one vector of every input.
int words_of_vector(const Config& config, const Problem& problem) {
  return inputs(problem) * std::max(1, config.vec * size_of(problem.dtype) / 4);
}

/// Rows are whole lines: Cut::exact in row.cuh.
bool is_exact(const Problem& problem) {
  return problem.alignment == Alignment::vector && problem.columns * size_of(problem.dtype) % 128 == 0;
}

Rejection rejects_access(const Config& config, const Problem& problem, const Limits& limits) {
  if (load_names[static_cast<std::size_t>(config.load)] == "last" && limits.capability != 0 &&
      limits.capability < 80)
    return "policies of L2 need sm_80";
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

/// What every variant that loads and stores vector by vector asks for.
Rejection rejects_vectors(const Config& config, const Problem& problem, const Limits& limits) {
  Rejection reason = rejects_access(config, problem, limits);
  return reason ? reason : rejects_stores(config, problem);
}

/// Vectors of a block's part of a row: whole lines, as part_vectors in cluster.cuh and ring.cuh.
std::int64_t part_vectors(const Config& config, const Problem& problem) {
  return ceil_div(ceil_div(vectors_of(config, problem), config.cluster), 8) * 8;
}

/// What does not fit an int fits no shared memory either.
int aligned_bytes(std::int64_t bytes) {
  return static_cast<int>(std::min<std::int64_t>(ceil_div(bytes, 16) * 16, 1 << 30));
}

/// Not 0, whatever the config: a tile smaller than a vector is rejected, but may be asked about before.
int chunk_vectors(const Config& config) {
  const int vectors = config.unroll > 0 ? config.unroll * 32 * (config.warps - 1) : config.tile / config.vec;
  return std::max(1, vectors);
}

/// Of one column of a row.
int input_bytes(const Problem& problem) { return size_of(problem.dtype) * inputs(problem); }

/// The same with its weight, where a block holds those of its columns.
int column_bytes(const Problem& problem) {
  return input_bytes(problem) + (reads_all_weights(problem) ? size_of(problem.weight_dtype) : 0);
}

/// What every variant with bulk copies asks for.
/// \param column_bytes  of shared memory, for each column of a row
Rejection rejects_bulk_copies(const Config& config, const Problem& problem, const Limits& limits, int threads,
                              int column_bytes) {
  if (limits.capability != 0 && limits.capability < 90) return "clusters and bulk copies need sm_90";
  if (problem.alignment == Alignment::element || config.vec * size_of(problem.dtype) != widest_access)
    return "bulk copies move 16-byte vectors";
  if (Rejection reason = rejects_stores(config, problem)) return reason;
  const int chunk = chunk_vectors(config);
  if (chunk % threads != 0 || chunk / threads * inputs(problem) > 4) return "chunk does not fit the block";
  const std::int64_t part = problem.columns / config.vec / config.cluster;
  if (part < threads) return "less than a vector for each thread";
  if (config.cluster > 1 && part * widest_access < 8192)
    return "parts so small that the cluster barrier dominates";
  if (2 * part < chunk) return "chunk wider than the part";
  if (config.cluster > 8 && problem.columns * column_bytes <= std::int64_t{7} * limits.shared_bytes_per_block)
    return "multiprocessors left idle for a row that 8 blocks hold";
  return {};
}

int team_threads(const Config& config) { return 32 * ((config.warps - 1) / 2); }

/// Of Message in message.cuh.
/// \param has_target  the logit of the target is sent too
/// \param has_marks   so are marks
int message_bytes(const Problem& problem, bool has_target, bool has_marks = false) {
  const bool exponentials = problem.operation == Operation::softmax ||
                            problem.operation == Operation::log_softmax ||
                            problem.operation == Operation::cross_entropy;
  const bool sums = !exponentials || problem.probabilities || problem.smoothing;
  const int sum_words = problem.dtype == DType::f32 ? 2 : 1;
  const int words = (exponentials ? 2 : 0) + (sums ? sum_words : 0) + (exponentials && sums ? sum_words : 0) +
                    (problem.argmax_out || problem.hit_out ? 2 : 0) + (has_target ? 1 : 0) +
                    (has_marks ? 1 : 0);
  return static_cast<int>(ceil_div(words, 4)) * 16;
}

/// The weights of the classes of a block's part, wherever its rows start, as HeldWeights in ring.cuh.
std::int64_t held_weights_bytes(const Config& config, const Problem& problem) {
  if (!reads_all_weights(problem)) return 0;
  const std::int64_t line = 128 / (config.vec * size_of(problem.dtype));
  const std::int64_t beside = is_exact(problem) ? 0 : line + 1;
  return (part_vectors(config, problem) + beside) * config.vec * size_of(problem.weight_dtype);
}

/// A ring of whole chunks with two arrivals each, sets of messages with one more arrival each, the tickets, and the
/// weights, as `Shared` in ring.cuh.
/// \param outcome_bytes  of each set, if one warp settles rows
int ring_bytes(const Config& config, const Problem& problem, std::int64_t slots, int team_warps,
               std::int64_t rows_ahead = 1, std::int64_t outcome_bytes = 0) {
  const std::int64_t turns = 2 * rows_ahead;
  const std::int64_t tickets = turns + 2;  // an arrival and a row number each
  const bool has_target = is_cross_entropy(problem.operation) && !problem.probabilities;
  const bool has_marks = outcome_bytes > 0 && problem.softcap && problem.dtype != DType::f32;
  return aligned_bytes(slots * (inputs(problem) * chunk_vectors(config) * 16 + 16) + 8 * turns +
                       16 * tickets +
                       turns * message_bytes(problem, has_target, has_marks) * config.cluster * team_warps +
                       16 + turns * outcome_bytes + held_weights_bytes(config, problem));
}

std::int64_t chunks_of(const Config& config, const Problem& problem) {
  return ceil_div(part_vectors(config, problem), chunk_vectors(config));
}

/// What every ring of whole rows asks for.
Rejection rejects_chunks(const Config& config, const Problem& problem) {
  const std::int64_t chunks = chunks_of(config, problem);
  if (8 * chunks * chunk_vectors(config) > 9 * part_vectors(config, problem))
    return "a chunk that is mostly empty";
  if (chunks > 32) return "more than 32 chunks";
  return {};
}

/// Chunks of a block's part that lie in registers.
std::int64_t held_chunks(const Config& config) { return config.hold / std::max(1, config.unroll); }

}  // namespace

std::int64_t vectors_of(const Config& config, const Problem& problem) {
  const std::int64_t line = 128 / (config.vec * size_of(problem.dtype));
  return problem.columns / config.vec + (is_exact(problem) ? 0 : line - 1);
}

int part_bytes(const Problem& problem) { return problem.dtype == DType::f32 ? 32 : 24; }

Rejection rejects_block(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const std::int64_t vectors = vectors_of(config, problem);
  if (config.warps > 1 &&
      threads(config) >= 2 * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors))))
    return "more than half of the threads without a vector";
  const std::int64_t held = ceil_div(vectors, threads(config)) * words_of_vector(config, problem);
  if (held > std::min(96, register_limit(config, limits) - working_registers))
    return fmt::format("{} registers a thread for the row alone", held);
  return {};
}

Rejection rejects_two_pass(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0) return "tile is no multiple of the block's access";
  if (config.tile / step > 4) return "more than 4 vectors a thread and tile";
  if (config.tile / step * config.vec * inputs(problem) > register_limit(config, limits) - working_registers)
    return "tile too large for the registers";
  if (config.tile > 256 && config.tile >= 2 * static_cast<std::int64_t>(
                                                  std::bit_ceil(static_cast<std::uint64_t>(problem.columns))))
    return "tile wider than the row";
  if (config.warps < 8 && problem.columns > 1024 * config.warps) return "few warps for a wide row";
  return {};
}

Rejection rejects_bandwidth(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0 || config.tile / step > 8) return "tile does not fit the block";
  return {};
}

Rejection rejects_warp(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const bool whole = problem.alignment == Alignment::vector && problem.columns % config.vec == 0;
  if (!whole && config.lanes < 2 * config.vec) return "fewer lanes than elements of head and tail";
  const std::int64_t vectors = vectors_of(config, problem), per_lane = ceil_div(vectors, config.lanes);
  if (config.lanes >= 2 * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors))))
    return "more than half of the lanes without a vector";
  const std::int64_t held = config.rows * per_lane * words_of_vector(config, problem);
  if (held > 64 || held > register_limit(config, limits) - working_registers)
    return fmt::format("{} registers a thread for the rows alone", held);
  if (config.rows > 1 && per_lane * config.rows > 8) return "enough in flight with fewer rows";
  return {};
}

Rejection rejects_elementwise(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  const int step = threads(config) * config.vec;
  if (config.tile % step != 0 || config.tile / step > 4) return "tile does not fit the block";
  if (config.tile / step * words_of_vector(config, problem) >
      register_limit(config, limits) - working_registers)
    return "tile too large for the registers";
  if (config.tile > 256 && config.tile >= 2 * problem.columns) return "tile wider than the row";
  return {};
}

Rejection rejects_split(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_vectors(config, problem, limits)) return reason;
  if (problem.rows > most_split_rows) return "rows enough for the whole GPU";
  if (rows_bucket(problem.rows) * config.split > most_split_blocks)
    return "more blocks than leave their parts";
  if (problem.columns / config.split < threads(config) * config.vec)
    return "less than a vector for each thread";
  if (problem.columns / config.split > 64 * threads(config) * config.vec) return "few blocks for a wide row";
  return {};
}

Rejection rejects_strided(const Config& config, const Problem& problem, const Limits&) {
  if (Rejection reason = rejects_stores(config, problem)) return reason;
  if (config.warps > 1 && problem.columns < config.warps) return "warps without a class";
  return {};
}

/// A part of the row, an arrival for each chunk and one for the messages, the Parts of warps, and the messages of
/// blocks, as `Shared` in cluster.cuh.
int cluster_bytes(const Config& config, const Problem& problem) {
  const std::int64_t part = part_vectors(config, problem);
  const std::int64_t chunks = ceil_div(part, chunk_vectors(config));
  return aligned_bytes(16 * part * inputs(problem) + 8 * chunks + part_bytes(problem) * config.warps + 16 +
                       message_bytes(problem, false) * config.cluster + 16);
}

Rejection rejects_cluster(const Config& config, const Problem& problem, const Limits& limits) {
  if (Rejection reason = rejects_bulk_copies(config, problem, limits, threads(config), input_bytes(problem)))
    return reason;
  const std::int64_t part = problem.columns / config.cluster;
  if (part > 16 * config.tile) return "more than 16 chunks";
  if (cluster_bytes(config, problem) > limits.shared_bytes_per_block)
    return "part larger than the shared memory";
  return {};
}

int pipeline_bytes(const Config& config, const Problem& problem) {
  return ring_bytes(config, problem, chunks_of(config, problem) + config.stages, team_threads(config) / 32);
}

int persistent_bytes(const Config& config, const Problem& problem) {
  const std::int64_t left = std::max<std::int64_t>(0, chunks_of(config, problem) - held_chunks(config));
  return ring_bytes(config, problem, left + config.stages, config.warps - 1);
}

int persistent_reduce_bytes(const Config& config, const Problem& problem) {
  return ring_bytes(config, problem, config.stages, config.warps - 1);
}

Rejection rejects_pipeline(const Config& config, const Problem& problem, const Limits& limits) {
  if (config.warps < 3 || config.warps % 2 == 0) return "no loader and two teams of as many warps";
  if (Rejection reason =
          rejects_bulk_copies(config, problem, limits, team_threads(config), input_bytes(problem)))
    return reason;
  if (problem.columns * size_of(problem.dtype) < 16384) return "a ring for a row that the registers hold";
  if (pipeline_bytes(config, problem) > limits.shared_bytes_per_block)
    return "ring larger than the shared memory";
  if (config.stages >= chunks_of(config, problem)) return "two rows in the ring";
  return rejects_chunks(config, problem);
}

/// What writers of `pipeline_decoupled` have of each row, as Outcomes in ring.cuh, at most.
constexpr int outcome_bytes = 64 + 8;

int writer_warps(const Config& config) { return config.warps - 2 - config.reducers; }

/// Chunks that writers take before they know their row. With a soft cap none: reducers put logits under it first.
std::int64_t chunks_taken_ahead(const Config& config, const Problem& problem) {
  if (problem.softcap) return 0;
  return std::int64_t{config.hold} * 32 * writer_warps(config) / chunk_vectors(config);
}

int pipeline_decoupled_bytes(const Config& config, const Problem& problem) {
  const std::int64_t chunks = chunks_of(config, problem), ahead = chunks_taken_ahead(config, problem);
  const std::int64_t slots = std::max<std::int64_t>(0, chunks - ahead) + config.stages;
  return ring_bytes(config, problem, slots, config.reducers, (slots + ahead) / chunks, outcome_bytes);
}

/// That a multiprocessor can hold at once.
int pipeline_decoupled_blocks(const Config& config, const Problem& problem, const Limits& limits) {
  constexpr int fewest_registers = 48;  // that a thread gets by with
  return std::min((limits.shared_bytes_per_block + shared_bytes_of_the_system) /
                      (pipeline_decoupled_bytes(config, problem) + shared_bytes_of_the_system),
                  limits.registers_per_multiprocessor / (threads(config) * fewest_registers));
}

Rejection rejects_pipeline_decoupled(const Config& config, const Problem& problem, const Limits& limits) {
  if (config.reducers < 1 || 2 * writer_warps(config) < config.reducers ||
      writer_warps(config) > 2 * config.reducers)
    return "no loader, settler, reducers and half to twice as many writers";
  const int reducers = 32 * config.reducers, writers = 32 * writer_warps(config);
  if (Rejection reason = rejects_bulk_copies(config, problem, limits, reducers, column_bytes(problem)))
    return reason;
  if (problem.columns * size_of(problem.dtype) < 16384) return "a ring for a row that the registers hold";
  const int chunk = chunk_vectors(config);
  if (chunk % writers != 0) return "chunk does not fit the writers";
  // Where logits are put under a cap, a vector is more work, and most of it the reducers'.
  const bool light = problem.dtype != DType::f32 && !problem.softcap;
  const int vectors = chunk * inputs(problem);
  if (vectors < (light ? 3 : 2) * reducers || vectors < 2 * writers)
    return "few vectors of a thread for what each chunk takes";
  if (light && reducers > writers) return "reducers that have less to do than writers";
  if (config.hold * writers % chunk != 0) return "part of a chunk in registers";
  const std::int64_t chunks = chunks_of(config, problem), ahead = chunks_taken_ahead(config, problem);
  if (ahead == 0 ? config.hold * writers != chunk : chunks % ahead != 0)
    return "rows that end elsewhere in the registers";
  if (ahead > 4) return "small chunks in registers";
  if (ahead > 1 && !reads_all_weights(problem)) return "chunks in registers that the ring has room for";
  // The chunks that are held, and the one in work.
  const int held = (config.hold + chunk / writers) * words_of_vector(config, problem);
  if (held + 32 > register_limit_of_roles(config, limits))
    return fmt::format("{} registers a thread for the row alone", held);
  const std::int64_t most_stages = std::min<std::int64_t>(10, 4 * chunks);  // five rows in all
  if (config.stages > most_stages) return "more than five rows";
  constexpr int fewest_bytes = 16384;  // that are loaded ahead
  if (config.stages * chunk * inputs(problem) * widest_access < fewest_bytes) return "little in flight";
  const int blocks = pipeline_decoupled_blocks(config, problem, limits);
  if (blocks < 1) return "ring larger than the shared memory";
  if (Config more = config;
      ++more.stages <= most_stages && pipeline_decoupled_blocks(more, problem, limits) == blocks)
    return "room for another stage";
  return rejects_chunks(config, problem);
}

Rejection rejects_persistent(const Config& config, const Problem& problem, const Limits& limits) {
  if (!has_output(problem)) return "nothing to write";
  if (config.warps < 2 || config.unroll < 1) return "no loader and worker";
  if (Rejection reason =
          rejects_bulk_copies(config, problem, limits, 32 * (config.warps - 1), column_bytes(problem)))
    return reason;
  if (3 * problem.columns * input_bytes(problem) <= 2 * limits.shared_bytes_per_block)
    return "a row that shared memory holds beside half of the next one";
  if (config.unroll * inputs(problem) < 2) return "one vector at a time";
  if (config.hold % config.unroll != 0) return "part of a chunk in registers";
  // The chunk that is read ahead and the one in work, besides those that are held.
  const int held = (config.hold + 2 * config.unroll) * words_of_vector(config, problem);
  const int working = is_cross_entropy(problem.operation) ? 44 : 32;
  if (held + working > register_limit_of_roles(config, limits))
    return fmt::format("{} registers a thread for the row alone", held);
  const std::int64_t chunks = chunks_of(config, problem), in_ring = chunks - held_chunks(config);
  if (in_ring < 0) return "registers for more than the part";
  if (in_ring + config.stages >= 2 * chunks) return "two rows in the ring";
  if (persistent_bytes(config, problem) > limits.shared_bytes_per_block)
    return "ring larger than the shared memory";
  if (Config more = config; ++more.stages, persistent_bytes(more, problem) <= limits.shared_bytes_per_block)
    return "room for another stage";
  return rejects_chunks(config, problem);
}

Rejection rejects_persistent_reduce(const Config& config, const Problem& problem, const Limits& limits) {
  if (config.warps < 2 || config.unroll < 1) return "no loader and worker";
  if (config.cluster != 1) return "blocks that share a row would have to wait for each other";
  if (Rejection reason = rejects_bulk_copies(config, problem, limits, 32 * (config.warps - 1), 0))
    return reason;
  if (4 * problem.columns * input_bytes(problem) <= limits.shared_bytes_per_block)
    return "a ring for a row that the registers hold";
  if (config.stages >= 2 * chunks_of(config, problem)) return "two rows in the ring";
  if (persistent_reduce_bytes(config, problem) > limits.shared_bytes_per_block)
    return "ring larger than the shared memory";
  if (4 * persistent_reduce_bytes(config, problem) <= limits.shared_bytes_per_block)
    return "little in flight";
  return {};
}

}  // namespace ce::generator
