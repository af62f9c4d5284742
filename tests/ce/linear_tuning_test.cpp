// The first call of LinearCrossEntropy, which lets the algorithms of its products race on the memory of the call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include "ce/linear_losses.hpp"
#include "ce/log.hpp"
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
    if (doubles_f32 && matmul.output == DType::f32)
      for (std::int64_t i = 0; i < matmul.n; ++i) static_cast<float*>(operands.d)[i] *= 2;
  }
  [[nodiscard]] int all_launches() const {
    int sum = 0;
    for (const auto& [text, count] : launches) sum += count;
    return sum;
  }

  std::map<std::string, int> launches;
  bool doubles_f32 = false;  ///< a library that is wrong

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

  /// Without gradients, of rows that begin at 16 bytes.
  [[nodiscard]] LinearCrossEntropy::Tensors forward_tensors(std::int64_t width = 16) {
    std::mt19937_64 random(6);
    LinearCrossEntropy::Tensors forward = tensors;
    for (const auto& [rows, tensor] :
         {std::pair{tokens, &forward.hidden}, std::pair{classes, &forward.weight}}) {
      Matrix& matrix = matrices.emplace_back(*context, bf16, rows, width);
      matrix.set(random_values(rows * width, random));
      *tensor = matrix.tensor();
    }
    forward.hidden_grad = forward.weight_grad = {};
    return forward;
  }
  [[nodiscard]] double loss_of(LinearLosses& losses, const LinearCrossEntropy& operation,
                               const LinearCrossEntropy::Tensors& forward) {
    losses.run(*context, operation, forward, nullptr);
    return matrices[3].values().front();
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

TEST_F(LinearTuning, TilesOfTheLossAloneRaceOnceAndGiveTheSameLoss) {
  const LinearCrossEntropy::Tensors forward = forward_tensors();
  LinearLosses plain(device, cache, false, 0);
  const double chunked = loss_of(plain, {.chunk_tokens = 8}, forward), expected = loss_of(plain, {}, forward);
  EXPECT_NEAR(expected, chunked, 0.01) << "logits that were rounded";
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  LinearLosses racing(device, cache, true, 0);
  EXPECT_NEAR(loss_of(racing, {}, forward), expected, 1e-6);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("tuned linear_statistics bf16"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("the best of 3"), std::string::npos) << said[0];
  EXPECT_NEAR(loss_of(racing, {}, forward), expected, 1e-6);
  LinearLosses later(device, cache, true, 0);
  EXPECT_NEAR(loss_of(later, {}, forward), expected, 1e-6);
  set_log_sink({});
  EXPECT_EQ(said.size(), 1U) << "the database knows the winner";
}

TEST_F(LinearTuning, TilesRaceForEachHiddenSize) {
  const LinearCrossEntropy::Tensors narrow = forward_tensors(16), wide = forward_tensors(32);
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  LinearLosses racing(device, cache, true, 0);
  for (const LinearCrossEntropy::Tensors* forward : {&narrow, &wide, &narrow})
    static_cast<void>(loss_of(racing, {}, *forward));
  set_log_sink({});
  ASSERT_EQ(said.size(), 2U);
  EXPECT_NE(said[0].find("hidden=16"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("hidden=32"), std::string::npos) << said[1];
}

TEST_F(LinearTuning, WhereAllTilesAreWrongLogitsAreMade) {
  const LinearCrossEntropy::Tensors forward = forward_tensors();
  LinearLosses plain(device, cache, false, 0);
  const double expected = loss_of(plain, {.chunk_tokens = tokens}, forward);
  device.library.doubles_f32 = true;  // which they are compared with
  LinearLosses racing(device, cache, true, 0);
  const std::int64_t before = racing.schedule({}, forward).workspace_bytes;
  EXPECT_EQ(loss_of(racing, {}, forward), expected);
  EXPECT_EQ(loss_of(racing, {}, forward), expected);
  EXPECT_GT(racing.schedule({}, forward).workspace_bytes, before);
}

TEST_F(LinearTuning, AWorkspaceForStatisticsIsNoLimitWhereAllTilesAreWrong) {
  LinearCrossEntropy::Tensors forward = forward_tensors();
  LinearLosses plain(device, cache, false, 0);
  const double expected = loss_of(plain, {.chunk_tokens = tokens}, forward);
  device.library.doubles_f32 = true;
  LinearLosses racing(device, cache, true, 0);
  const std::int64_t bytes = racing.schedule({}, forward).workspace_bytes;
  Matrix& workspace = matrices.emplace_back(*context, DType::u8, bytes + 256, 1);
  forward.workspace = workspace.tensor();
  EXPECT_EQ(loss_of(racing, {}, forward), expected);
}

TEST_F(LinearTuning, ARowWhoseScaleIsNoneMakesNoTileWrong) {
  LinearCrossEntropy::Tensors forward = forward_tensors();
  std::vector<double> scales(tokens, 1);
  scales[1] = 0;
  matrices.emplace_back(*context, DType::f32, tokens, 1).set(scales);
  forward.row_scale = matrices.back().tensor();
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  LinearLosses racing(device, cache, true, 0);
  EXPECT_TRUE(std::isnan(loss_of(racing, {}, forward)));
  set_log_sink({});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("tuned linear_statistics"), std::string::npos) << said[0];
}

/// With as many multiprocessors as an H100, whatever the processor.
class ManyMultiprocessors : public DeviceDecorator {
 public:
  ManyMultiprocessors() : DeviceDecorator(runtime::open_host_device()), model_(DeviceDecorator::model()) {
    model_.multiprocessors = 132;
  }
  const runtime::Model& model() const override { return model_; }

 private:
  runtime::Model model_;
};

TEST_F(LinearTuning, AWorkspaceHoldsTheStatisticsOfEachWay) {
  constexpr std::int64_t many_classes = 2048, least_words = 3;
  ManyMultiprocessors many;
  LinearCrossEntropy::Tensors forward = forward_tensors();
  const Matrix weight(*context, bf16, many_classes, forward.hidden.columns);
  forward.weight = weight.tensor();
  LinearLosses losses(many, cache, false, 0);
  const std::int64_t bytes = losses.schedule({}, forward).workspace_bytes;
  int most_splits = 0;
  for (const LinearWay& way : LinearForward::ways(many, tokens, many_classes)) {
    EXPECT_GE(bytes, way.schedule.most_splits() * tokens * least_words * 4) << way.text();
    most_splits = std::max(most_splits, way.schedule.most_splits());
  }
  EXPECT_GT(most_splits, 4);
}

TEST_F(LinearTuning, BandsWithOtherSplitsThanTheirNeighboursLeaveNothingOutAndNothingUnwritten) {
  constexpr std::int64_t rows = 1792, many_classes = 4300, width = 8;  // seven rows of tiles: three and four
  ManyMultiprocessors many;
  const ProductSchedule schedule = LinearForward::ways(many, rows, many_classes).front().schedule;
  ASSERT_NE(schedule.splits_of(0), schedule.splits_of(1));
  std::mt19937_64 random(8);
  Matrix hidden_states(*context, bf16, rows, width), weight(*context, bf16, many_classes, width),
      target(*context, DType::i64, rows, 1), loss(*context, DType::f32, rows, 1),
      entropy(*context, DType::f32, rows, 1), argmax(*context, DType::i64, rows, 1);
  hidden_states.set(random_values(rows * width, random));
  weight.set(random_values(many_classes * width, random));
  std::vector<std::int64_t> targets(rows);
  for (std::int64_t& one : targets) one = static_cast<std::int64_t>(random() % many_classes);
  target.set_indices(targets);
  LinearLosses losses(many, cache, false, 0);
  const auto made = [&](std::int64_t chunk) {
    losses.run(*context,
               {.cross_entropy = {.reduction = Reduction::none, .label_smoothing = 0.1F},
                .chunk_tokens = chunk,
                .logits_dtype = DType::f32},
               {.hidden = hidden_states.tensor(),
                .weight = weight.tensor(),
                .target = target.tensor(),
                .loss = loss.tensor(),
                .argmax = argmax.tensor(),
                .entropy = entropy.tensor()},
               nullptr);
    std::vector<std::vector<double>> all{loss.values(), entropy.values(), argmax.values()};
    return all;
  };
  const auto ours = made(0), chunked = made(rows);
  for (std::size_t output = 0; output < ours.size(); ++output)
    for (std::size_t row = 0; row < ours[output].size(); ++row)
      ASSERT_NEAR(ours[output][row], chunked[output][row], 1e-3) << output << ", row " << row;
}

TEST(LinearWays, HaveNamesThatFitAnyNumberOfTokens) {
  const ManyMultiprocessors device;
  const std::vector<LinearWay> few = LinearForward::ways(device, 1100, 32000),
                               many = LinearForward::ways(device, 2048, 32000);
  ASSERT_EQ(few.size(), many.size());
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].text(), many[i].text());
}

TEST(LinearWays, OfAnH200KeepAllOfItsClustersBusy) {
  const ManyMultiprocessors device;
  for (const std::int64_t tokens : {4096, 8192, 16384}) {
    double least = 1e30, tiles = 0;
    for (const LinearWay& way : LinearForward::ways(device, tokens, 128256)) {
      if (way.tile.columns != 256) continue;
      const ProductSchedule& schedule = way.schedule;
      std::vector<std::int64_t> made(static_cast<std::size_t>(schedule.clusters));
      for (std::size_t cluster = 0; cluster < made.size(); ++cluster)
        for (std::int64_t band = 0; band < schedule.bands(); ++band) {
          const auto part = schedule.part_of(static_cast<std::int64_t>(cluster), band);
          if (!part.is_none())
            for (std::int64_t along = part.first_column; along < schedule.column_tiles();
                 along += part.splits)
              ++made[cluster];
        }
      tiles = static_cast<double>(schedule.row_tiles() * schedule.column_tiles()) / schedule.clusters;
      least = std::min(least, static_cast<double>(*std::ranges::max_element(made)));
    }
    EXPECT_LT(least, 1.02 * tiles) << tokens;
  }
}

}  // namespace
}  // namespace ce::test
