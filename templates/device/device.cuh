// The part of CUDA's language that the kernels use, as functions of this project. A kernel includes nothing from the
// CUDA toolkit; it includes this file. For a GPU the functions are intrinsics and inline PTX (cuda.cuh), for the host
// device plain C++ (host.cuh), so the same kernel runs on both.
//
// clang-format off
//   CE_DEVICE                      in front of every function
//   CE_KERNEL(name, threads)       an entry point with one parameter, `arguments` of type Arguments
//   thread_index() block_index() block_count() lane_index() warp_index()
//   block_barrier()                all threads of the block
//   warp_barrier()                 all 32 lanes of the warp
//   shuffle_xor(value, mask)       the value of lane (own lane ^ mask); all 32 lanes take part
//   any_lane(condition)            whether it is true of any lane; all 32 lanes take part
//   from_lane(value, lane)         the value of that lane, the same for all; all 32 lanes take part
//   cluster_rank()                 of this block in its cluster; 0 without clusters
//   cluster_arrive cluster_wait    a barrier of all threads of the cluster in two halves: what was written before
//                                  arriving is seen after waiting
//   Mbarrier                        an mbarrier, in shared memory: its phases 0, 1, 0, 1, ... end one after the other
//   mbarrier_init(barrier, count)   by one thread, before a block barrier that lets the others use it; each phase
//                                  ends after `count` arrivals and when all bulk copies announced in it have landed
//   mbarrier_arrive(barrier)        one barrier
//   mbarrier_wait(barrier, parity)  until the phase of that parity has ended
//   mbarrier_test(barrier, parity)  whether it has, as far as this thread can see yet: who means to rely on it waits
//   mbarrier_wait<true>             the same, for long waits: leaves the slots for instructions to others meanwhile
//   mbarrier_arrive_expect_tx(barrier, bytes) one barrier that announces what blocks of the cluster send
//   cluster_send(place, words, barrier, rank)  writes 8 or 16 bytes to the same place in the shared memory of that block
//                                  of the cluster, where they land like a bulk copy announced at the same Mbarrier;
//                                  nothing else that this thread wrote is seen with them; sm_90
//   bulk_load<Load>(shared, global, bytes, barrier)  one barrier that announces a copy, and the copy; by one thread;
//                                  addresses and bytes multiples of 16; 0 bytes copy nothing; sm_90
//   step_release()                 the next kernel of the call may start
//   step_wait()                    until the kernel before this one of the same call has ended and its writes are
//                                  seen; without it this kernel may run beside that one (sm_90, programmatic
//                                  dependent launch)
//   shared_memory<T>()             the block's dynamic shared memory as a T; its contents start undefined
//   shared_memory<T, true>()       the same, by an address that each thread keeps, as with keep()
//   keep(value)                    in a register from here on: else it may be computed again wherever it is used; of 4 or 8
//                                  bytes
//   warp_maximum(x)                the largest x of all lanes, which is no NaN; all 32 lanes take part; from sm_80 on one
//                                  instruction
//   load<Load, words>(address)     4 x words bytes of global memory, aligned to their size
//   store<Store>(address, words)   the same, written
//   load_element / store_element   one element of any type, with the same cache modifiers
//   exp2 log log1p expm1 maximum absolute  f32; exp2 flushes subnormal results to zero; maximum prefers a number to NaN
//   log2(x)                        to 2^-22, of its own where that is more; of subnormal numbers -infinity
//   with_sign(x, y)                |x| with the sign of y
//   at_least(x, bound)             the larger of the two; NaN where x is
//   reciprocal(x)                  to 1 ulp or so; subnormal numbers are zero to it
//   multiply_add(a, b, c)          a b + c, rounded once
//   product(a, b)                  a b, rounded by itself: never the half of a multiply-add
//   maximum_pair<T>(a, b)          of the two elements in each of two words; prefers a number to NaN
//   at_least_pair<T>(x, bound)     the larger of the two elements in each of two words; keeps NaN
//   larger_magnitude_pair<T>(a, b) the same of |a| and |b|, with signs that mean nothing
//   infinity() not_a_number()
//   to_float(element) from_float<T>(value) unpack(word) pack<T>(low, high)
//   put_bits(word, value) get_bits(word, value)  the bits of an element or int as a word, and back
//   atomic_add atomic_min          on 64-bit integers in global memory, returning the value before; integers only,
//                                  so that their order cannot change a result
//   nanoseconds()                  of a clock that goes on
//   await_others()                 between two looks at memory that others write; other threads go on meanwhile
//   pause(cycles)                  lets about as many cycles of the multiprocessor pass
//   device_fence()                 writes before it are seen by the whole device before writes after it
// clang-format on
#pragma once

namespace ce {

using int32 = int;
using uint32 = unsigned int;
using int64 = long long;
using uint64 = unsigned long long;

/// Storage of one 16-bit element; arithmetic is in f32.
struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};
using f32 = float;

/// PTX's cache operators of loads: all levels, L2 only, streaming (evict first); and the L2 policy evict_last (sm_80),
/// which keeps read lines in L2 while stores pass through: an H200 then moves up to 4% more.
enum class Load { ca, cg, cs, evict_last };
/// PTX's cache operators of stores: write back, L2 only, streaming, write through.
enum class Store { wb, cg, cs, wt };

/// A few 32-bit words that one instruction moves.
template <int n>
struct alignas(4 * n) Words {
  uint32 word[n];
};

struct Float2 {
  float low, high;
};

constexpr int lanes = 32;  // lanes of a warp

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

}  // namespace ce

#if defined(CE_HOST)
#include "device/host.cuh"
#else
#include "device/cuda.cuh"
#endif

namespace ce {

// Reductions over groups of `width` neighbouring lanes; every lane gets the result, whose order is fixed.

template <int width = lanes>
CE_DEVICE float warp_max(float x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x = maximum(x, shuffle_xor(x, mask));
  return x;
}
template <int width = lanes>
CE_DEVICE int warp_min(int x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) {
    const int other = shuffle_xor(x, mask);
    x = other < x ? other : x;
  }
  return x;
}
template <int width = lanes, class T>
CE_DEVICE T warp_sum(T x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

}  // namespace ce
