// What the policy evict_last of L2 does to a copy, and to a kernel that runs after it and lives in L2.
//
//     nvcc -O3 -std=c++17 -arch=sm_90 -o l2_policy bench/lab/l2_policy.cu && ./l2_policy
//
// Prints the time of a copy of 1 GiB and those of six passes over a small buffer right after it, all in
// microseconds, medians of 15: without the policy, and with it. The buffer was in L2 before the copy.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int threads = 512, vectors = 4, passes = 6, repeats = 15;

void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(result));
  std::exit(1);
}

template <bool last>
__device__ uint4 load(const uint4* address) {
  if constexpr (!last) return *address;
  uint4 v;
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address), "l"(policy));
  return v;
}

template <bool last>
__global__ void copy(const uint4* in, uint4* out) {
  const std::size_t first = std::size_t(blockIdx.x) * threads * vectors + threadIdx.x;
  uint4 held[vectors];
  for (int i = 0; i < vectors; ++i) held[i] = load<last>(in + first + i * threads);
  for (int i = 0; i < vectors; ++i) out[first + i * threads] = held[i];
}

__global__ void pass(const uint4* in, std::size_t count, unsigned* sink) {
  unsigned folded = 0;
  for (std::size_t i = std::size_t(blockIdx.x) * threads + threadIdx.x; i < count;
       i += std::size_t(gridDim.x) * threads)
    folded ^= in[i].x ^ in[i].y ^ in[i].z ^ in[i].w;
  if (folded == 0x9e3779b9) *sink = folded;  // so that the loads stay
}

}  // namespace

int main() {
  constexpr std::size_t bytes = std::size_t(1) << 30;
  uint4 *from, *to;
  unsigned* sink;
  check(cudaMalloc(&from, bytes));
  check(cudaMalloc(&to, bytes));
  check(cudaMalloc(&sink, sizeof *sink));
  check(cudaMemset(from, 0, bytes));
  std::array<cudaEvent_t, passes + 2> events;
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event));

  std::printf("MiB after it  policy  copy  passes\n");
  for (const std::size_t mib : {8, 16, 24, 32, 40}) {
    uint4* small;
    const std::size_t count = (mib << 20) / sizeof(uint4);
    check(cudaMalloc(&small, mib << 20));
    check(cudaMemset(small, 0, mib << 20));
    for (const bool last : {false, true}) {
      std::array<std::vector<float>, passes + 1> taken;
      for (int repeat = 0; repeat < repeats; ++repeat) {
        for (int i = 0; i < passes; ++i) pass<<<528, threads>>>(small, count, sink);
        check(cudaEventRecord(events[0]));
        (last ? copy<true> : copy<false>)<<<bytes / sizeof(uint4) / threads / vectors, threads>>>(from, to);
        check(cudaEventRecord(events[1]));
        for (int i = 0; i < passes; ++i) {
          pass<<<528, threads>>>(small, count, sink);
          check(cudaEventRecord(events[i + 2]));
        }
        check(cudaDeviceSynchronize());
        for (std::size_t i = 0; i < taken.size(); ++i) {
          float ms;
          check(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
          taken[i].push_back(1000 * ms);
        }
      }
      std::printf("%12zu  %6s", mib, last ? "last" : "none");
      for (std::vector<float>& each : taken) {
        std::sort(each.begin(), each.end());
        std::printf("  %.1f", each[repeats / 2]);
      }
      std::printf("\n");
    }
    check(cudaFree(small));
  }
}
