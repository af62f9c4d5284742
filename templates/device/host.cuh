// The implementation of device.cuh for the host device, where each thread of a block is a fiber
// (runtime/host/scheduler.cpp). Code that would fault or give undefined results on a GPU is an error here that names
// its source location: hence the defaulted last parameters.
#pragma once

#include "device/half.cuh"
#include "device/host_abi.cuh"

#define CE_DEVICE inline
#define CE_HOST_EXPORT __attribute__((visibility("default")))
#define CE_HOST_THREADS(name) ce_host_threads_##name
#define CE_KERNEL(name, threads)                         \
  extern "C" {                                           \
  extern CE_HOST_EXPORT const int CE_HOST_THREADS(name); \
  const int CE_HOST_THREADS(name) = (threads);           \
  }                                                      \
  extern "C" CE_HOST_EXPORT void name([[maybe_unused]] const Arguments& arguments)

// Separate parameters, since these builtins give the location of the call only as whole default arguments.
#define CE_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

// `static`: each shared object has its own copy, whatever else is loaded.
static thread_local ce::host_abi::Thread* ce_host_current = nullptr;

extern "C" {
extern CE_HOST_EXPORT const int ce_host_abi;
const int ce_host_abi = ce::host_abi::version;
CE_HOST_EXPORT ce::host_abi::Thread** ce_host_thread() { return &ce_host_current; }
}

namespace ce::host {

CE_DEVICE void fail(const char* message, host_abi::Place place) {
  ce_host_current->services->fail(*ce_host_current, message, place);
  __builtin_trap();
}

template <class T>
CE_DEVICE T value_of_lane(T value, int lane, host_abi::Place place) {
  static_assert(sizeof(T) <= sizeof(uint64), "a lane shows at most 8 bytes");
  host_abi::Thread& self = *ce_host_current;
  if (lane < 0 || lane >= lanes) fail("asks for the value of a lane outside the warp", place);
  auto& slots = self.exchange->slot[self.exchanges++ & 1u];
  __builtin_memcpy(&slots[self.lane], &value, sizeof value);
  self.services->barrier(self, host_abi::Scope::warp, place);
  __builtin_memcpy(&value, &slots[lane], sizeof value);
  return value;
}

CE_DEVICE void require_aligned(const void* address, unsigned bytes, host_abi::Place place) {
  if (reinterpret_cast<uint64>(address) % bytes == 0) return;
  switch (bytes) {
    case 2: return fail("accesses 2 bytes at an address that is not a multiple of 2", place);
    case 4: return fail("accesses 4 bytes at an address that is not a multiple of 4", place);
    case 8: return fail("accesses 8 bytes at an address that is not a multiple of 8", place);
    default: return fail("accesses 16 bytes at an address that is not a multiple of 16", place);
  }
}

}  // namespace ce::host

namespace ce {

CE_DEVICE int thread_index() { return ce_host_current->index; }
CE_DEVICE int64 block_index() { return ce_host_current->block->index; }
CE_DEVICE int64 block_count() { return ce_host_current->block->count; }
CE_DEVICE int lane_index() { return ce_host_current->lane; }
CE_DEVICE int warp_index() { return ce_host_current->warp; }

CE_DEVICE void block_barrier(CE_CALLER) {
  ce_host_current->services->barrier(*ce_host_current, host_abi::Scope::block, {file, line});
}
CE_DEVICE void warp_barrier(CE_CALLER) {
  ce_host_current->services->barrier(*ce_host_current, host_abi::Scope::warp, {file, line});
}

template <class T>
CE_DEVICE T shuffle_xor(T value, int mask, CE_CALLER) {
  return host::value_of_lane(value, lane_index() ^ mask, {file, line});
}

CE_DEVICE bool any_lane(bool condition, CE_CALLER) {
  int any = condition;
  for (int mask = lanes / 2; mask > 0; mask /= 2)
    any |= host::value_of_lane(any, lane_index() ^ mask, {file, line});
  return any != 0;
}

template <class T>
CE_DEVICE T from_lane(T value, int lane, CE_CALLER) {
  return host::value_of_lane(value, lane, {file, line});
}

CE_DEVICE float warp_maximum(float x, CE_CALLER) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    const float other = host::value_of_lane(x, lane_index() ^ mask, {file, line});
    x = x < other ? other : x;
  }
  return x;
}

template <class T, bool kept = false>
CE_DEVICE T& shared_memory() {
  static_assert(alignof(T) <= 128, "shared memory is aligned to 128 bytes");
  return *reinterpret_cast<T*>(ce_host_current->block->shared);
}
template <class T>
CE_DEVICE void keep(T&) {}

// ---- clusters and bulk copies ----------------------------------------------------------------------------
// A bulk copy, or a send from a block of the cluster, lands as late as possible: when every runnable thread waits, or
// when the block ends; several land in any order. Until then its memory is NaN, so that a thread that reads without
// waiting gets a wrong result.

CE_DEVICE int cluster_rank() { return ce_host_current->block->rank; }
CE_DEVICE void cluster_arrive(CE_CALLER) {
  ce_host_current->services->cluster_arrive(*ce_host_current, {file, line});
}
CE_DEVICE void cluster_wait(CE_CALLER) {
  ce_host_current->services->cluster_wait(*ce_host_current, {file, line});
}

struct Mbarrier {
  uint64 word;
};

CE_DEVICE void mbarrier_init(Mbarrier& barrier, int count = 1, CE_CALLER) {
  ce_host_current->services->mbarrier_init(*ce_host_current, barrier.word, count, {file, line});
}
CE_DEVICE void mbarrier_arrive(Mbarrier& barrier, CE_CALLER) {
  ce_host_current->services->mbarrier_arrive(*ce_host_current, barrier.word, {file, line});
}
template <bool = false>
CE_DEVICE void mbarrier_wait(Mbarrier& barrier, int parity = 0, CE_CALLER) {
  ce_host_current->services->mbarrier_wait(*ce_host_current, barrier.word, parity, {file, line});
}
CE_DEVICE bool mbarrier_test(Mbarrier& barrier, int parity, CE_CALLER) {
  return ce_host_current->services->mbarrier_test(*ce_host_current, barrier.word, parity, {file, line});
}
CE_DEVICE void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes, CE_CALLER) {
  ce_host_current->services->mbarrier_arrive_expect_tx(*ce_host_current, barrier.word, bytes, {file, line});
}
template <int n>
CE_DEVICE void cluster_send(Words<n>& place, const Words<n>& words, Mbarrier& barrier, int rank, CE_CALLER) {
  static_assert(n == 2 || n == 4, "one instruction sends 8 or 16 bytes");
  ce_host_current->services->cluster_send(*ce_host_current, &place, &words, sizeof words, barrier.word, rank,
                                          {file, line});
}
template <Load modifier = Load::ca>
CE_DEVICE void bulk_load(void* shared, const void* global, int bytes, Mbarrier& barrier, CE_CALLER) {
  ce_host_current->services->bulk_load(*ce_host_current, shared, global, bytes, barrier.word, {file, line});
}

// Kernels run one after the other.
CE_DEVICE void step_release() {}
CE_DEVICE void step_wait() {}

// ---- global memory -------------------------------------------------------------------------------------
// Cache modifiers have no effect here. The compiler may not reorder these accesses if they may alias, which `volatile`
// ensures on a GPU.

template <Load modifier, int n>
CE_DEVICE Words<n> load(const void* address, CE_CALLER) {
  static_assert(n == 1 || n == 2 || n == 4, "one instruction moves 4, 8 or 16 bytes");
  host::require_aligned(address, 4 * n, {file, line});
  Words<n> words;
  __builtin_memcpy(&words, address, sizeof words);
  return words;
}

template <Store modifier, int n>
CE_DEVICE void store(void* address, const Words<n>& words, CE_CALLER) {
  static_assert(n == 1 || n == 2 || n == 4, "one instruction moves 4, 8 or 16 bytes");
  host::require_aligned(address, 4 * n, {file, line});
  __builtin_memcpy(address, &words, sizeof words);
}

template <Load modifier, class T>
CE_DEVICE T load_element(const T* address, CE_CALLER) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "elements are 2 or 4 bytes");
  host::require_aligned(address, sizeof(T), {file, line});
  T value;
  __builtin_memcpy(&value, address, sizeof value);
  return value;
}

template <Store modifier, class T>
CE_DEVICE void store_element(T* address, T value, CE_CALLER) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "elements are 2 or 4 bytes");
  host::require_aligned(address, sizeof(T), {file, line});
  __builtin_memcpy(address, &value, sizeof value);
}

// ---- arithmetic ----------------------------------------------------------------------------------------

CE_DEVICE float exp2(float x) {
  const float y = __builtin_exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}
CE_DEVICE float log(float x) { return __builtin_logf(x); }
CE_DEVICE float log1p(float x) { return __builtin_log1pf(x); }
CE_DEVICE float expm1(float x) { return __builtin_expm1f(x); }
/// The result is as inaccurate as it may be on a GPU, so that a kernel that needs more is wrong here.
CE_DEVICE float log2(float x) {
  return x >= 0.f && x < 0x1p-126f ? -__builtin_inff() : __builtin_log2f(x) * (1.f + 0x1p-22f);
}
CE_DEVICE float reciprocal(float x) { return 1.f / x; }
CE_DEVICE float product(float a, float b) { return a * b; }  // compiled without contraction
CE_DEVICE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CE_DEVICE float absolute(float x) { return __builtin_fabsf(x); }
CE_DEVICE float maximum(float a, float b) { return a > b || b != b ? a : b; }
CE_DEVICE float with_sign(float x, float y) { return __builtin_copysignf(x, y); }
CE_DEVICE float at_least(float x, float bound) { return x < bound ? bound : x; }
CE_DEVICE float infinity() { return __builtin_inff(); }
CE_DEVICE float not_a_number() { return __builtin_bit_cast(float, 0x7fffffffu); }

CE_DEVICE void put_bits(uint32& word, float x) { word = __builtin_bit_cast(uint32, x); }
CE_DEVICE void put_bits(uint32& word, int x) { word = uint32(x); }
CE_DEVICE void put_bits(uint32& word, f16 x) { word = x.bits; }
CE_DEVICE void put_bits(uint32& word, bf16 x) { word = x.bits; }
CE_DEVICE void get_bits(uint32 word, float& x) { x = __builtin_bit_cast(float, word); }
CE_DEVICE void get_bits(uint32 word, int& x) { x = int(word); }
CE_DEVICE void get_bits(uint32 word, f16& x) { x.bits = (unsigned short)(word); }
CE_DEVICE void get_bits(uint32 word, bf16& x) { x.bits = (unsigned short)(word); }

CE_DEVICE float to_float(f32 x) { return x; }
CE_DEVICE float to_float(bf16 x) { return float_from_bf16_bits(x.bits); }
CE_DEVICE float to_float(f16 x) { return float_from_f16_bits(x.bits); }

/// Two elements that share a 32-bit word, the first in the low half.
template <class T>
CE_DEVICE Float2 unpack(uint32 word) {
  return {to_float(T{(unsigned short)(word)}), to_float(T{(unsigned short)(word >> 16)})};
}

/// Round to nearest even.
template <class T>
CE_DEVICE T from_float(float x) {
  if constexpr (is_same<T, f32>)
    return x;
  else if constexpr (is_same<T, f16>)
    return f16{f16_bits_from_float(x)};
  else
    return bf16{bf16_bits_from_float(x)};
}

template <class T>
CE_DEVICE uint32 pack(float low, float high) {
  return uint32(from_float<T>(low).bits) | uint32(from_float<T>(high).bits) << 16;
}

template <class T>
CE_DEVICE uint32 maximum_pair(uint32 a, uint32 b) {
  const Float2 x = unpack<T>(a), y = unpack<T>(b);
  return pack<T>(maximum(x.low, y.low), maximum(x.high, y.high));
}

template <class T>
CE_DEVICE uint32 at_least_pair(uint32 x, uint32 bound) {
  const Float2 a = unpack<T>(x), b = unpack<T>(bound);
  return pack<T>(at_least(a.low, b.low), at_least(a.high, b.high));
}

template <class T>
CE_DEVICE uint32 larger_magnitude_pair(uint32 a, uint32 b) {
  return maximum_pair<T>(a & 0x7fff7fffu, b & 0x7fff7fffu) | ((a ^ b) & 0x80008000u);
}

// ---- integers in global memory: blocks run on several OS threads ---------------------------------------

CE_DEVICE int64 atomic_add(int64* address, int64 value, CE_CALLER) {
  host::require_aligned(address, sizeof value, {file, line});
  return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
}
CE_DEVICE int64 atomic_min(int64* address, int64 value, CE_CALLER) {
  host::require_aligned(address, sizeof value, {file, line});
  int64 before = __atomic_load_n(address, __ATOMIC_ACQUIRE);
  while (value < before &&
         !__atomic_compare_exchange_n(address, &before, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return before;
}
CE_DEVICE void device_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// ---- time ----------------------------------------------------------------------------------------------

CE_DEVICE uint64 nanoseconds() { return ce_host_current->services->nanoseconds(); }
CE_DEVICE void await_others(CE_CALLER) {
  ce_host_current->services->await_others(*ce_host_current, {file, line});
}

CE_DEVICE void pause(int) {}

}  // namespace ce

#undef CE_CALLER
