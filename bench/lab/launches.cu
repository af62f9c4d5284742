// What is enqueued behind a short kernel, and which of four launches of its stream it is, moves its time: by how much?
//
//     nvcc -O3 -std=c++17 -arch=sm_90 -o launches bench/lab/launches.cu && ./launches
//
// A softmax of rows in registers is timed with events, after L2 was filled with other data; empty kernels before that
// make it the first, second, third or fourth launch of a group of four, counted from the stream's first launch. Each
// sample is either waited for before anything else is enqueued, or is one of four that are enqueued together, of which
// the first is not counted. Printed are medians and, in parentheses, the tenth and the ninetieth of a hundred samples,
// in microseconds; then the same without L2 being filled.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "softmax_rows.cuh"

namespace {

constexpr int group = 4, samples = 240, together = 4;
constexpr std::size_t matrix = std::size_t{32} << 20, flush_bytes = std::size_t{128} << 20;
constexpr unsigned long long delay_ns = 200'000;

__global__ void empty() {}

/// Keeps the stream busy while the host enqueues what is behind it.
__global__ void delay(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    __nanosleep(200);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

__global__ void read(const float4* from, std::size_t count, float* sum) {
  float own = 0;
  const std::size_t step = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    own += from[i].x + from[i].y + from[i].z + from[i].w;
  if (own != 0) *sum = own;  // never, of zeros
}

class Stream {
 public:
  Stream() {
    check(cudaMalloc(&in_, matrix));
    check(cudaMalloc(&out_, matrix));
    check(cudaMalloc(&other_, flush_bytes));
    check(cudaMalloc(&sum_, sizeof(float)));
    check(cudaMemset(in_, 0, matrix));
    check(cudaMemset(other_, 0, flush_bytes));
    check(cudaDeviceSynchronize());
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : begins_) check(cudaEventCreate(&event));
    for (cudaEvent_t& event : ends_) check(cudaEventCreate(&event));
  }

  /// Sorted, of a kernel that is that launch of its group. \param enqueued  so many samples at once
  std::vector<double> time(const Shape& shape, int place, int enqueued, bool fills) {
    std::vector<double> taken;
    while (taken.size() < samples) {
      delay<<<1, 1, 0, stream_>>>(delay_ns), ++launches_;
      for (int i = 0; i < enqueued; ++i) {
        while ((launches_ + fills) % group != place) empty<<<1, 1, 0, stream_>>>(), ++launches_;
        if (fills) read<<<528, 256, 0, stream_>>>(other_, flush_bytes / sizeof(float4), sum_), ++launches_;
        check(cudaEventRecord(begins_[i], stream_));
        launch(shape);
        check(cudaEventRecord(ends_[i], stream_));
      }
      check(cudaStreamSynchronize(stream_));
      for (int i = enqueued == 1 ? 0 : 1; i < enqueued; ++i) {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begins_[i], ends_[i]));
        taken.push_back(1000. * ms);
      }
    }
    std::sort(taken.begin(), taken.end());
    return taken;
  }

 private:
  void launch(const Shape& shape) {
    const int vectors = shape.columns / 4;
    if (vectors <= 256)
      softmax<1><<<shape.rows, vectors, 0, stream_>>>(in_, out_);
    else
      softmax<4><<<shape.rows, vectors / 4, 0, stream_>>>(in_, out_);
    ++launches_;
    check(cudaGetLastError());
  }

  float4 *in_ = nullptr, *out_ = nullptr, *other_ = nullptr;
  float* sum_ = nullptr;
  cudaStream_t stream_;
  std::array<cudaEvent_t, together> begins_, ends_;
  int launches_ = 0;
};

}  // namespace

int main() {
  Stream stream;
  for (const bool fills : {true, false}) {
    std::printf("%s\n", fills ? "after L2 was filled" : "L2 as it is");
    for (const Shape& shape : {Shape{256, 128}, Shape{256, 4096}, Shape{1024, 8192}})
      for (int place = 0; place < group; ++place) {
        std::printf("%4d x %4d, launch %d of %d:", shape.rows, shape.columns, place + 1, group);
        for (const int enqueued : {1, together}) {
          const std::vector<double> times = stream.time(shape, place, enqueued, fills);
          std::printf("   %s %6.2f (%.2f to %.2f)", enqueued == 1 ? "alone" : "together",
                      times[times.size() / 2], times[times.size() / 10], times[times.size() * 9 / 10]);
        }
        std::printf("\n");
      }
  }
}
