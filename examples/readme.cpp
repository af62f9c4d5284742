#include <ce/ce.hpp>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() try {
  constexpr std::int64_t rows = 64, columns = 1000;
  ce::Context context;  // uses the first GPU, or the CPU if there is none
  ce::Memory logits = context.allocate(rows * columns * sizeof(float));
  ce::Memory target = context.allocate(rows * sizeof(std::int64_t));
  ce::Memory loss = context.allocate(sizeof(float));
  logits.upload(std::vector<float>(rows * columns, 1.f).data());
  target.upload(std::vector<std::int64_t>(rows, 7).data());

  // One pass computes the mean loss and overwrites the logits with its gradient.
  const ce::Tensor x{logits.data(), ce::DType::f32, rows, columns};
  const ce::Tensor t{target.data(), ce::DType::i64, rows}, l{loss.data(), ce::DType::f32, 1};
  const ce::Choice& choice =
      context.run(ce::CrossEntropy{}, {.logits = x, .target = t, .loss = l, .grad = x});
  context.check();  // waits, and throws if a target is not a class

  float value = 0;
  loss.download(&value);
  std::printf("loss %.4f, by %s on %s\n", static_cast<double>(value), choice.config.c_str(),
              context.device_name().c_str());
} catch (const ce::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
