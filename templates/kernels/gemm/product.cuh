// Products of 16-bit matrices [rows, depth] x [columns, depth]^T, tile by tile, which are not stored in memory.
//
// clang-format off
//   CE_PRODUCT_KERNEL(name, threads)  an entry point as CE_KERNEL makes them
//   Product<Input, columns, stages, cluster, turns>  of a block of ProductTile::threads threads (product_layout.cuh); all threads
//                                 make one
//   loads()                       whether this warpgroup only loads
//   begin_loading() begin_multiplying()  by it, and by the others, first in what only they do
//   load(row, column)             by that warpgroup, of the tile that begins there
//   multiplies(tile)              whether this warpgroup multiplies that one of all tiles of the block, 0, 1, 2, ...
//   skip()                        by the others, in place of a tile that this warpgroup does not multiply
//   multiply(sums, row, column)   by the others, of the same tiles in the same order: each thread gets its sums, in f32, of each
//                                 of its blocks of rows, where ProductTile::place_of() says; 0 outside the matrices
//   end()                         by all threads, behind the last tile
// clang-format on
#pragma once
#include "device/device.cuh"
#include "product_layout.cuh"
#include "product_operands.cuh"

#if defined(CE_HOST)
#include "kernels/gemm/product_host.cuh"
#else
#include "kernels/gemm/product_cuda.cuh"
#endif
