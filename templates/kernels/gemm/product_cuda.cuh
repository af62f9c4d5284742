// A product on Hopper's tensor cores. The contract is in product.cuh.
//
// One thread of the loading warpgroup fills a ring in shared memory by bulk tensor copies, 64 elements of k a stage, in
// the layout that wgmma reads: rows of 128 bytes, swizzled. The blocks of a cluster have tiles below each other; each
// loads a slice of the columns' operand into the rings of all. The multiplying warpgroups run independently: while one
// processes the sums of its tile, the other uses the tensor cores, as long as the ring holds data for it, or for a
// whole tile if they take turns.
#pragma once
#define CE_SUMS_8(i)                                                                         \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define CE_SUMS_32(i) CE_SUMS_8(i), CE_SUMS_8(i + 8), CE_SUMS_8(i + 16), CE_SUMS_8(i + 24)
#define CE_REGISTERS_64                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19" \
  ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36"    \
  ", %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53"    \
  ", %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CE_REGISTERS_96                                                                   \
  CE_REGISTERS_64                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80" \
  ", %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define CE_REGISTERS_128                                                                   \
  CE_REGISTERS_96                                                                          \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110" \
  ", %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124"   \
  ", %125, %126, %127"
// Operands after the sums: descriptors of both matrices, and whether to add to the sums.
#define CE_WGMMA(columns, type, registers, a_operand, b_operand, adds_operand, ...)                         \
  asm volatile(                                                                                             \
      "{\n"                                                                                                 \
      "  .reg .pred adds;\n"                                                                                \
      "  setp.ne.b32 adds, " adds_operand                                                                   \
      ", 0;\n"                                                                                              \
      "  wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" registers "}, " a_operand \
      ", " b_operand                                                                                        \
      ", adds, 1, 1, 0, 0;\n"                                                                               \
      "}\n"                                                                                                 \
      : __VA_ARGS__                                                                                         \
      : "l"(a), "l"(b), "r"(int(adds)))
#define CE_WGMMA_OF(type)                                                                          \
  if constexpr (columns == 256)                                                                    \
    CE_WGMMA("256", type, CE_REGISTERS_128, "%128", "%129", "%130", CE_SUMS_32(0), CE_SUMS_32(32), \
             CE_SUMS_32(64), CE_SUMS_32(96));                                                      \
  else if constexpr (columns == 192)                                                               \
    CE_WGMMA("192", type, CE_REGISTERS_96, "%96", "%97", "%98", CE_SUMS_32(0), CE_SUMS_32(32),     \
             CE_SUMS_32(64));                                                                      \
  else                                                                                             \
    CE_WGMMA("128", type, CE_REGISTERS_64, "%64", "%65", "%66", CE_SUMS_32(0), CE_SUMS_32(32));

/// Like CE_KERNEL, for blocks that share their multiprocessor with no other: warps can pass registers to each other.
#define CE_PRODUCT_KERNEL(name, threads) \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ Arguments arguments)

namespace ce {

/// sums (+)= 64 rows of 16 elements x columns^T, by a warpgroup; asynchronous.
/// \param a, b  descriptors of the operands in shared memory
template <class Input, int columns>
CE_DEVICE void warpgroup_multiply(float (&sums)[columns / 2], uint64 a, uint64 b, bool adds) {
  static_assert(columns == 128 || columns == 192 || columns == 256, "widths of a tile");
  if constexpr (is_same<Input, bf16>) {
    CE_WGMMA_OF("bf16")
  } else {
    CE_WGMMA_OF("f16")
  }
}
CE_DEVICE void warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
CE_DEVICE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most that many of the latest groups are pending.
template <int left>
CE_DEVICE void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}
/// The descriptor of rows of 128 swizzled bytes in groups of eight, 1024 bytes apart. Adding 2 moves 32 bytes along k.
CE_DEVICE uint64 operand_descriptor(uint32 shared) {
  constexpr uint64 swizzled = uint64(1) << 62, eight_rows = uint64(1024 >> 4) << 32, unused = uint64(1) << 16;
  return uint64((shared & 0x3ffff) >> 4) | unused | eight_rows | swizzled;
}
/// Loads a box of the matrix, whose first element is at row and column, to the same offset in those blocks of the
/// cluster whose bits are set. It completes at their mbarriers with the offset of `barrier`.
template <bool to_all>
CE_DEVICE void tensor_load(uint32 shared, const TensorMap& map, int column, int row, uint32 barrier,
                           unsigned short blocks) {
  if constexpr (to_all)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
        "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(shared),
        "l"(&map), "r"(column), "r"(row), "r"(barrier)
        : "memory");
}
CE_DEVICE void mbarrier_arrive_at(Mbarrier& barrier, int rank) {
  uint32 at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(&barrier)), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(at) : "memory");
}

template <class Input, int tile_columns, int stages, int cluster, bool turns>
class Product {
 public:
  static constexpr ProductTile tile{tile_columns, stages, cluster, turns};

  CE_DEVICE explicit Product(const ProductOperands& operands) : operands_(operands) {
    const uint32 start = shared_address(&shared_memory<unsigned char>());
    ring_ = (start + tile.swizzle_bytes - 1) / tile.swizzle_bytes * tile.swizzle_bytes;
    barriers_ = reinterpret_cast<Mbarrier*>(&shared_memory<unsigned char>() + (ring_ - start) +
                                            stages * tile.stage_bytes());
    if (thread_index() == 0)
      for (int stage = 0; stage < stages; ++stage) {
        mbarrier_init(full(stage), 1);
        mbarrier_init(empty(stage), tile.readers() * cluster);
      }
    if (turns && thread_index() < tile.multipliers) mbarrier_init(turn(thread_index()), 1);
    meet();
  }
  CE_DEVICE bool loads() const { return thread_index() >= tile.multipliers * tile.warpgroup; }
  CE_DEVICE static void begin_loading() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
  CE_DEVICE static void begin_multiplying() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
  CE_DEVICE void end() const { meet(); }

  CE_DEVICE void load(int64 row, int64 column) {
    if (thread_index() != tile.multipliers * tile.warpgroup) return;
    constexpr int part = tile_columns / cluster;
    const int part_of_block = cluster > 1 ? cluster_rank() * part : 0;
    for (int64 k = 0; k < operands_.depth; k += tile.depth) {
      mbarrier_wait(empty(stage_), phase_ ^ 1);
      mbarrier_arrive_expect_tx(full(stage_), tile.stage_bytes());
      const uint32 of_rows = ring_ + stage_ * tile.stage_bytes(), of_columns = of_rows + tile.row_bytes(),
                   barrier = shared_address(&full(stage_));
      tensor_load<false>(of_rows, operands_.rows_map, int(k), int(row), barrier, 0);
      tensor_load<(cluster > 1)>(of_columns + part_of_block * tile.depth * 2, operands_.columns_map, int(k),
                                 int(column) + part_of_block, barrier, (1 << cluster) - 1);
      advance();
    }
  }

  CE_DEVICE bool multiplies(int64 tile_of_block) const {
    return !turns || tile_of_block % tile.multipliers == thread_index() / tile.warpgroup;
  }
  CE_DEVICE void skip() {
    const int after = stage_ + int((operands_.depth + tile.depth - 1) / tile.depth);
    phase_ ^= after / stages % 2;
    stage_ = after % stages;
  }
  CE_DEVICE void multiply(float (&sums)[tile.row_blocks()][tile.sums_of_thread()], int64, int64) {
    constexpr int apart = tile.rows_apart();
    const int multiplier = thread_index() / tile.warpgroup, first_row = multiplier * apart;
    // A warpgroup that waits for a stage must know that the previous phase of its mbarrier has ended, since a wait
    // cannot tell later phases apart. So it begins when the other warpgroup has seen the last stage of its tile. The
    // first one does not wait.
    if constexpr (turns) mbarrier_wait(turn(multiplier), multiplier == 0 ? turns_ ^ 1 : turns_);
    int before = -1;
    for (int64 k = 0; k < operands_.depth; k += tile.depth) {
      mbarrier_wait(full(stage_), phase_);
      const uint32 of_rows = ring_ + stage_ * tile.stage_bytes();
      const uint64 b = operand_descriptor(of_rows + tile.row_bytes());
      warpgroup_begin();
#pragma unroll
      for (int i = 0; i < tile.depth / tile.depth_once; ++i)
#pragma unroll
        for (int block = 0; block < tile.row_blocks(); ++block) {
          const uint64 a =
              operand_descriptor(of_rows + (first_row + block * tile.rows_at_once) * tile.depth * 2);
          warpgroup_multiply<Input, tile_columns>(sums[block], a + 2 * i, b + 2 * i, k > 0 || i > 0);
        }
      warpgroup_commit();
      if (before >= 0) {
        warpgroup_wait<1>();
        release(before);
      }
      before = stage_;
      advance();
    }
    if constexpr (turns) {
      if (thread_index() % tile.warpgroup == 0) mbarrier_arrive(turn(1 - multiplier));
      turns_ ^= 1;
    }
    warpgroup_wait<0>();
    // The sums are in registers only from here on.
#pragma unroll
    for (auto& of_block : sums)
#pragma unroll
      for (float& sum : of_block) asm volatile("" : "+f"(sum)::"memory");
    release(before);
  }

 private:
  CE_DEVICE Mbarrier& full(int stage) const { return barriers_[stage]; }
  CE_DEVICE Mbarrier& empty(int stage) const { return barriers_[stages + stage]; }
  /// The mbarrier of a warpgroup's turn: each of its phases ends when the other one has multiplied its tile.
  CE_DEVICE Mbarrier& turn(int multiplier) const { return barriers_[2 * stages + multiplier]; }
  CE_DEVICE void advance() {
    if (++stage_ == stages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }
  /// All blocks of the cluster load into a stage, so each must know when all blocks have released it.
  CE_DEVICE void release(int stage) const {
    const int thread = thread_index() % tile.warpgroup;
    if constexpr (cluster > 1) {
      if (thread < cluster) mbarrier_arrive_at(empty(stage), thread);
    } else if (thread == 0) {
      mbarrier_arrive(empty(stage));
    }
  }
  /// Ensures that no block uses the shared memory of one that has not begun or has ended.
  CE_DEVICE void meet() const {
    if constexpr (cluster > 1) {
      cluster_arrive();
      cluster_wait();
    } else {
      block_barrier();
    }
  }

  const ProductOperands& operands_;
  uint32 ring_;
  Mbarrier* barriers_;
  int stage_ = 0, phase_ = 0;
  int turns_ = 0;  ///< number of tiles that this warpgroup has multiplied, modulo 2
};

}  // namespace ce

#undef CE_WGMMA_OF
#undef CE_WGMMA
#undef CE_REGISTERS_128
#undef CE_REGISTERS_96
#undef CE_REGISTERS_64
#undef CE_SUMS_32
#undef CE_SUMS_8
