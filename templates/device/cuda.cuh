// The implementation of device.cuh for a GPU.
#pragma once

#define CE_DEVICE __device__ __forceinline__
#define CE_KERNEL(name, threads) \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Arguments arguments)

namespace ce {

CE_DEVICE int thread_index() { return threadIdx.x; }
CE_DEVICE int64 block_index() { return blockIdx.x; }
CE_DEVICE int64 block_count() { return gridDim.x; }
CE_DEVICE int lane_index() { return threadIdx.x % lanes; }
CE_DEVICE int warp_index() { return threadIdx.x / lanes; }

CE_DEVICE void block_barrier() { __syncthreads(); }
CE_DEVICE void warp_barrier() { __syncwarp(); }

template <class T>
CE_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(~0u, value, mask);
}

CE_DEVICE bool any_lane(bool condition) { return __any_sync(~0u, condition); }

template <class T>
CE_DEVICE T from_lane(T value, int lane) {
  return __shfl_sync(~0u, value, lane);
}

CE_DEVICE float warp_maximum(float x) {
#if __CUDA_ARCH__ >= 800
  // All bits except the sign are inverted for negative numbers: integers then sort like the numbers.
  const int bits = __float_as_int(x), largest = __reduce_max_sync(~0u, bits ^ (bits >> 31 & 0x7fffffff));
  return __int_as_float(largest ^ (largest >> 31 & 0x7fffffff));
#else
#pragma unroll
  for (int mask = lanes / 2; mask > 0; mask /= 2) x = ::fmaxf(x, shuffle_xor(x, mask));
  return x;
#endif
}

template <class T>
CE_DEVICE void keep(T& value) {
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
}

extern __shared__ __align__(128) unsigned char ce_shared_bytes[];
template <class T, bool kept = false>
CE_DEVICE T& shared_memory() {
  if constexpr (!kept) return *reinterpret_cast<T*>(ce_shared_bytes);
  uint32 address = uint32(__cvta_generic_to_shared(ce_shared_bytes));
  keep(address);
  return *reinterpret_cast<T*>(__cvta_shared_to_generic(address));
}

// ---- global memory -------------------------------------------------------------------------------------
// `volatile` keeps the order of loads and stores as written: kernels that work in place read a row before
// they overwrite it.

#define CE_LOAD_WORDS(modifier)                                                            \
  if constexpr (n == 1)                                                                    \
    asm volatile("ld.global." modifier ".b32 %0, [%1];" : "=r"(v.word[0]) : "l"(address)); \
  else if constexpr (n == 2)                                                               \
    asm volatile("ld.global." modifier ".v2.b32 {%0, %1}, [%2];"                           \
                 : "=r"(v.word[0]), "=r"(v.word[1])                                        \
                 : "l"(address));                                                          \
  else                                                                                     \
    asm volatile("ld.global." modifier ".v4.b32 {%0, %1, %2, %3}, [%4];"                   \
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])      \
                 : "l"(address));

#if __CUDA_ARCH__ >= 800
CE_DEVICE uint64 evict_last() {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
template <int n>
CE_DEVICE void load_evict_last(Words<n>& v, const void* address) {
  if constexpr (n == 1)
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.b32 %0, [%1], %2;"
                 : "=r"(v.word[0])
                 : "l"(address), "l"(evict_last()));
  else if constexpr (n == 2)
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"
                 : "=r"(v.word[0]), "=r"(v.word[1])
                 : "l"(address), "l"(evict_last()));
  else
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address), "l"(evict_last()));
}
#endif

template <Load modifier, int n>
CE_DEVICE Words<n> load(const void* address) {
  static_assert(n == 1 || n == 2 || n == 4, "one instruction moves 4, 8 or 16 bytes");
  Words<n> v;
  if constexpr (modifier == Load::ca) {
    CE_LOAD_WORDS("ca")
  }
  if constexpr (modifier == Load::cg) {
    CE_LOAD_WORDS("cg")
  }
  if constexpr (modifier == Load::cs) {
    CE_LOAD_WORDS("cs")
  }
  if constexpr (modifier == Load::evict_last) load_evict_last(v, address);
  return v;
}
#undef CE_LOAD_WORDS

#define CE_STORE_WORDS(modifier)                                                                         \
  if constexpr (n == 1)                                                                                  \
    asm volatile("st.global." modifier ".b32 [%0], %1;" ::"l"(address), "r"(v.word[0]) : "memory");      \
  else if constexpr (n == 2)                                                                             \
    asm volatile("st.global." modifier ".v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(v.word[0]),         \
                 "r"(v.word[1])                                                                          \
                 : "memory");                                                                            \
  else                                                                                                   \
    asm volatile("st.global." modifier ".v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.word[0]), \
                 "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])                                          \
                 : "memory");

template <Store modifier, int n>
CE_DEVICE void store(void* address, const Words<n>& v) {
  static_assert(n == 1 || n == 2 || n == 4, "one instruction moves 4, 8 or 16 bytes");
  if constexpr (modifier == Store::wb) {
    CE_STORE_WORDS("wb")
  }
  if constexpr (modifier == Store::cg) {
    CE_STORE_WORDS("cg")
  }
  if constexpr (modifier == Store::cs) {
    CE_STORE_WORDS("cs")
  }
  if constexpr (modifier == Store::wt) {
    CE_STORE_WORDS("wt")
  }
}
#undef CE_STORE_WORDS

template <Load modifier, class T>
CE_DEVICE T load_element(const T* address) {
  if constexpr (sizeof(T) == 4) {
    const Words<1> v = load<modifier, 1>(address);
    return reinterpret_cast<const T&>(v);
  } else {
    static_assert(sizeof(T) == 2, "elements are 2 or 4 bytes");
    unsigned short bits;
    if constexpr (modifier == Load::cg)
      asm volatile("ld.global.cg.b16 %0, [%1];" : "=h"(bits) : "l"(address));
    else if constexpr (modifier == Load::cs)
      asm volatile("ld.global.cs.b16 %0, [%1];" : "=h"(bits) : "l"(address));
    else
      asm volatile("ld.global.ca.b16 %0, [%1];" : "=h"(bits) : "l"(address));
    return T{bits};
  }
}

template <Store modifier, class T>
CE_DEVICE void store_element(T* address, T value) {
  if constexpr (sizeof(T) == 4) {
    store<modifier>(address, reinterpret_cast<const Words<1>&>(value));
  } else {
    static_assert(sizeof(T) == 2, "elements are 2 or 4 bytes");
    if constexpr (modifier == Store::wb)
      asm volatile("st.global.wb.b16 [%0], %1;" ::"l"(address), "h"(value.bits) : "memory");
    else if constexpr (modifier == Store::cg)
      asm volatile("st.global.cg.b16 [%0], %1;" ::"l"(address), "h"(value.bits) : "memory");
    else if constexpr (modifier == Store::cs)
      asm volatile("st.global.cs.b16 [%0], %1;" ::"l"(address), "h"(value.bits) : "memory");
    else
      asm volatile("st.global.wt.b16 [%0], %1;" ::"l"(address), "h"(value.bits) : "memory");
  }
}

// ---- arithmetic ----------------------------------------------------------------------------------------

CE_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
CE_DEVICE float log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
CE_DEVICE float log(float x) { return ::logf(x); }
CE_DEVICE float log1p(float x) { return ::log1pf(x); }
CE_DEVICE float expm1(float x) { return ::expm1f(x); }
CE_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
CE_DEVICE float product(float a, float b) { return __fmul_rn(a, b); }
CE_DEVICE float multiply_add(float a, float b, float c) { return ::fmaf(a, b, c); }
CE_DEVICE float absolute(float x) { return ::fabsf(x); }
CE_DEVICE float maximum(float a, float b) { return ::fmaxf(a, b); }
CE_DEVICE float with_sign(float x, float y) { return ::copysignf(x, y); }
CE_DEVICE float at_least(float x, float bound) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
#else
  return x < bound ? bound : x;
#endif
}
CE_DEVICE float infinity() { return __int_as_float(0x7f800000); }
CE_DEVICE float not_a_number() { return __int_as_float(0x7fffffff); }

CE_DEVICE void put_bits(uint32& word, float x) { word = __float_as_uint(x); }
CE_DEVICE void put_bits(uint32& word, int x) { word = uint32(x); }
CE_DEVICE void put_bits(uint32& word, f16 x) { word = x.bits; }
CE_DEVICE void put_bits(uint32& word, bf16 x) { word = x.bits; }
CE_DEVICE void get_bits(uint32 word, float& x) { x = __uint_as_float(word); }
CE_DEVICE void get_bits(uint32 word, int& x) { x = int(word); }
CE_DEVICE void get_bits(uint32 word, f16& x) { x.bits = (unsigned short)(word); }
CE_DEVICE void get_bits(uint32 word, bf16& x) { x.bits = (unsigned short)(word); }

CE_DEVICE float to_float(f32 x) { return x; }
CE_DEVICE float to_float(bf16 x) { return __uint_as_float(uint32(x.bits) << 16); }
CE_DEVICE float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

/// Two elements that share a 32-bit word, the first in the low half.
template <class T>
CE_DEVICE Float2 unpack(uint32 word) {
  if constexpr (is_same<T, bf16>)
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  else
    return {to_float(f16{(unsigned short)(word)}), to_float(f16{(unsigned short)(word >> 16)})};
}

/// Round to nearest even.
template <class T>
CE_DEVICE T from_float(float x) {
  if constexpr (is_same<T, f32>) {
    return x;
  } else if constexpr (is_same<T, f16>) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  } else {
#if __CUDA_ARCH__ >= 800
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    const uint32 bits = __float_as_uint(x);
    if (x != x) return bf16{0x7fff};
    return bf16{(unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
#endif
  }
}

template <class T>
CE_DEVICE uint32 pack(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32 word;
  if constexpr (is_same<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return uint32(from_float<T>(low).bits) | uint32(from_float<T>(high).bits) << 16;
#endif
}

template <class T>
CE_DEVICE uint32 maximum_pair(uint32 a, uint32 b) {
#if __CUDA_ARCH__ >= 800
  uint32 word;
  if constexpr (is_same<T, bf16>)
    asm("max.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  else
    asm("max.f16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  return word;
#else
  const Float2 x = unpack<T>(a), y = unpack<T>(b);
  return pack<T>(maximum(x.low, y.low), maximum(x.high, y.high));
#endif
}

template <class T>
CE_DEVICE uint32 at_least_pair(uint32 x, uint32 bound) {
#if __CUDA_ARCH__ >= 800
  uint32 word;
  if constexpr (is_same<T, bf16>)
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(x), "r"(bound));
  else
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(word) : "r"(x), "r"(bound));
  return word;
#else
  const Float2 a = unpack<T>(x), b = unpack<T>(bound);
  return pack<T>(at_least(a.low, b.low), at_least(a.high, b.high));
#endif
}

template <class T>
CE_DEVICE uint32 larger_magnitude_pair(uint32 a, uint32 b) {
#if __CUDA_ARCH__ >= 860
  uint32 word;
  if constexpr (is_same<T, bf16>)
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  else
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  return word;
#else
  return maximum_pair<T>(a & 0x7fff7fffu, b & 0x7fff7fffu);
#endif
}

// ---- integers in global memory -------------------------------------------------------------------------

CE_DEVICE int64 atomic_add(int64* address, int64 value) {
  return int64(::atomicAdd(reinterpret_cast<uint64*>(address), uint64(value)));
}
CE_DEVICE int64 atomic_min(int64* address, int64 value) { return ::atomicMin(address, value); }
CE_DEVICE void device_fence() { __threadfence(); }

// ---- time ----------------------------------------------------------------------------------------------

CE_DEVICE uint64 nanoseconds() {
  uint64 time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}
CE_DEVICE void await_others() {}

CE_DEVICE void pause(int cycles) {
  const int64 start = clock64();
  while (clock64() - start < cycles) {
  }
}

// ---- clusters, bulk copies and steps that overlap (sm_90) ----------------------------------------------

struct Mbarrier {
  uint64 mbarrier;
};

CE_DEVICE uint32 shared_address(const void* pointer) { return uint32(__cvta_generic_to_shared(pointer)); }

#if __CUDA_ARCH__ >= 900
CE_DEVICE int cluster_rank() {
  uint32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));  // read once only
  return int(rank);
}
CE_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
CE_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

CE_DEVICE void mbarrier_init(Mbarrier& barrier, int count = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // makes it visible to the copy engine, too
}
CE_DEVICE void mbarrier_arrive(Mbarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
template <bool asleep = false>
CE_DEVICE void mbarrier_wait(Mbarrier& barrier, int parity = 0) {
  if constexpr (asleep)
    asm volatile(
        "{\n"
        "  .reg .pred ended;\n"
        "again:\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1, 1000000;\n"  // nanoseconds, at most
        "  @!ended bra again;\n"
        "}\n" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
  else
    asm volatile(
        "{\n"
        "  .reg .pred ended;\n"
        "again:\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "  @!ended bra again;\n"
        "}\n" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}
CE_DEVICE bool mbarrier_test(Mbarrier& barrier, int parity) {
  int ended;
  asm volatile(
      "{\n"
      "  .reg .pred ended;\n"
      "  mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "  selp.b32 %0, 1, 0, ended;\n"
      "}\n"
      : "=r"(ended)
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}
CE_DEVICE void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}
template <int n>
CE_DEVICE void cluster_send(Words<n>& place, const Words<n>& words, Mbarrier& barrier, int rank) {
  static_assert(n == 2 || n == 4, "one instruction sends 8 or 16 bytes");
  uint32 to, at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(&place)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(&barrier)), "r"(rank));
  if constexpr (n == 2)
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
        "r"(words.word[0]), "r"(words.word[1]), "r"(at)
        : "memory");
  else
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::
            "r"(to),
        "r"(words.word[0]), "r"(words.word[1]), "r"(words.word[2]), "r"(words.word[3]), "r"(at)
        : "memory");
}
template <Load modifier = Load::ca>
CE_DEVICE void bulk_load(void* shared, const void* global, int bytes, Mbarrier& barrier) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // after earlier reads by threads
  mbarrier_arrive_expect_tx(barrier, bytes);
  if (bytes == 0) return;
  if constexpr (modifier == Load::evict_last)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(&barrier)), "l"(evict_last())
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(&barrier))
        : "memory");
}
CE_DEVICE void step_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
CE_DEVICE void step_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
CE_DEVICE int cluster_rank() { return 0; }
CE_DEVICE void step_release() {}  // kernels run one after the other
CE_DEVICE void step_wait() {}
#endif

}  // namespace ce
