// Where its tensors lie in memory moves the time of a short kernel: by how much, and how much differs between
// processes besides?
//
//     nvcc -O3 -std=c++17 -arch=sm_90 -o places bench/lab/places.cu && ./places 24
//
// As many processes, one after the other, have 12 copies of two matrices of f32 each. A softmax of rows in registers is
// timed on each copy, four times 15 samples, after L2 was filled with other data. Printed are, in percent of the mean
// time, standard deviations: of what is timed again in the same place, of places of a process, of the first place of
// each process, and of the means of processes over all places; and how far apart the last two are at most.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "softmax_rows.cuh"

namespace {

constexpr int places = 12, visits = 4, samples = 15, warm_up = 2, kernels = 3;
constexpr std::size_t matrix = std::size_t{32} << 20, flush_bytes = std::size_t{256} << 20;

constexpr std::array<Shape, kernels> shapes{{{256, 4096}, {256, 8192}, {64, 16384}}};

__global__ void fill(float4* to, std::size_t count) {
  const std::size_t step = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    to[i] = make_float4(1, 2, 3, 4);
}

void launch(const Shape& shape, const float4* in, float4* out, cudaStream_t stream) {
  constexpr int vectors = 4;  // 16 columns a thread
  softmax<vectors><<<shape.rows, shape.columns / (4 * vectors), 0, stream>>>(in, out);
}

/// The mean of the middle half.
double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t quarter = values.size() / 4;
  return std::accumulate(values.begin() + quarter, values.end() - quarter, 0.) /
         double(values.size() - 2 * quarter);
}

/// Prints a line for each kernel, visit and place, in this order.
void measure() {
  std::byte* memory = nullptr;
  float4* other = nullptr;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  check(cudaMalloc(&memory, 2 * places * matrix));
  check(cudaMalloc(&other, flush_bytes));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  fill<<<1024, 256, 0, stream>>>(reinterpret_cast<float4*>(memory), 2 * places * matrix / sizeof(float4));
  for (const Shape& shape : shapes)
    for (int visit = 0; visit < visits; ++visit)
      for (int place = 0; place < places; ++place) {
        auto* in = reinterpret_cast<float4*>(memory + 2 * place * matrix);
        auto* out = reinterpret_cast<float4*>(memory + (2 * place + 1) * matrix);
        std::vector<double> taken;
        for (int sample = -warm_up; sample < samples; ++sample) {
          fill<<<264, 512, 0, stream>>>(other, flush_bytes / sizeof(float4));
          check(cudaEventRecord(begin, stream));
          launch(shape, in, out, stream);
          check(cudaEventRecord(end, stream));
          check(cudaEventSynchronize(end));
          float ms = 0;
          check(cudaEventElapsedTime(&ms, begin, end));
          if (sample >= 0) taken.push_back(1000. * ms);
        }
        std::printf("%.4f\n", middle(taken));
      }
  check(cudaGetLastError());
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.) / double(values.size());
}

double deviation(const std::vector<double>& values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / double(values.size() - 1));
}

double range(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *most - *least;
}

void summarise(const Shape& shape, const std::vector<std::vector<double>>& processes, std::size_t kernel) {
  std::vector<double> again, of_places, firsts, means;
  for (const std::vector<double>& all : processes) {
    std::vector<double> own(places);
    for (std::size_t place = 0; place < places; ++place) {
      std::vector<double> visited;
      for (std::size_t visit = 0; visit < visits; ++visit)
        visited.push_back(all.at((kernel * visits + visit) * places + place));
      again.push_back(deviation(visited));
      own[place] = mean(visited);
    }
    of_places.push_back(deviation(own));
    firsts.push_back(own.front());
    means.push_back(mean(own));
  }
  const double us = mean(means);
  std::printf(
      "%4d x %5d  %5.2f us  again %.2f  places %.2f  first places %.2f, %.1f apart  processes %.2f, %.1f "
      "apart\n",
      shape.rows, shape.columns, us, 100 * mean(again) / us, 100 * mean(of_places) / us,
      100 * deviation(firsts) / us, 100 * range(firsts) / us, 100 * deviation(means) / us,
      100 * range(means) / us);
}

std::vector<double> of_a_process(const std::string& program) {
  std::vector<double> all;
  FILE* pipe = popen(("'" + program + "'").c_str(), "r");
  if (pipe == nullptr) std::exit(1);
  for (double us = 0; std::fscanf(pipe, "%lf", &us) == 1;) all.push_back(us);
  if (pclose(pipe) != 0 || all.size() != std::size_t(kernels * visits * places)) std::exit(1);
  return all;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 1) {
    measure();
    return 0;
  }
  std::vector<std::vector<double>> processes;
  for (int left = std::atoi(arguments[1]); left > 0; --left) processes.push_back(of_a_process(arguments[0]));
  if (processes.size() < 2) {
    std::fprintf(stderr, "usage: places PROCESSES, two at least\n");
    return 2;
  }
  for (std::size_t kernel = 0; kernel < kernels; ++kernel) summarise(shapes[kernel], processes, kernel);
}
