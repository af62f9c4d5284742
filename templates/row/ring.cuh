// Rows of blocks or clusters that stay: from a counter, by bulk copies, through a ring of chunks in shared memory.
//
// The first warp of a block fills the ring, the others are teams that read it. What a Variant defines before it
// includes this:
//
//     team_warps      of a team; of the one that reduces, if there are two
//     readers         threads that read each slot before it is filled again
//     chunk_vectors   of a chunk, a multiple of the threads of a team
//     held_chunks     of a block's part of a row whose slots are free again before its statistics are known; all of
//                     them where it is more than there are
//     settles_apart   one warp settles rows, and tells the others of its block; the ring may be longer than two rows
#pragma once
#include "row/message.cuh"
#include "row/tile.cuh"

namespace ce {

using RowCut = Cut<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int team = lanes * team_warps;
constexpr int part_vectors =
    ((RowCut::most_vectors + config::cluster - 1) / config::cluster + 7) / 8 * 8;  // lines
constexpr int chunks = (part_vectors + chunk_vectors - 1) / chunk_vectors;
constexpr int slots = (held_chunks < chunks ? chunks - held_chunks : 0) + config::stages;

/// Where a ring is long, roles of a block are far apart, and so may its warps be.
template <int vectors, int threads, bool plain = false>
using RingTile =
    Tile<problem::Element, RowCut, vectors / threads, threads, false, settles_apart ? lanes : threads, plain>;
template <int threads>
using ChunkOf = RingTile<chunk_vectors, threads>;
using Chunk = ChunkOf<team>;

/// The team that reduces finds out which chunks are simple, for the one that writes.
constexpr bool marks_chunks = settles_apart && Operation::some_simple;
static_assert(!marks_chunks || chunks <= 32);

/// The weights of the classes of a block's part, if rows need those of all classes: from L2, for each row, they
/// would be more bytes than the logits.
template <class Operation, bool = Operation::all_weights>
struct HeldWeights {
  CE_DEVICE void load(const Arguments&, int) {}
  CE_DEVICE void lend(Operation&, int) const {}
  CE_DEVICE static void take_back(Operation&) {}
};
template <class Operation>
struct HeldWeights<Operation, true> {
  using Weight = typename Operation::Weight;
  using ClassWeights = typename Operation::ClassWeights;
  static constexpr int before = RowCut::exact ? 0 : RowCut::line * config::vec;  // where a row may start
  static constexpr int columns =
      part_vectors * config::vec + (RowCut::exact ? 0 : (RowCut::line + 1) * config::vec);
  static constexpr int pieces = config::vec / ClassWeights::piece;
  static constexpr int plane = pieces > 1 ? columns / pieces : 0;
  alignas(16) Weight of[columns];

  /// Planes of the first, the second, ... pieces of all vectors: neighbouring lanes read neighbouring pieces, from
  /// all banks.
  CE_DEVICE static int place_of(int i) {
    if constexpr (plane == 0) return i;
    return i % config::vec / ClassWeights::piece * plane + i / config::vec * ClassWeights::piece +
           i % ClassWeights::piece;
  }
  CE_DEVICE static int origin(int rank) { return rank * part_vectors * config::vec - before; }
  /// By all threads, before a block barrier.
  CE_DEVICE void load(const Arguments& arguments, int rank) {
#pragma unroll 8
    for (int i = thread_index(); i < columns; i += lanes * config::warps) {
      const int column = origin(rank) + i;
      if (column >= 0 && column < problem::columns)
        of[place_of(i)] = static_cast<const Weight*>(arguments.weight)[column];
    }
  }
  /// Columns of the part only: those of edges may lie elsewhere.
  CE_DEVICE void lend(Operation& operation, int rank) const { operation.weights = {of, origin(rank), plane}; }
  CE_DEVICE static void take_back(Operation& operation) {
    operation.weights = ClassWeights::in_memory(operation.arguments);
  }
};

/// What a warp of the team that reduces sends to every block of the cluster.
using Told = Message<Operation::Part, Operation::has_target, marks_chunks>;
using ChunkMarks = Told::Marks;
constexpr int messages = config::cluster * team_warps;  // about a row
constexpr int messages_a_lane = (messages + lanes - 1) / lanes;

/// Where another team reads slots after the one that reduces, that one puts logits under their cap, for both; each of its
/// threads tells that it has with the messages, of which nobody else's would order what it wrote.
constexpr bool caps_in_ring = Operation::caps && readers > team;
constexpr int tellers = (config::cluster == 1 ? messages : 1) + (caps_in_ring ? team : 0);  // of a row

// Whoever has read the last chunk of row n, in a slot that was used before, has a ring of `slots` chunks behind it, which
// are read by all: of row n - rows_ahead even those chunks that are not read ahead of its statistics. So those who read
// last in this block have heard of that row from all blocks.
constexpr int rows_ahead = settles_apart ? (slots + held_chunks) / chunks : 1;
static_assert(settles_apart || slots < 2 * chunks);

/// Places of what is told of rows: nobody sends for row n + turns before having heard of row n + rows_ahead from all, who
/// had heard of row n.
constexpr int turns = 2 * rows_ahead;

/// Rows that a cluster has taken and not all roles of all blocks have seen. When a loader begins row m, those who read
/// last in its block have heard of row m - 1 - rows_ahead, and so those of all blocks of row m - 1 - turns: everyone,
/// their loaders too, has read the ticket of that row, whose place is written next.
constexpr int tickets = turns + 2;

/// What the warp that settles rows tells those that write them.
template <class Operation, bool = settles_apart>
struct Outcomes {
  CE_DEVICE void init() {}
};
template <class Operation>
struct Outcomes<Operation, true> {
  struct Outcome {
    typename Operation::Settled row;
    float value;  ///< of all outputs, if the row is constant
    bool constant;
    ChunkMarks marks;  ///< chunks of this block's part that are not simple
  };
  static_assert(sizeof(Outcome) <= 64, "as constraints.cpp says");
  Outcome outcomes[turns];
  Arrival settled[turns];

  CE_DEVICE void init() {
    for (int turn = 0; turn < turns; ++turn) arrival_init(settled[turn], lanes);
  }
};

struct Shared : Outcomes<Operation> {
  Words<4> ring[slots][problem::inputs][chunk_vectors];
  Arrival filled[slots], emptied[slots];
  Arrival sent[turns];  // the messages of all blocks are there
  Arrival known[tickets];
  Words<2> rows[tickets];
  Told told[turns][messages];
  HeldWeights<Operation> weights;
};
static_assert(sizeof(Shared) <= config::shared_bytes);

/// A place in the ring, and the parity of the phase that it is in.
struct Slot {
  int index = 0, parity = 0;
  CE_DEVICE void advance() {
    if (++index == slots) {
      index = 0;
      parity ^= 1;
    }
  }
};

/// This block's part of a row: vectors [begin, end); the first of the first block may lie before the row.
struct RowPart {
  Row<problem::Element> row;
  RowCut cut;
  int begin, end;

  CE_DEVICE RowPart(const Arguments& arguments, int64 index, int rank)
      : row(arguments, index), cut(row.in[0]), begin(rank * part_vectors) {
    end = begin + part_vectors < cut.end ? begin + part_vectors : cut.end;
  }
  CE_DEVICE int start_of(int chunk) const { return begin + chunk * chunk_vectors; }
};

/// This block of its cluster.
struct Site {
  const Arguments& arguments;
  Shared& shared;
  int rank;
  int64 cluster, clusters;

  CE_DEVICE bool exists(int64 row) const { return row < arguments.rows; }
  CE_DEVICE int64 existing(int64 row) const { return exists(row) ? row : 0; }
};

/// The rows of the cluster as one role sees them. The first is known; each next one is taken by the loader of
/// the first block, which tells all others.
struct Rows {
  int place = 0, parity = 0;

  /// By the loader of the first block.
  CE_DEVICE void post(const Site& site) const {
    const int64 row = site.clusters + atomic_add(&site.arguments.workspace->next_row, 1);
    const Words<2> words{uint32(row), uint32(uint64(row) >> 32)};
    if constexpr (config::cluster == 1) {
      site.shared.rows[place] = words;
      arrival_arrive(site.shared.known[place]);
    } else {
#pragma unroll
      for (int rank = 0; rank < config::cluster; ++rank)
        cluster_send(site.shared.rows[place], words, site.shared.known[place], rank);
    }
  }
  /// By every loader, for the first time before its cluster starts: one more ticket may come.
  CE_DEVICE static void expect(Arrival& known) {
    if constexpr (config::cluster > 1) arrival_expect(known, sizeof(Words<2>));
  }
  /// Beyond the last row when there are no more.
  template <bool is_loader = false>
  CE_DEVICE int64 next(const Site& site) {
    arrival_wait<settles_apart>(site.shared.known[place], parity);
    const Words<2> words = site.shared.rows[place];
    const int64 row = int64(uint64(words.word[1]) << 32 | words.word[0]);
    if constexpr (is_loader) expect(site.shared.known[place]);
    if (++place == tickets) {
      place = 0;
      parity ^= 1;
    }
    return row;
  }
};

/// Clusters that begin together would read together and then write together, for the first rows. So three in four
/// begin later, by up to three quarters of what it takes until all have their first row: 16 bytes a cycle come to a
/// multiprocessor when all read. The memory is as busy as without.
CE_DEVICE void begin_in_turn(const Site& site) {
  constexpr int turns = 4, bytes_a_cycle = 16, fewest_rows = 4;  // of a cluster: with fewer it would not pay
  constexpr int cycles = part_vectors * problem::inputs * int(sizeof(Words<4>)) / bytes_a_cycle;
  if (Operation::has_output && site.arguments.rows >= fewest_rows * site.clusters)
    pause(int(site.cluster % turns) * (cycles / turns));
}

CE_DEVICE void load_rows(const Site& site) {
  begin_in_turn(site);
  Slot slot;
  Rows rows;
  bool reused = false;  // the ring has been around once
  for (int64 index = site.cluster; site.exists(index); index = rows.template next<true>(site)) {
    if (site.rank == 0) rows.post(site);
    const RowPart part(site.arguments, index, site.rank);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (reused) arrival_wait<settles_apart>(site.shared.emptied[slot.index], slot.parity ^ 1);
      const int at = part.start_of(chunk), first = at > part.cut.first ? at : part.cut.first;
      const int last = at + chunk_vectors < part.end ? at + chunk_vectors : part.end;
      const bool any = first < last;
      for (int i = 0; i < problem::inputs; ++i)
        bulk_load<config::load>(&site.shared.ring[slot.index][i][any ? first - at : 0],
                                part.row.in[i] + part.cut.column_of(any ? first : part.cut.first),
                                any ? int(sizeof(Words<4>)) * (last - first) : 0,
                                site.shared.filled[slot.index]);
      slot.advance();
      reused = reused || slot.index == 0;
    }
  }
}

/// The column of a thread's edge element, which is the first block's.
CE_DEVICE int edge_of(const Site& site, const RowPart& part, int thread) {
  return site.rank == 0 ? part.cut.edge_column(thread) : -1;
}

/// A chunk of a row from the ring.
template <class AnyTile>
CE_DEVICE void fill(AnyTile& tile, const Shared& shared, const Slot& slot, int at, float padding) {
  tile.fill_mostly_full(padding, [&](int v) {
    Elements<problem::Element, config::vec> elements;
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) elements.of_input[i] = {shared.ring[slot.index][i][v - at]};
    return elements;
  });
}

/// A chunk from the ring as one vector of each thread after the other: where few chunks take a way that is long to compile.
template <int threads, class Visit>
CE_DEVICE void each_vector(const Site& site, const RowPart& part, int chunk, const Slot& slot, int thread,
                           const Visit& visit) {
  const int at = part.start_of(chunk);
#pragma unroll 1
  for (int from = 0; from < chunk_vectors; from += threads) {
    RingTile<threads, threads> tile(part.cut, at + from, part.end, thread);
    fill(tile, site.shared, slot, at, Operation::padding());
    visit(tile);
  }
}

/// By every thread that reads a slot, when it has: an arrival speaks for its thread alone.
CE_DEVICE void release(const Site& site, const Slot& slot) {
  arrival_arrive(site.shared.emptied[slot.index]);
}

/// The messages of all blocks about one row after the other.
struct Exchange {
  int turn = 0, parity = 0;

  CE_DEVICE void advance() {
    turn = turns == 2 ? turn ^ 1 : turn + 1 < turns ? turn + 1 : 0;
    if (turn == 0) parity ^= 1;
  }
  /// By every warp of the team that reduces.
  /// \param warp  of all of the cluster's
  CE_DEVICE void send(const Site& site, int warp, const Operation::Part& part, problem::Element target_logit,
                      const ChunkMarks& marks = {}) const {
    Arrival& sent = site.shared.sent[turn];
    Told& place = site.shared.told[turn][warp];
    if constexpr (caps_in_ring) arrival_arrive(sent);
    if constexpr (config::cluster == 1) {
      if (lane_index() > 0) return;
      place = Told::about(part, target_logit, marks);
      arrival_arrive(sent);
    } else {
      if (warp == site.rank * team_warps && lane_index() == 0) arrival_expect(sent, messages * Told::bytes);
      if (lane_index() < config::cluster)
        Told::about(part, target_logit, marks).send(place, sent, lane_index());
    }
  }
  /// The operation knows the whole row, unless the row is constant.
  /// \return marks of this block's chunks
  CE_DEVICE ChunkMarks receive(const Site& site, Operation& operation, bool constant) const {
    arrival_wait<settles_apart>(site.shared.sent[turn], parity);
    if (constant) return {};
    const Told(&told)[messages] = site.shared.told[turn];
    problem::Element target_logit{};
    Operation::Part total, parts[messages_a_lane];
    ChunkMarks marks;
#pragma unroll
    for (int i = 0; i < messages_a_lane; ++i) {
      ChunkMarks marked;
      if (const int of = i * lanes + lane_index(); of < messages) {
        told[of].read(parts[i], target_logit, marked);
        if (of / team_warps == site.rank) marks.join(marked);
      }
      if constexpr (Operation::Part::exponentials) total.max = maximum(total.max, parts[i].max);
    }
    const bool apart = operation.needs_maximum();  // else all maxima are 0
    if (apart)
      level<lanes, settles_apart>(total, operation.factor());
    else
      total.max = 0.f;
#pragma unroll
    for (int i = 0; i < messages_a_lane; ++i) {
      if (apart) parts[i].move_to(total.max, operation.factor());
      total.add(parts[i]);
    }
    told[0].read(parts[0], target_logit);
    operation.set_target(target_logit);
    operation.settle(warp_join<lanes, true>(total, operation.factor()));
    return marks.of_warp();
  }
};

/// The weights of a thread's chunks are the same for every row, and few enough to keep their sums.
constexpr bool weights_recur =
    settles_apart && Operation::all_weights && Operation::has_target && RowCut::exact && chunks <= 8;

/// These sums, and that of all chunks of a warp; each row adds them up anew where they are not kept.
template <class Operation, bool = weights_recur>
struct ChunkWeights {
  CE_DEVICE ChunkWeights(const Site&, int) {}
  CE_DEVICE void tell(Operation&, int) const {}
  CE_DEVICE void tell_of_warp(typename Operation::Part&) const {}
};
template <class Operation>
struct ChunkWeights<Operation, true> {
  float of[chunks];
  JointSum<narrow> of_warp;

  CE_DEVICE ChunkWeights(const Site& site, int thread) {
    Operation operation(site.arguments);
    site.shared.weights.lend(operation, site.rank);
    const RowPart part(site.arguments, 0, site.rank);
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      of[chunk] = operation.weights_of(Chunk(part.cut, part.start_of(chunk), part.end, thread));
      of_warp.value += of[chunk];
    }
    of_warp = warp_sum(of_warp);
  }
  CE_DEVICE void tell(Operation& operation, int chunk) const {
    float weight = of[0];
#pragma unroll
    for (int i = 1; i < chunks; ++i) weight = chunk == i ? of[i] : weight;
    operation.knows_weight = true;
    operation.tile_weight = weight;
  }
  CE_DEVICE void tell_of_warp(typename Operation::Part& part) const { part.weight = of_warp; }
};

/// Which chunks of a row are full and without the target, for a thread of the team that reduces, unless a maximum is needed:
/// found out once for all of them, where the loop over them has no instruction to spare.
template <class Operation, bool = marks_chunks>
struct PlainChunks {
  CE_DEVICE PlainChunks(const Site&, int) {}
  CE_DEVICE ChunkMarks of(const RowPart&, const Operation&) const { return {}; }
};
template <class Operation>
struct PlainChunks<Operation, true> {
  const int thread;
  ChunkMarks full;  ///< of any row, where all are cut alike

  CE_DEVICE PlainChunks(const Site& site, int t)
      : thread(t), full(full_of(RowPart(site.arguments, 0, site.rank), Operation(site.arguments))) {}
  CE_DEVICE ChunkMarks of(const RowPart& part, const Operation& operation) const {
    ChunkMarks plain = RowCut::exact ? full : full_of(part, operation);
    if constexpr (Operation::has_target) {
      constexpr int vec = config::vec;
      const int distance = operation.target_column() - part.cut.column_of(part.begin + thread);
      if (distance >= 0 && distance < chunks * chunk_vectors * vec && distance / vec % team == 0)
        plain.leave_out(distance / (chunk_vectors * vec));
    }
    return plain;
  }

 private:
  CE_DEVICE ChunkMarks full_of(const RowPart& part, const Operation& operation) const {
    if (Operation::Part::exponentials && operation.needs_maximum()) return {};
    if constexpr (RowCut::exact && RowCut::most_vectors == config::cluster * chunks * chunk_vectors)
      return ChunkMarks::below(chunks);
    const int of_warp = part.begin + thread / lanes * lanes;
    const int beyond_first = part.end - of_warp - ((Chunk::count - 1) * team + lanes);
    ChunkMarks all = ChunkMarks::below(beyond_first < 0 ? 0 : beyond_first / chunk_vectors + 1);
    if (!RowCut::exact && of_warp < part.cut.first) all.leave_out(0);
    return all;
  }
};

/// Reduces a block's part of a row, chunk by chunk.
template <class Operation>
struct PartReducer {
  const Site& site;
  const RowPart& part;
  const ChunkWeights<Operation>& weights;
  const int thread;
  Operation& operation;
  typename Operation::Part seen = {};
  ChunkMarks marks = {};  ///< of chunks that are not simple

  /// \param plain  the chunk is one of PlainChunks; of others nobody looks at what is read here
  CE_DEVICE void add(int chunk, const ChunkMarks& mark, const Slot& slot, bool plain) {
    if constexpr (marks_chunks) {
      RingTile<chunk_vectors, team, true> tile(part.cut, part.start_of(chunk), part.end, thread);
      fill(tile, site.shared, slot, part.start_of(chunk), operation.padding());
      if (!plain || !operation.takes_plainly(tile)) {
        add_vectors(chunk, mark, slot);
      } else {
        weights.tell(operation, chunk);
        extend_alone(operation, seen, tile);
        put_back(tile, chunk, slot);
      }
      release(site, slot);
    } else {
      Chunk tile(part.cut, part.start_of(chunk), part.end, thread);
      fill(tile, site.shared, slot, part.start_of(chunk), operation.padding());
      release(site, slot);
      weights.tell(operation, chunk);
      extend(operation, seen, tile);
      if constexpr (caps_in_ring) put_back(tile, chunk, slot);
    }
  }

 private:
  CE_DEVICE void add_vectors(int chunk, const ChunkMarks& mark, const Slot& slot) {
    operation.knows_weight = false;
    each_vector<team>(site, part, chunk, slot, thread, [&](RingTile<team, team>& tile) {
      if (!extend(operation, seen, tile)) marks.join(mark);
      put_back(tile, chunk, slot);
    });
  }
  template <class AnyTile>
  CE_DEVICE void put_back(const AnyTile& tile, int chunk, const Slot& slot) const {
    Words<4>(&place)[chunk_vectors] = site.shared.ring[slot.index][0];
    const int at = part.start_of(chunk);
    tile.each_inside([&](int i, int v) { place[v - at] = tile.elements[i].of_input[0].data; });
  }
};

/// What a team does that writes nothing: reduces its block's part of all rows.
/// \param leads   whether this warp leads the row
/// \param finish  gets the operation, the exchange of its messages and whether the row is constant
template <class Leads, class Finish>
CE_DEVICE void reduce_rows(const Site& site, int thread, const Leads& leads, const Finish& finish) {
  Slot slot;
  Rows rows;
  Exchange exchange;
  Operation::Early early(site.arguments, site.existing(site.cluster));
  const Operation::Fixed fixed(site.arguments);
  const ChunkWeights<Operation> weights(site, thread);
  const PlainChunks<Operation> plain_chunks(site, thread);
  for (int64 index = site.cluster, next = 0; site.exists(index); index = next) {
    next = rows.next(site);
    const RowPart part(site.arguments, index, site.rank);
    Operation operation(site.arguments, index, leads() && lane_index() == 0, early, fixed);
    float value;
    const bool constant = operation.constant(value);
    const auto target_logit = constant ? problem::Element{} : operation.target_logit(part.row);
    early = Operation::Early(site.arguments, site.existing(next));
    PartReducer<Operation> reducer{site, part, weights, thread, operation};
    if constexpr (!RowCut::whole) {
      Edge<problem::Element> edge{edge_of(site, part, thread)};
      edge.template read<Load::ca>(part.row, operation.padding());
      extend(operation, reducer.seen, edge);
    }
    site.shared.weights.lend(operation, site.rank);
    const ChunkMarks plain = plain_chunks.of(part, operation);
    auto mark = ChunkMarks::of(0);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, mark.advance(), slot.advance()) {
      arrival_wait<settles_apart>(site.shared.filled[slot.index], slot.parity);
      if (constant)
        release(site, slot);
      else
        reducer.add(chunk, mark, slot, plain.has(mark));
    }
    Operation::Part& seen = reducer.seen;
    if (operation.needs_maximum()) level<lanes, settles_apart>(seen, operation.factor());
    seen = warp_join<lanes, true, weights_recur>(seen, operation.factor());
    weights.tell_of_warp(seen);
    exchange.send(site, site.rank * team_warps + thread / lanes, seen, target_logit, reducer.marks.of_warp());
    finish(operation, exchange, constant);
    exchange.advance();
  }
}

/// All rows of this block.
/// \param work  what the warps behind the first one do; thread 0 of them is the first of the second warp
template <class Work>
CE_DEVICE void take_rows(const Arguments& arguments, const Work& work) {
  Shared& shared = shared_memory<Shared, settles_apart>();
  const int rank = config::cluster == 1 ? 0 : cluster_rank();
  const Site site{arguments, shared, rank, block_index() / config::cluster, block_count() / config::cluster};
  if (thread_index() == 0) {
    for (int slot = 0; slot < slots; ++slot) {
      arrival_init(shared.filled[slot], problem::inputs);
      arrival_init(shared.emptied[slot], readers);
    }
    for (int turn = 0; turn < turns; ++turn) arrival_init(shared.sent[turn], tellers);
    shared.init();
    for (int ticket = 0; ticket < tickets; ++ticket) {
      arrival_init(shared.known[ticket]);
      Rows::expect(shared.known[ticket]);
    }
  }
  shared.weights.load(arguments, rank);
  block_barrier();
  if constexpr (config::cluster > 1) {  // every block has started: there is shared memory to write to
    cluster_arrive();
    cluster_wait();
  }
  int thread = thread_index() - lanes;
  if constexpr (settles_apart) keep(thread);
  if (warp_index() > 0)
    work(site, thread);
  else if (lane_index() == 0)
    load_rows(site);
  warp_barrier();
  if constexpr (config::cluster > 1) {  // no block may end while others send to it
    cluster_arrive();
    cluster_wait();
  }
  // The last cluster leaves the counters as it found them.
  if (rank == 0 && thread_index() == 0) {
    Workspace& workspace = *arguments.workspace;
    if (atomic_add(&workspace.finished_clusters, 1) == site.clusters - 1) {
      workspace.next_row = 0;
      workspace.finished_clusters = 0;
    }
  }
}

}  // namespace ce
