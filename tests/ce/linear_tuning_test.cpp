// The first call of LinearCrossEntropy, which lets the algorithms of its products race on the memory of the call.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "ce/linear_losses.hpp"
#include "runtime/host/device.hpp"
#include "runtime/host/matmul.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/tuner/device_decorator.hpp"

namespace ce::test {
namespace {

/// The host's loops under several names.
class ManyLoops : public runtime::MatmulLibrary {
 public:
  std::string name() const override { return "many loops"; }
  std::vector<runtime::MatmulAlgorithm> algorithms(const runtime::Matmul&, std::int64_t, int most) override {
    std::vector<runtime::MatmulAlgorithm> all{{.text = "first"}, {.text = "second"}, {.text = "third"}};
    all.resize(std::min(all.size(), static_cast<std::size_t>(most)));
    return all;
  }
  void launch(const runtime::Matmul& matmul, const runtime::MatmulAlgorithm& algorithm,
              const runtime::MatmulOperands& operands, Stream stream) override {
    ++launches[algorithm.text];
    loops_.launch(matmul, algorithm, operands, stream);
  }
  [[nodiscard]] int all_launches() const {
    int sum = 0;
    for (const auto& [text, count] : launches) sum += count;
    return sum;
  }

  std::map<std::string, int> launches;

 private:
  runtime::host::MatmulLoops loops_;
};

class RacingDevice : public DeviceDecorator {
 public:
  RacingDevice() : DeviceDecorator(runtime::open_host_device()) {}
  runtime::MatmulLibrary& matmuls() override { return library; }
  ManyLoops library;
};

class LinearTuning : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    context = std::make_unique<Context>(options(Policy::lookup));
    std::mt19937_64 random(4);
    const auto add = [&](DType dtype, std::int64_t rows, std::int64_t columns) {
      matrices.emplace_back(*context, dtype, rows, columns).set(random_values(rows * columns, random));
    };
    add(bf16, tokens, hidden);
    add(bf16, classes, hidden);
    matrices.emplace_back(*context, DType::i64, tokens, 1);
    std::vector<std::int64_t> targets(tokens);
    for (std::int64_t& target : targets) target = static_cast<std::int64_t>(random() % classes);
    matrices.back().set_indices(targets);
    add(DType::f32, 1, 1);
    add(bf16, tokens, hidden);
    add(bf16, classes, hidden);
    tensors = {.hidden = matrices[0].tensor(),
               .weight = matrices[1].tensor(),
               .target = matrices[2].tensor(),
               .loss = matrices[3].tensor(),
               .hidden_grad = matrices[4].tensor(),
               .weight_grad = matrices[5].tensor()};
  }
  std::vector<std::vector<std::byte>> run(LinearLosses& losses, const LinearCrossEntropy& operation) {
    losses.run(*context, operation, tensors, nullptr);
    return {matrices[3].bytes(), matrices[4].bytes(), matrices[5].bytes()};
  }

  static constexpr std::int64_t tokens = 21, hidden = 12, classes = 40;
  std::unique_ptr<Context> context;
  std::vector<Matrix> matrices;
  LinearCrossEntropy::Tensors tensors;
  RacingDevice device;
  cache::Cache cache = cache::Cache::in_memory();
};

TEST_F(LinearTuning, ARaceChangesNothingThatTheCallWrites) {
  for (const LinearCrossEntropy& operation :
       {LinearCrossEntropy{}, LinearCrossEntropy{.chunk_tokens = 8},
        LinearCrossEntropy{.chunk_tokens = 8, .logits_dtype = DType::f32},
        LinearCrossEntropy{.chunk_tokens = 8, .accumulation = bf16}}) {
    LinearLosses plain(device, cache, false, 0);
    const auto expected = run(plain, operation);
    cache::Cache empty = cache::Cache::in_memory();
    device.library.launches.clear();
    LinearLosses racing(device, empty, true, 0);
    EXPECT_EQ(run(racing, operation), expected);
    EXPECT_GT(device.library.launches["third"], 0) << "no race";
  }
}

TEST_F(LinearTuning, ProductsRaceOnce) {
  const LinearCrossEntropy operation{.chunk_tokens = 8};
  LinearLosses losses(device, cache, true, 0);
  run(losses, operation);
  const auto launches_of_a_call = [&](LinearLosses& own) {
    device.library.launches.clear();
    run(own, operation);
    return device.library.all_launches();
  };
  EXPECT_EQ(launches_of_a_call(losses), 9) << "three products for each of three chunks";
  LinearLosses later(device, cache, true, 0);
  EXPECT_EQ(launches_of_a_call(later), 9) << "the database knows the winners";
}

}  // namespace
}  // namespace ce::test
