// This program uses the CUDA runtime API with its own device memory and stream, and passes them to ce::run().
// It checks that each row of probabilities sums to 1 and each row of the gradient to 0, and it checks the loss.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <ce/ce.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t rows = 1024, columns = 32000;

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}
#define CHECK(call) check(call, #call)

struct FreeDevice {
  void operator()(void* data) const { cudaFree(data); }
};
template <class T>
using DeviceMemory = std::unique_ptr<T, FreeDevice>;

template <class T>
DeviceMemory<T> allocate(std::size_t count) {
  void* data = nullptr;
  CHECK(cudaMalloc(&data, count * sizeof(T)));
  return DeviceMemory<T>(static_cast<T*>(data));
}

class OwnStream {
 public:
  OwnStream() { CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Enqueues a copy on the stream. The vector is pageable memory, so the copy has read it on return.
template <class T>
void upload(const DeviceMemory<T>& to, const std::vector<T>& from, cudaStream_t stream) {
  CHECK(cudaMemcpyAsync(to.get(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
}
template <class T>
std::vector<T> download(const DeviceMemory<T>& from, std::int64_t count, cudaStream_t stream) {
  std::vector<T> to(static_cast<std::size_t>(count));
  CHECK(cudaMemcpyAsync(to.data(), from.get(), to.size() * sizeof(T), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  return to;
}

std::size_t at(std::int64_t row, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

/// The largest distance between a row's sum and its expected value.
double largest_difference(const std::vector<float>& matrix, double sum_of_a_row) {
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < columns; ++i) sum += static_cast<double>(matrix[at(row, i)]);
    const double difference = std::abs(sum - sum_of_a_row);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

/// The mean cross entropy, from the probabilities.
double mean_loss(const std::vector<float>& probabilities, const std::vector<std::int64_t>& target) {
  double sum = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    sum -= std::log(static_cast<double>(probabilities[at(row, target[static_cast<std::size_t>(row)])]));
  return sum / rows;
}

bool run_example() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.f, 2.f);
  std::vector<float> logits(static_cast<std::size_t>(rows * columns));
  for (float& x : logits) x = normal(random);
  std::vector<std::int64_t> target(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) target[static_cast<std::size_t>(row)] = row * 7 % columns;

  const OwnStream stream;
  const auto x = allocate<float>(logits.size()), y = allocate<float>(logits.size()),
             loss = allocate<float>(1);
  const auto t = allocate<std::int64_t>(target.size());
  upload(x, logits, stream);
  upload(t, target, stream);

  const ce::Tensor x_view = ce::tensor(x.get(), rows, columns), y_view = ce::tensor(y.get(), rows, columns);
  const ce::Choice& softmax = ce::run(ce::Softmax{}, {.input = x_view, .output = y_view}, stream);
  // This computes the mean loss, and overwrites the logits with its gradient.
  const ce::Choice& cross_entropy = ce::run(ce::CrossEntropy{},
                                            {.logits = x_view,
                                             .target = ce::tensor(t.get(), rows),
                                             .loss = ce::tensor(loss.get(), 1),
                                             .grad = x_view},
                                            stream);
  ce::default_context().check(stream);  // waits, and throws if a target is not a class

  const std::vector<float> probabilities = download(y, rows * columns, stream);
  const double softmax_error = largest_difference(probabilities, 1.);
  std::printf("softmax        %s (%s), rows sum to 1 within %.1e\n", softmax.config.c_str(),
              ce::name(softmax.origin).data(), softmax_error);
  const double gradient_error = rows * largest_difference(download(x, rows * columns, stream), 0.);
  const double loss_value = static_cast<double>(download(loss, 1, stream).front());
  const double loss_error = std::abs(loss_value - mean_loss(probabilities, target));
  std::printf("cross entropy  %s (%s), loss %.5f within %.1e, rows of the gradient sum to 0 within %.1e\n",
              cross_entropy.config.c_str(), ce::name(cross_entropy.origin).data(), loss_value, loss_error,
              gradient_error);
  return softmax_error < 1e-4 && gradient_error < 1e-4 && loss_error < 1e-4;
}

}  // namespace

int main() {
  try {
    const bool right = run_example();
    std::printf("%s\n", right ? "right" : "WRONG");
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
