// What L2 still holds of a tensor after twice its size was read from elsewhere, where a kernel had loaded the tensor
// with the policy evict_last, and what makes L2 forget it.
//
//     nvcc -O3 -std=c++17 -arch=sm_90 -o l2_kept bench/lab/l2_kept.cu && ./l2_kept
//
// Prints times of kernels that read a tensor after that, in microseconds, medians of 40: of plain loads and of evict_last
// where the same kernel ran before, and of plain loads after a kernel with evict_last. `same` is the same tensor each
// time; `demoted` the same after applypriority.L2::evict_normal of all its lines; `reset` after
// cudaCtxResetPersistingL2Cache(); `fresh` another tensor each time.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int threads = 512, blocks = 264, samples = 40;
constexpr std::size_t line = 128, all_bytes = std::size_t(1) << 30;

void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(result));
  std::exit(1);
}

template <bool last>
__device__ uint4 load(const uint4* address) {
  uint4 v;
  if constexpr (last) {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address), "l"(policy));
  } else {
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
  }
  return v;
}

template <bool last>
__global__ void read(const void* in, std::size_t bytes, unsigned* sink) {
  const uint4* vectors = static_cast<const uint4*>(in);
  unsigned folded = 0;
#pragma unroll 4
  for (std::size_t i = std::size_t(blockIdx.x) * threads + threadIdx.x; i < bytes / sizeof(uint4);
       i += std::size_t(gridDim.x) * threads) {
    const uint4 v = load<last>(vectors + i);
    folded ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (folded == 0x9e3779b9) *sink = folded;  // so that the loads stay
}

__global__ void demote(const std::byte* data, std::size_t bytes) {
  const std::size_t offset = (std::size_t(blockIdx.x) * threads + threadIdx.x) * line;
  if (offset < bytes)
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(data + offset) : "memory");
}

/// Keeps the stream busy until what is to be timed has been enqueued.
__global__ void delay() {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < 60'000);
}

enum class Before { same, demoted, reset, fresh };
constexpr const char* names[] = {"same", "demoted", "reset", "fresh"};

class Probe {
 public:
  Probe() {
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0));
    flush_bytes_ = 2 * std::size_t(device.l2CacheSize);
    check(cudaMalloc(&flush_, flush_bytes_));
    check(cudaMemset(flush_, 0, flush_bytes_));
    check(cudaMalloc(&data_, all_bytes));
    check(cudaMemset(data_, 0, all_bytes));
    check(cudaMalloc(&sink_, sizeof *sink_));
    check(cudaEventCreate(&start_));
    check(cudaEventCreate(&end_));
  }

  /// \param first, timed  whether they load with evict_last
  float median_us(std::size_t bytes, Before before, bool first, bool timed) {
    demote<<<(all_bytes / line + threads - 1) / threads, threads>>>(data_, all_bytes);  // what others left
    std::vector<float> times;
    for (int i = 0; i <= samples; ++i) {
      const std::size_t place =
          before == Before::fresh ? std::size_t(i) * 7 % (all_bytes / bytes) * bytes : 0;
      if (before != Before::fresh) {
        flush(bytes, before);
        run(first, place, bytes);
      }
      flush(bytes, before);
      delay<<<1, 1>>>();
      check(cudaEventRecord(start_));
      run(timed, place, bytes);
      check(cudaEventRecord(end_));
      check(cudaDeviceSynchronize());
      float ms;
      check(cudaEventElapsedTime(&ms, start_, end_));
      if (i > 0) times.push_back(1000 * ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  void run(bool last, std::size_t place, std::size_t bytes) {
    (last ? read<true> : read<false>)<<<blocks, threads>>>(data_ + place, bytes, sink_);
  }
  void flush(std::size_t bytes, Before before) {
    if (before == Before::demoted) demote<<<(bytes / line + threads - 1) / threads, threads>>>(data_, bytes);
    if (before == Before::reset) check(cudaCtxResetPersistingL2Cache());
    read<false><<<blocks, threads>>>(flush_, flush_bytes_, sink_);
  }

  std::size_t flush_bytes_ = 0;
  std::byte *flush_ = nullptr, *data_ = nullptr;
  unsigned* sink_ = nullptr;
  cudaEvent_t start_{}, end_{};
};

}  // namespace

int main() {
  Probe probe;
  std::printf("%4s  %-8s %12s %12s %18s\n", "MiB", "tensor", "plain, plain", "last, last",
              "last, then plain");
  for (const std::size_t mib : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512})
    for (const Before before : {Before::same, Before::demoted, Before::reset, Before::fresh}) {
      const std::size_t bytes = mib << 20;
      const float plain = probe.median_us(bytes, before, false, false);
      const float last = probe.median_us(bytes, before, true, true);
      const float after_last = probe.median_us(bytes, before, true, false);
      std::printf("%4zu  %-8s %12.2f %12.2f %18.2f\n", mib, names[int(before)], plain, last, after_last);
    }
}
