// This program computes cross entropy with label smoothing and z-loss. It computes the gradient in two ways: in
// one pass with the loss, and, as autograd does, from the logsumexp that the loss saved. Without a GPU, pass
// `--device host`.
#include <algorithm>
#include <ce/ce.hpp>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

namespace {

constexpr std::int64_t rows = 32, columns = 500;

bool run_example(const ce::ContextOptions& options) {
  ce::Context context(options);
  std::vector<float> logits(rows * columns), at_once(logits.size()), afterwards(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 3.f * std::sin(static_cast<float>(i));
  const std::vector<std::int64_t> targets(rows, 7);
  ce::Memory x = context.allocate(logits.size() * sizeof(float)), gradient = context.allocate(x.bytes());
  ce::Memory t = context.allocate(rows * sizeof(std::int64_t)), lse = context.allocate(rows * sizeof(float));
  ce::Memory loss = context.allocate(sizeof(float));
  x.upload(logits.data());
  t.upload(targets.data());
  const ce::Tensor x_view{x.data(), ce::DType::f32, rows, columns}, t_view{t.data(), ce::DType::i64, rows};
  const ce::Tensor lse_view{lse.data(), ce::DType::f32, rows};

  const ce::CrossEntropy forward{.label_smoothing = 0.1f, .z_loss = 1e-4f};
  context.run(forward, {.logits = x_view,
                        .target = t_view,
                        .loss = {loss.data(), ce::DType::f32, 1},
                        .grad = {gradient.data(), ce::DType::f32, rows, columns},
                        .lse = lse_view});
  context.run(
      forward.backward(),
      {.logits = x_view, .target = t_view, .lse = lse_view, .grad = x_view});  // overwrites the logits
  context.check();  // waits, and throws if a target is not a class

  float value = 0, difference = 0;
  loss.download(&value);
  gradient.download(at_once.data());
  x.download(afterwards.data());
  for (std::size_t i = 0; i < logits.size(); ++i)
    difference = std::max(difference, std::abs(at_once[i] - afterwards[i]));
  std::printf("loss %.5f; the two gradients differ by %.1e at most\n", static_cast<double>(value),
              static_cast<double>(difference));
  return std::isfinite(value) && difference < 1e-7f;
}

}  // namespace

int main(int count, char** words) try {
  ce::ContextOptions options;
  for (int i = 1; i + 1 < count; ++i)
    if (std::string_view(words[i]) == "--device") options.device = words[i + 1];
  return run_example(options) ? 0 : 1;
} catch (const ce::Error& error) {
  std::fprintf(stderr, "%s: %s\n", ce::name(error.kind()).data(), error.what());
  return 1;
}
