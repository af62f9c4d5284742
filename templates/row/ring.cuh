// Rows of persistent blocks or clusters: from a queue, by bulk copies, through a ring of chunks in shared memory.
//
// A cluster takes one row after the other from a counter in memory; each of its blocks has a slice of the row. The first
// warp of a block is the loader and fills the ring; the other warps are one or two teams that read it. The first team
// reduces its slice and publishes the statistics to all blocks of the cluster:
//
//     loader   --chunks-->   ring: stage 0 | stage 1 | ... | stage n-1 |   --tiles-->   team: Stats of the slice
//              <--empty--                                                                  | messages to all blocks
//     RowQueue: which row is next                                     ClusterReduction: Stats of the row in each warp
//
// Every hand-over uses an mbarrier: `full` and `empty` of each stage, `published` of each set of messages, `queued` of
// each row taken. A Variant defines the roles (RingRoles, ring_layout.cuh) and writes outputs.
#pragma once
#include "ring_layout.cuh"
#include "row/message.cuh"
#include "row/tile.cuh"

namespace ce {

using Partition = RowPartition<problem::Element, problem::columns, config::vec, problem::aligned>;

/// Additional shared memory of a Variant, for each slot of messages: none.
template <int slots>
struct NoFinalizedRows {
  CE_DEVICE void init() {}
};

/// \tparam FinalizedRows  replaces NoFinalizedRows if one warp finalizes rows for its block
/// \tparam ChunkMarks     marks of chunks that the reducing team passes to its block
template <RingRoles roles, template <int slots> class FinalizedRows = NoFinalizedRows,
          class ChunkMarks = NoMarks>
struct Ring {
  using Element = problem::Element;
  using Stats = Operation::Stats;
  static constexpr int team = lanes * roles.team_warps, chunk_vectors = roles.chunk_vectors;

  /// With a long ring, the roles of a block, and so its warps, may be far apart.
  template <int vectors, int threads, bool plain = false>
  using RingTile = Tile<Element, Partition, vectors / threads, threads, false,
                        roles.finalizes_apart ? lanes : threads, plain>;
  template <int threads>
  using ChunkOf = RingTile<chunk_vectors, threads>;
  using Chunk = ChunkOf<team>;

  using RowMessage = Message<Stats, Operation::has_target, ChunkMarks>;
  using Weights = SliceWeights<Partition, config::cluster, Operation>;
  static constexpr RingLayout layout{
      .roles = roles,
      .inputs = problem::inputs,
      .slice_vectors = Partition::shape.slice_vectors(config::cluster),
      .cluster = config::cluster,
      .stages = config::stages,
      .bytes_of_message = RowMessage::bytes,
      .bytes_of_finalized = roles.finalizes_apart ? finalized_bytes(Operation::entropy_gradient) : 0,
      .weight_bytes = Weights::bytes};
  static constexpr int slice_vectors = layout.slice_vectors, chunks = layout.chunks(),
                       stages = layout.ring_stages();
  static constexpr int message_slots = layout.message_slots(), queue_slots = layout.queue_slots();
  static constexpr int messages = layout.messages(), messages_a_lane = ceil_of(messages, lanes);
  static_assert(roles.finalizes_apart || stages < 2 * chunks);

  /// If another team reads stages after the reducing one, the latter puts logits under their cap, for both. Each of its
  /// threads arrives with the messages, since an arrival only orders the writes of its own thread.
  static constexpr bool caps_in_ring = Operation::caps && roles.readers > team;
  /// Number of arrivals at `published` for a row.
  static constexpr int publishers = (config::cluster == 1 ? messages : 1) + (caps_in_ring ? team : 0);

  struct Shared : FinalizedRows<message_slots> {
    Words<4> ring[stages][problem::inputs][chunk_vectors];
    Mbarrier full[stages], empty[stages];
    Mbarrier published[message_slots];
    Mbarrier queued[queue_slots];
    Words<2> rows[queue_slots];
    RowMessage about_row[message_slots][messages];
    [[no_unique_address]] Weights weights;
  };
  static_assert((roles.finalizes_apart ? sizeof(Shared) <= layout.bytes()
                                       : sizeof(Shared) == layout.bytes()) &&
                layout.bytes() <= config::shared_bytes);

  CE_DEVICE static void wait(Mbarrier& barrier, int parity) {
    mbarrier_wait<roles.finalizes_apart>(barrier, parity);
  }

  /// A stage of the ring, and the parity of its current phase.
  struct Stage {
    int index = 0, parity = 0;
    CE_DEVICE void advance() {
      if (++index == stages) {
        index = 0;
        parity ^= 1;
      }
    }
  };

  /// This block's slice of a row: vectors [begin, end); the first vector of the first block may begin before the row.
  struct Slice {
    Row<Element> row;
    Partition partition;
    int begin, end;

    CE_DEVICE Slice(const Arguments& arguments, int64 index, int rank)
        : row(arguments, index), partition(row.in[0]), begin(rank * slice_vectors) {
      end = begin + slice_vectors < partition.end ? begin + slice_vectors : partition.end;
    }
    CE_DEVICE int start_of(int chunk) const { return begin + chunk * chunk_vectors; }
  };

  /// This block in its cluster.
  struct Block {
    const Arguments& arguments;
    Shared& shared;
    int rank;
    int64 cluster, clusters;

    CE_DEVICE bool exists(int64 row) const { return row < arguments.rows; }
    CE_DEVICE int64 existing(int64 row) const { return exists(row) ? row : 0; }
    CE_DEVICE Slice slice_of(int64 row) const { return Slice(arguments, row, rank); }
    /// The column of a thread's edge element, which belongs to the first block.
    CE_DEVICE int edge_column(const Slice& slice, int thread) const {
      return rank == 0 ? slice.partition.edge_column(thread) : -1;
    }
    /// Frees a stage. By every thread that has read it, since an arrival only orders the accesses of its own thread.
    CE_DEVICE void release(const Stage& stage) const { mbarrier_arrive(shared.empty[stage.index]); }

    /// A chunk of a row from the ring.
    /// \param at  the first vector of the stage
    template <class AnyTile>
    CE_DEVICE void fill(AnyTile& tile, const Stage& stage, int at, float padding) const {
      tile.fill_mostly_full(padding, [&](int v) {
        Elements<Element, config::vec> elements;
#pragma unroll
        for (int i = 0; i < problem::inputs; ++i)
          elements.of_input[i] = {shared.ring[stage.index][i][v - at]};
        return elements;
      });
    }
  };

  /// The rows of the cluster as one role sees them. The loader of the first block takes each row and pushes it to all
  /// blocks; the first row is known, unless rows must be taken in order.
  struct RowQueue {
    int slot = 0, parity = 0;

    /// Takes the next row for the whole cluster. By the loader of the first block.
    CE_DEVICE void push(const Block& block) const {
      const int64 known = Operation::exchanges ? 0 : block.clusters;
      const int64 row = known + atomic_add(&block.arguments.workspace->next_row, 1);
      const Words<2> words{uint32(row), uint32(uint64(row) >> 32)};
      if constexpr (config::cluster == 1) {
        block.shared.rows[slot] = words;
        mbarrier_arrive(block.shared.queued[slot]);
      } else {
#pragma unroll
        for (int rank = 0; rank < config::cluster; ++rank)
          cluster_send(block.shared.rows[slot], words, block.shared.queued[slot], rank);
      }
    }
    /// Announces one more row. By every loader; the first time before its cluster starts.
    CE_DEVICE static void expect(Mbarrier& queued) {
      if constexpr (config::cluster > 1) mbarrier_arrive_expect_tx(queued, sizeof(Words<2>));
    }
    template <bool is_loader = false>
    CE_DEVICE int64 first(const Block& block) {
      if constexpr (!Operation::exchanges) return block.cluster;
      if (is_loader && block.rank == 0) push(block);
      return pop<is_loader>(block);
    }
    /// A row beyond the last one if there are no more.
    template <bool is_loader = false>
    CE_DEVICE int64 pop(const Block& block) {
      wait(block.shared.queued[slot], parity);
      const Words<2> words = block.shared.rows[slot];
      const int64 row = int64(uint64(words.word[1]) << 32 | words.word[0]);
      if constexpr (is_loader) expect(block.shared.queued[slot]);
      if (++slot == queue_slots) {
        slot = 0;
        parity ^= 1;
      }
      return row;
    }
  };

  /// Clusters that begin together would first read together and then write together. So three in four begin later, by
  /// up to three quarters of the time until all have their first row, at 16 bytes a cycle for each multiprocessor when
  /// all read. The memory is as busy as without the delay.
  CE_DEVICE static void stagger_start(const Block& block) {
    constexpr int groups = 4, bytes_a_cycle = 16,
                  fewest_rows = 4;  // rows of a cluster; with fewer the delay would not pay
    constexpr int cycles = slice_vectors * problem::inputs * int(sizeof(Words<4>)) / bytes_a_cycle;
    if (Operation::has_output && block.arguments.rows >= fewest_rows * block.clusters)
      pause(int(block.cluster % groups) * (cycles / groups));
  }

  /// The loader: copies the slices of all rows, chunk by chunk, to stages that all readers have released.
  CE_DEVICE static void load_rows(const Block& block) {
    stagger_start(block);
    Stage stage;
    RowQueue queue;
    bool reused = false;  // the ring has been filled once
    for (int64 index = queue.template first<true>(block); block.exists(index);
         index = queue.template pop<true>(block)) {
      if (block.rank == 0) queue.push(block);
      const Slice slice = block.slice_of(index);
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (reused) wait(block.shared.empty[stage.index], stage.parity ^ 1);
        const int at = slice.start_of(chunk), first = at > slice.partition.first ? at : slice.partition.first;
        const int last = at + chunk_vectors < slice.end ? at + chunk_vectors : slice.end;
        const bool any = first < last;
        for (int i = 0; i < problem::inputs; ++i)
          bulk_load<config::load>(
              &block.shared.ring[stage.index][i][any ? first - at : 0],
              slice.row.in[i] + slice.partition.column_of(any ? first : slice.partition.first),
              any ? int(sizeof(Words<4>)) * (last - first) : 0, block.shared.full[stage.index]);
        stage.advance();
        reused = reused || stage.index == 0;
      }
    }
  }

  /// The merged statistics of all blocks for one row after the other.
  struct ClusterReduction {
    int slot = 0, parity = 0;

    CE_DEVICE void advance() {
      slot = message_slots == 2 ? slot ^ 1 : slot + 1 < message_slots ? slot + 1 : 0;
      if (slot == 0) parity ^= 1;
    }
    /// Sends statistics to every block of the cluster. By every warp of the reducing team.
    /// \param warp  index among all warps of the cluster
    CE_DEVICE void publish(const Block& block, int warp, const Stats& stats, Element target_logit,
                           const ChunkMarks& marks = {}) const {
      Mbarrier& published = block.shared.published[slot];
      RowMessage& place = block.shared.about_row[slot][warp];
      if constexpr (caps_in_ring) mbarrier_arrive(published);
      if constexpr (config::cluster == 1) {
        if (lane_index() > 0) return;
        place = RowMessage::about(stats, target_logit, marks);
        mbarrier_arrive(published);
      } else {
        if (warp == block.rank * roles.team_warps && lane_index() == 0)
          mbarrier_arrive_expect_tx(published, messages * RowMessage::bytes);
        if (lane_index() < config::cluster)
          RowMessage::about(stats, target_logit, marks).send(place, published, lane_index());
      }
    }
    /// Merges the messages of all warps of the cluster, and finalizes the operation unless the row is constant.
    /// \return marks of this block's chunks
    CE_DEVICE ChunkMarks receive(const Block& block, Operation& operation, bool constant) const {
      wait(block.shared.published[slot], parity);
      if (constant) return {};
      ChunkMarks marks;
      operation.finalize(read(block, operation, marks));
      return marks.of_warp();
    }
    /// The merged messages, for the operation to send to other ranks; sets its target's logit. By whole warps.
    CE_DEVICE Stats read(const Block& block, Operation& operation, ChunkMarks& marks) const {
      const RowMessage(&about_row)[messages] = block.shared.about_row[slot];
      Element target_logit{};
      Stats total, received[messages_a_lane];
#pragma unroll
      for (int i = 0; i < messages_a_lane; ++i) {
        ChunkMarks marked;
        if (const int of = i * lanes + lane_index(); of < messages) {
          about_row[of].read(received[i], target_logit, marked);
          if (of / roles.team_warps == block.rank) marks.merge(marked);
        }
        if constexpr (Stats::exponentials) total.max = maximum(total.max, received[i].max);
      }
      const bool have_maxima = operation.needs_maximum();  // otherwise all maxima are 0
      if (have_maxima)
        rescale_warp<lanes, roles.finalizes_apart>(total, operation.exponent_factor());
      else
        total.max = 0.f;
#pragma unroll
      for (int i = 0; i < messages_a_lane; ++i) {
        if (have_maxima) received[i].rescale(total.max, operation.exponent_factor());
        total.add(received[i]);
      }
      about_row[0].read(received[0], target_logit);
      operation.set_target(target_logit);
      return warp_merge<lanes, true>(total, operation.exponent_factor());
    }
  };

  /// Adds the chunks of one row after the other, for a thread of the team that reduces.
  struct ChunkReducer {
    static constexpr bool weights_known = false;
    const Block& block;
    const int thread;

    CE_DEVICE ChunkReducer(const Block& of, int t) : block(of), thread(t) {}
    CE_DEVICE void begin(const Slice&, const Operation&) {}
    /// Adds a chunk of a row that is not constant, whose stage is full, and releases the stage.
    CE_DEVICE void add(Operation& operation, Stats& stats, const Slice& slice, int chunk,
                       const Stage& stage) const {
      static_assert(!caps_in_ring);
      Chunk tile(slice.partition, slice.start_of(chunk), slice.end, thread);
      block.fill(tile, stage, slice.start_of(chunk), operation.padding());
      block.release(stage);
      extend(operation, stats, tile);
    }
    CE_DEVICE void next_chunk() {}
    CE_DEVICE ChunkMarks end(Stats&) const { return {}; }
  };

  /// A team that does not write: it reduces its block's slice of all rows.
  /// \param leads   whether this warp leads the row
  /// \param finish  gets the operation, the reduction over the cluster and whether the row is constant
  template <class Reducer = ChunkReducer, class Leads, class Finish>
  CE_DEVICE static void reduce_rows(const Block& block, int thread, const Leads& leads,
                                    const Finish& finish) {
    Stage stage;
    RowQueue queue;
    ClusterReduction reduction;
    const int64 first = queue.first(block);
    Operation::RowPrefetch prefetch(block.arguments, block.existing(first));
    const Operation::KernelScalars kernel_scalars(block.arguments);
    Reducer reducer(block, thread);
    for (int64 index = first, next = 0; block.exists(index); index = next) {
      next = queue.pop(block);
      const Slice slice = block.slice_of(index);
      Operation operation(block.arguments, index, leads() && lane_index() == 0, prefetch, kernel_scalars);
      float value;
      const bool constant = operation.constant(value);
      const auto target_logit = constant ? Element{} : operation.target_logit(slice.row);
      prefetch = typename Operation::RowPrefetch(block.arguments, block.existing(next));
      Stats stats = {};
      if constexpr (!Partition::whole) {
        Edge<Element> edge{block.edge_column(slice, thread)};
        edge.template read<Load::ca>(slice.row, operation.padding());
        extend(operation, stats, edge);
      }
      block.shared.weights.attach(operation, block.rank);
      reducer.begin(slice, operation);
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk, reducer.next_chunk(), stage.advance()) {
        wait(block.shared.full[stage.index], stage.parity);
        if (constant)
          block.release(stage);
        else
          reducer.add(operation, stats, slice, chunk, stage);
      }
      if (operation.needs_maximum())
        rescale_warp<lanes, roles.finalizes_apart>(stats, operation.exponent_factor());
      stats = warp_merge<lanes, true, Reducer::weights_known>(stats, operation.exponent_factor());
      const ChunkMarks marks = reducer.end(stats);
      reduction.publish(block, block.rank * roles.team_warps + thread / lanes, stats, target_logit, marks);
      finish(operation, reduction, constant);
      reduction.advance();
    }
  }
  template <class Reducer = ChunkReducer>
  CE_DEVICE static void reduce_rows(const Block& block, int thread) {
    reduce_rows<Reducer>(
        block, thread, [] { return false; }, [](Operation&, const ClusterReduction&, bool) {});
  }

  /// The kernel: processes all rows of this block.
  /// \param work  the code of the warps behind the first one; its thread 0 is the first thread of the second warp
  template <class Work>
  CE_DEVICE static void run(const Arguments& arguments, const Work& work) {
    Shared& shared = shared_memory<Shared, roles.finalizes_apart>();
    const int rank = config::cluster == 1 ? 0 : cluster_rank();
    const Block block{arguments, shared, rank, block_index() / config::cluster,
                      block_count() / config::cluster};
    if (thread_index() == 0) {
      for (int stage = 0; stage < stages; ++stage) {
        mbarrier_init(shared.full[stage], problem::inputs);
        mbarrier_init(shared.empty[stage], roles.readers);
      }
      for (int slot = 0; slot < message_slots; ++slot) mbarrier_init(shared.published[slot], publishers);
      shared.init();
      for (int slot = 0; slot < queue_slots; ++slot) {
        mbarrier_init(shared.queued[slot]);
        RowQueue::expect(shared.queued[slot]);
      }
    }
    shared.weights.load(arguments, rank);
    block_barrier();
    if constexpr (config::cluster > 1) {  // every block has started, so its shared memory may be written
      cluster_arrive();
      cluster_wait();
    }
    int thread = thread_index() - lanes;
    if constexpr (roles.finalizes_apart) keep(thread);
    if (warp_index() > 0)
      work(block, thread);
    else if (lane_index() == 0)
      load_rows(block);
    warp_barrier();
    if constexpr (config::cluster > 1) {  // no block may end while others send to it
      cluster_arrive();
      cluster_wait();
    } else if constexpr (Operation::exchanges) {  // end_rows() needs all warps to be done
      block_barrier();
    }
    // The last cluster resets the counters.
    if (rank == 0 && thread_index() == 0) {
      Workspace& workspace = *arguments.workspace;
      if (atomic_add(&workspace.finished_clusters, 1) == block.clusters - 1) {
        workspace.next_row = 0;
        workspace.finished_clusters = 0;
        Operation::end_rows(arguments);
      }
    }
  }
};

}  // namespace ce
