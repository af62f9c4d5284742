#pragma once
/// \file
/// A softmax of rows in registers, for programs that ask what else moves the time of a short kernel.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

inline void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(result));
  std::exit(1);
}

template <class Join>
__device__ float join_block(float value, Join join) {
  __shared__ float of_warps[32];
  for (int apart = 16; apart > 0; apart /= 2) value = join(value, __shfl_xor_sync(~0u, value, apart));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
  for (int warp = 1; warp < int(blockDim.x) / 32; ++warp) value = join(value, of_warps[warp]);
  return value;
}

/// A row of as many vectors a thread, in f32.
template <int vectors>
__global__ void softmax(const float4* in, float4* out) {
  const std::size_t first = std::size_t(blockIdx.x) * blockDim.x * vectors + threadIdx.x;
  float4 row[vectors];
  for (int i = 0; i < vectors; ++i) row[i] = in[first + i * blockDim.x];
  float largest = row[0].x, sum = 0;
  for (const float4& v : row) largest = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
  largest = join_block(largest, [](float a, float b) { return fmaxf(a, b); });
  for (float4& v : row) {
    v = {__expf(v.x - largest), __expf(v.y - largest), __expf(v.z - largest), __expf(v.w - largest)};
    sum += v.x + v.y + v.z + v.w;
  }
  const float factor = 1 / join_block(sum, [](float a, float b) { return a + b; });
  for (int i = 0; i < vectors; ++i)
    out[first + i * blockDim.x] = {row[i].x * factor, row[i].y * factor, row[i].z * factor,
                                   row[i].w * factor};
}

struct Shape {
  int rows, columns;
};
