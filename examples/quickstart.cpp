// This program computes softmax and cross entropy on the GPU, or with `--device host` on the host device, and
// checks the results against plain f64 code. If your program has its own device memory and stream, you need only
// the two lines with run().
#include <algorithm>
#include <ce/ce.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

namespace {

constexpr std::int64_t rows = 64, columns = 1000;

std::vector<float> random_logits(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.f, 2.f);
  std::vector<float> logits(rows * columns);
  for (float& x : logits) x = normal(random);
  return logits;
}

/// The largest difference between the row-wise softmax in f64, less `subtract` at the row's target, times
/// `scale`.
double largest_error(const std::vector<float>& logits, const std::vector<std::int64_t>& targets,
                     double subtract, double scale, const std::vector<float>& got) {
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* x = logits.data() + row * columns;
    double sum = 0;
    for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(static_cast<double>(x[i]));
    for (std::int64_t i = 0; i < columns; ++i) {
      const double p = std::exp(static_cast<double>(x[i])) / sum;
      const double want = (p - (i == targets[static_cast<std::size_t>(row)] ? subtract : 0.)) * scale;
      worst = std::max(
          worst, std::abs(want - static_cast<double>(got[static_cast<std::size_t>(row * columns + i)])));
    }
  }
  return worst;
}

int run_example(const ce::ContextOptions& options) {
  ce::Context context(options);
  const std::vector<float> logits = random_logits(1);
  std::vector<std::int64_t> targets(rows);
  for (std::int64_t row = 0; row < rows; ++row) targets[static_cast<std::size_t>(row)] = row * 7 % columns;

  ce::Memory x_memory = context.allocate(logits.size() * sizeof(float));
  ce::Memory y_memory = context.allocate(logits.size() * sizeof(float));
  ce::Memory target_memory = context.allocate(targets.size() * sizeof(std::int64_t));
  ce::Memory loss_memory = context.allocate(sizeof(float));
  x_memory.upload(logits.data());
  target_memory.upload(targets.data());

  const ce::Tensor x{x_memory.data(), ce::DType::f32, rows, columns};
  const ce::Tensor y{y_memory.data(), ce::DType::f32, rows, columns};
  const ce::Tensor target{target_memory.data(), ce::DType::i64, rows};
  const ce::Tensor loss{loss_memory.data(), ce::DType::f32, 1};

  std::vector<float> result(logits.size());
  const ce::Choice& softmax = context.run(ce::Softmax{}, {.input = x, .output = y});
  context.synchronize();
  y_memory.download(result.data());
  const double softmax_error = largest_error(logits, targets, 0., 1., result);
  std::printf("softmax        %-55s (%s)  largest error %.1e\n", softmax.config.c_str(),
              ce::name(softmax.origin).data(), softmax_error);

  // One call computes the mean loss and overwrites the logits with its gradient.
  const ce::Choice& cross_entropy = context.run(ce::CrossEntropy{.reduction = ce::Reduction::mean},
                                                {.logits = x, .target = target, .loss = loss, .grad = x});
  context.check();
  x_memory.download(result.data());
  const double gradient_error = largest_error(logits, targets, 1., 1. / rows, result);
  float loss_value = 0;
  loss_memory.download(&loss_value);
  std::printf("cross entropy  %-55s (%s)  largest error %.1e, loss %.4f\n", cross_entropy.config.c_str(),
              ce::name(cross_entropy.origin).data(), gradient_error, static_cast<double>(loss_value));

  const bool right = softmax_error < 1e-6 && gradient_error < 1e-7;
  std::printf("on %s: %s; %d kernels compiled\n", context.device_name().c_str(), right ? "right" : "WRONG",
              context.compiled());
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  ce::ContextOptions options;
  for (int i = 1; i + 1 < count; ++i)
    if (std::string_view(words[i]) == "--device") options.device = words[i + 1];
  try {
    return run_example(options);
  } catch (const ce::Error& error) {
    std::fprintf(stderr, "%s: %s\n", ce::name(error.kind()).data(), error.what());
    return 1;
  }
}
