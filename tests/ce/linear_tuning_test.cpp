// The first call of LinearCrossEntropy, which lets the algorithms of its products race on the memory of the call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ce/error.hpp"
#include "ce/linear_chunks.hpp"
#include "ce/linear_losses.hpp"
#include "ce/linear_plan.hpp"
#include "ce/log.hpp"
#include "runtime/host/device.hpp"
#include "runtime/host/matmul.hpp"
#include "runtime/split_matmuls.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/tuner/device_decorator.hpp"
#include "tuner/decide.hpp"

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
  std::vector<runtime::MatmulAlgorithm> neighbours(const runtime::Matmul&, const runtime::MatmulAlgorithm&,
                                                   std::int64_t, int) override {
    return {};
  }
  std::optional<runtime::MatmulAlgorithm> algorithm(const runtime::Matmul& matmul, std::string_view text,
                                                    std::int64_t) override {
    for (const runtime::MatmulAlgorithm& one : algorithms(matmul, 0, 3))
      if (one.text == text) return one;
    return std::nullopt;
  }
  void launch(const runtime::Matmul& matmul, const runtime::MatmulAlgorithm& algorithm,
              const runtime::MatmulOperands& operands, Stream stream) override {
    ++launches[algorithm.text];
    loops_.launch(matmul, algorithm, operands, stream);
    most_rows = std::max(most_rows, matmul.m);
    makes_logits = makes_logits || matmul.b_transposed;
    if (wrong_rows > 0 && matmul.m == wrong_rows && matmul.d_stride == matmul.n)
      std::memset(operands.d, 0, static_cast<std::size_t>(matmul.m * matmul.n * size_of(matmul.output)));
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
  std::int64_t most_rows = 0;
  bool makes_logits = false;
  std::int64_t wrong_rows = 0;  ///< of dense products that come out as zeros

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

TEST_F(LinearTuning, ProductsWhoseSumsHaveNoOrderRaceAnew) {
  const LinearCrossEntropy operation{.chunk_tokens = 8};
  LinearLosses losses(device, cache, true, 0);
  run(losses, operation);
  const std::size_t races = cache.keys().size();
  LinearLosses any_order(device, cache, true, 0, true);
  run(any_order, operation);
  const std::vector<cache::KeySummary> keys = cache.keys();
  EXPECT_EQ(keys.size(), 2 * races);
  EXPECT_EQ(std::ranges::count_if(keys,
                                  [](const cache::KeySummary& one) {
                                    return one.key.problem.find(" any_order ") != std::string::npos;
                                  }),
            static_cast<std::ptrdiff_t>(races));
}

/// Whatever CrossEntropy refuses, before products race on the caller's memory.
TEST_F(LinearTuning, ACallThatIsRefusedHasWrittenNothing) {
  LinearCrossEntropy::Tensors bad = tensors;
  Matrix halves(*context, f16, tokens, 1);
  bad.row_weight = halves.tensor();
  LinearCrossEntropy::Tensors forward = forward_tensors(), of_none = tensors;
  of_none.hidden.rows = of_none.hidden_grad.rows = of_none.target.rows = 0;
  const auto bytes = [&] {
    return std::vector{matrices[3].bytes(), matrices[4].bytes(), matrices[5].bytes()};
  };
  const auto before = bytes();
  const float none = std::numeric_limits<float>::quiet_NaN();
  const LinearCrossEntropy of_no_amount{.cross_entropy = {.z_loss = none}};
  LinearLosses losses(device, cache, true, 0);
  EXPECT_THROW(losses.run(*context, of_no_amount, tensors, nullptr), InvalidArgument);
  EXPECT_THROW(losses.run(*context, {}, bad, nullptr), InvalidArgument);
  EXPECT_THROW(losses.run(*context, of_no_amount, forward, nullptr), InvalidArgument) << "without logits";
  EXPECT_THROW(losses.run(*context, of_no_amount, of_none, nullptr), InvalidArgument) << "without tokens";
  EXPECT_EQ(device.library.all_launches(), 0);
  EXPECT_EQ(bytes(), before);
}

/// Whose library makes products in two, however small they are.
class InTwoDevice : public DeviceDecorator {
 public:
  InTwoDevice() : DeviceDecorator(runtime::open_host_device()) {
    auto behind = std::make_unique<ManyLoops>();
    loops = behind.get();
    library_ = std::make_unique<runtime::SplitMatmuls>(std::move(behind), 0);
  }
  runtime::MatmulLibrary& matmuls() override { return *library_; }
  ManyLoops* loops;

 private:
  std::unique_ptr<runtime::SplitMatmuls> library_;
};

/// A layer in bf16 with both gradients and a bias.
struct SmallLayer {
  SmallLayer(Context& context, std::int64_t hidden, std::int64_t classes) {
    std::mt19937_64 random(9);
    const auto add = [&](DType dtype, std::int64_t rows, std::int64_t columns) {
      matrices.emplace_back(context, dtype, rows, columns).set(random_values(rows * columns, random));
      return matrices.back().tensor();
    };
    tensors.hidden = add(bf16, tokens, hidden);
    tensors.weight = add(bf16, classes, hidden);
    tensors.bias = add(bf16, classes, 1);
    std::vector<std::int64_t> targets(tokens);
    for (std::int64_t& target : targets) target = static_cast<std::int64_t>(random() % classes);
    targets[3] = targets[7] = -100;
    matrices.emplace_back(context, DType::i64, tokens, 1).set_indices(targets);
    tensors.target = matrices.back().tensor();
    tensors.loss = add(DType::f32, 1, 1);
    tensors.hidden_grad = add(bf16, tokens, hidden);
    tensors.weight_grad = add(bf16, classes, hidden);
  }
  [[nodiscard]] std::vector<double> results() const {
    std::vector<double> all;
    for (std::size_t i = 4; i < 7; ++i)
      for (const double value : matrices[i].values()) all.push_back(value);
    return all;
  }

  static constexpr std::int64_t tokens = 21;
  std::vector<Matrix> matrices;
  LinearCrossEntropy::Tensors tensors;
};

bool has_way(const cache::Cache& cache, std::string_view way) {
  return std::ranges::any_of(cache.keys(), [&](const cache::KeySummary& summary) {
    return std::ranges::any_of(cache.measurements(summary.key),
                               [&](const cache::Measurement& one) { return one.config == way; });
  });
}

TEST_F(LinearTuning, InTwoProductsGiveWhatOneDoes) {
  for (const auto& [odd, width] : {std::pair{41, 64}, std::pair{47, 16}})
    for (const LinearCrossEntropy& operation :
         {LinearCrossEntropy{}, LinearCrossEntropy{.chunk_tokens = 8},
          LinearCrossEntropy{.chunk_tokens = 8, .logits_dtype = DType::f32},
          LinearCrossEntropy{.chunk_tokens = 8, .accumulation = bf16},
          LinearCrossEntropy{.chunk_tokens = 8, .valid_tokens = 19}}) {
      SCOPED_TRACE(fmt::format("{} x {}, logits in f32 {}, valid tokens {}", width, odd,
                               operation.logits_dtype.has_value(), operation.valid_tokens.value_or(-1)));
      SmallLayer layer(*context, width, odd);
      LinearLosses in_one(device, cache, false, 0);
      in_one.run(*context, operation, layer.tensors, nullptr);
      const std::vector<double> expected = layer.results();
      InTwoDevice two;
      cache::Cache empty = cache::Cache::in_memory();
      const auto expect_alike = [&](LinearLosses& losses) {
        losses.run(*context, operation, layer.tensors, nullptr);
        const std::vector<double> made = layer.results();
        for (std::size_t i = 0; i < made.size(); ++i)
          ASSERT_NEAR(made[i], expected[i], 0.02 * std::abs(expected[i]) + 1e-3) << i;
        losses.run(*context, operation, layer.tensors, nullptr);
        EXPECT_EQ(layer.results(), made) << "the same bits each time";
      };
      LinearLosses plain(two, empty, false, 0);
      expect_alike(plain);
      EXPECT_EQ(two.loops->launches["first"], two.loops->all_launches());
      LinearLosses racing(two, empty, true, 0);
      expect_alike(racing);
      EXPECT_GT(two.loops->launches["third"], 0) << "no race";
      EXPECT_TRUE(has_way(empty, "third,in_two"));
      two.loops->launches.clear();
      LinearLosses later(two, empty, true, 0);
      expect_alike(later);
      const int chunks = operation.chunk_tokens == 0 ? 1 : 3;
      EXPECT_LE(two.loops->all_launches(), 2 * 6 * chunks) << "the database knows the winners";
    }
}

TEST_F(LinearTuning, RowsOfAnOddVocabularyMayBeApart) {
  constexpr std::int64_t odd = 41, width = 16;
  constexpr Layout apart{.padding = 8};  // rows begin at 16 bytes
  SmallLayer layer(*context, width, odd);
  LinearLosses losses(device, cache, false, 0);
  const LinearCrossEntropy operation{.chunk_tokens = 8};
  losses.run(*context, operation, layer.tensors, nullptr);
  const std::vector<double> expected = layer.matrices[5].values();
  Matrix weight(*context, bf16, odd, width, apart);
  weight.set(layer.matrices[1].values());
  for (const bool of_weight : {false, true}) {
    const Matrix gradient(*context, bf16, SmallLayer::tokens, width, apart);
    LinearCrossEntropy::Tensors own = layer.tensors;
    own.hidden_grad = gradient.tensor();
    if (of_weight) own.weight = weight.tensor();
    losses.run(*context, operation, own, nullptr);
    EXPECT_EQ(gradient.values(), expected) << of_weight;
    EXPECT_TRUE(gradient.frame_is_intact());
  }
}

TEST_F(LinearTuning, SumsOfHiddenGradientsAreInF32WhereTwoProductsMayMakeThem) {
  /// A GPU, as far as schedules are concerned.
  class Gpu : public DeviceDecorator {
   public:
    Gpu() : DeviceDecorator(runtime::open_host_device()), model_(DeviceDecorator::model()) {
      model_.capability = 75;
    }
    const runtime::Model& model() const override { return model_; }

   private:
    runtime::Model model_;
  };
  Gpu gpu;
  const auto bytes = [&](runtime::Device& own, std::int64_t rows, std::int64_t width, std::int64_t many,
                         std::int64_t stride) {
    LinearLosses losses(own, cache, false, 0);
    // Far apart; nobody reads what lies there.
    const auto at = [](std::uintptr_t place) {
      return reinterpret_cast<void*>(place << 40);  // NOLINT(performance-no-int-to-ptr)
    };
    LinearCrossEntropy::Tensors large = tensors;
    large.hidden = {.data = at(1), .dtype = bf16, .rows = rows, .columns = width};
    large.weight = {.data = at(2), .dtype = bf16, .rows = many, .columns = width, .row_stride = stride};
    large.target = {.data = at(3), .dtype = DType::i64, .rows = rows};
    large.hidden_grad = {.data = at(4), .dtype = bf16, .rows = rows, .columns = width};
    large.weight_grad = {};
    return losses.schedule({.chunk_tokens = 64}, large).workspace_bytes;
  };
  const auto sums = [&](runtime::Device& own, std::int64_t rows, std::int64_t width, std::int64_t many,
                        std::int64_t stride) {
    // Logits of both have rows of one length.
    return bytes(own, rows, width, many, stride) - bytes(own, rows, width, many - many % 8, stride);
  };
  constexpr std::int64_t in_f32 = 64 * 2048 * 4;
  EXPECT_EQ(sums(gpu, 4096, 2048, 50257, 2048), in_f32);
  EXPECT_EQ(sums(gpu, 4096, 2048, 50257, 2056), in_f32) << "rows of the weight begin at 16 bytes";
  EXPECT_EQ(sums(gpu, 4096, 2048, 50257, 2049), 0) << "they begin anywhere";
  EXPECT_EQ(sums(gpu, 16, 2048, 1001, 2048), 0) << "too small: one product";
  EXPECT_EQ(sums(device, 64, 2048, 1001, 2048), in_f32) << "the host shows how sums are rounded";
  const auto of_few = [&](std::int64_t many) { return bytes(gpu, 1 << 20, 2048, many, 2048); };
  EXPECT_EQ(of_few(7), of_few(8)) << "fewer classes than a unit are not divided";
  EXPECT_EQ(of_few(9) - of_few(8), in_f32);
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
  EXPECT_NE(said[0].find("the best of 4"), std::string::npos) << said[0];
  EXPECT_NEAR(loss_of(racing, {}, forward), expected, 1e-6);
  LinearLosses later(device, cache, true, 0);
  EXPECT_NEAR(loss_of(later, {}, forward), expected, 1e-6);
  set_log_sink({});
  EXPECT_EQ(said.size(), 1U) << "the database knows the winner";
}

/// The measurements of races with the digests of templates of another time.
cache::Cache with_other_templates(const cache::Cache& cache) {
  cache::Cache other = cache::Cache::in_memory();
  for (const cache::KeySummary& summary : cache.keys())
    for (cache::Measurement measurement : cache.measurements(summary.key)) {
      std::string& maker = measurement.template_digest;
      if (const std::size_t at = maker.find(", templates "); at != std::string::npos)
        maker.replace(at, std::string::npos, ", templates 00000000");
      other.add(measurement);
    }
  return other;
}

TEST_F(LinearTuning, TilesRaceAnewWhereTheirTemplatesAreOthers) {
  const LinearCrossEntropy::Tensors forward = forward_tensors();
  LinearLosses racing(device, cache, true, 0);
  static_cast<void>(loss_of(racing, {}, forward));
  cache::Cache edited = with_other_templates(cache);
  const std::vector<cache::KeySummary> keys = edited.keys();
  const auto race = std::ranges::find_if(keys, [](const cache::KeySummary& summary) {
    return summary.key.problem.starts_with("race linear_statistics");
  });
  ASSERT_NE(race, keys.end());
  EXPECT_TRUE(tuner::decide(cache, race->key));
  EXPECT_FALSE(tuner::decide(edited, race->key)) << "as kernels of other templates";
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  for (const int wanted : {1, 1}) {
    LinearLosses later(device, edited, true, 0);
    static_cast<void>(loss_of(later, {}, forward));
    EXPECT_EQ(std::ranges::count_if(
                  said, [](const std::string& line) { return line.starts_with("tuned linear_statistics"); }),
              wanted);
  }
  set_log_sink({});
  EXPECT_TRUE(tuner::decide(edited, race->key));
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
  for (const LinearWay& way : LinearForward::ways(many.model().multiprocessors, tokens, many_classes)) {
    EXPECT_GE(bytes, way.messages() * tokens * least_words * 4) << way.text();
    most_splits = std::max(most_splits, way.schedule.most_splits());
  }
  EXPECT_GT(most_splits, 4);
}

TEST_F(LinearTuning, BandsWithOtherSplitsThanTheirNeighboursLeaveNothingOutAndNothingUnwritten) {
  constexpr std::int64_t rows = 1792, many_classes = 4300, width = 8;  // seven rows of tiles: three and four
  ManyMultiprocessors many;
  const ProductSchedule schedule =
      LinearForward::ways(many.model().multiprocessors, rows, many_classes).front().schedule;
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

/// A device on which a call takes as long as the test says of the tokens of its chunks.
class PricedDevice : public RacingDevice {
 public:
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    before();
    library.most_rows = 0;
    library.makes_logits = false;
    timed();
    ++timings;
    if (of_exponentials > 0 && !library.makes_logits)
      return std::vector<float>(static_cast<std::size_t>(samples), of_exponentials);
    const auto price = prices.find(library.most_rows);
    return std::vector<float>(static_cast<std::size_t>(samples), price == prices.end() ? 1 : price->second);
  }
  std::map<std::int64_t, float> prices;  ///< of calls by the tokens of their largest product
  float of_exponentials = 0;             ///< of those that make no logits; 0: as of others
  int timings = 0;
};

/// Calls of so many tokens that their chunks race.
class LinearChunkRace : public LinearTuning {
 protected:
  static constexpr std::int64_t many = 2048;
  static constexpr std::size_t place_of_target = 7;

  void SetUp() override {
    LinearTuning::SetUp();
    std::mt19937_64 random(8);
    const auto add = [&](DType dtype, std::int64_t rows, std::int64_t columns) -> Matrix& {
      return matrices.emplace_back(*context, dtype, rows, columns);
    };
    Matrix& x = add(bf16, many, hidden);
    x.set(random_values(many * hidden, random));
    tensors.hidden = x.tensor();
    Matrix& target = add(DType::i64, many, 1);
    std::vector<std::int64_t> targets(many);
    for (std::int64_t& one : targets) one = static_cast<std::int64_t>(random() % classes);
    target.set_indices(targets);
    tensors.target = target.tensor();
    tensors.hidden_grad = add(bf16, many, hidden).tensor();
    device_.prices = {{2048, 8}, {1024, 6}};
  }
  using Bytes = std::vector<std::vector<std::byte>>;
  Bytes results() const { return {matrices[3].bytes(), matrices.back().bytes(), matrices[5].bytes()}; }
  Bytes run(LinearLosses& losses, const LinearCrossEntropy& operation = {}) {
    losses.run(*context, operation, tensors, nullptr);
    return results();
  }
  std::int64_t chunk_of(LinearLosses& losses, const LinearCrossEntropy& operation = {}) {
    return losses.schedule(operation, tensors).chunk_tokens;
  }

  /// Replaces the matrices by others whose rows begin at 16 bytes, as exponentials need.
  void align_rows(bool with_hidden_grad) {
    constexpr std::int64_t wide = 16;
    std::mt19937_64 random(9);
    const auto add = [&](std::int64_t rows) {
      Matrix& matrix = matrices.emplace_back(*context, bf16, rows, wide);
      matrix.set(random_values(rows * wide, random));
      return matrix.tensor();
    };
    tensors.hidden = add(many);
    tensors.weight = add(classes);
    tensors.hidden_grad = with_hidden_grad ? add(many) : Tensor{};
    tensors.weight_grad = add(classes);
  }

  void put_a_target_out_of_range() {
    std::vector<std::int64_t> targets(many, 1);
    targets[1500] = classes + 5;
    matrices[place_of_target].set_indices(targets);
  }

  PricedDevice device_;
};

TEST_F(LinearChunkRace, AContextTakesSumsInNoOrderWhereItOrTheEnvironmentSaysSo) {
  for (const bool by_environment : {false, true}) {
    const Folder folder;
    ContextOptions chosen{.device = "host",
                          .database = folder.path() / "ce.db",
                          .policy = Policy::tune,
                          .nondeterministic_products = !by_environment};
    const ScopedEnvironment allows("CE_NONDETERMINISTIC_PRODUCTS", by_environment ? "1" : nullptr);
    Context own(chosen);
    own.run(LinearCrossEntropy{}, tensors);
    const std::vector<cache::KeySummary> keys = cache::Cache::open(folder.path() / "ce.db").keys();
    EXPECT_EQ(std::ranges::count_if(keys,
                                    [](const cache::KeySummary& one) {
                                      return one.key.problem.starts_with("race chunks ") &&
                                             one.key.problem.ends_with(" any_order");
                                    }),
              1);
    const ScopedEnvironment wrong("CE_NONDETERMINISTIC_PRODUCTS", "yes");
    EXPECT_THROW(Context{chosen}, InvalidArgument);
  }
}

TEST_F(LinearChunkRace, TheFastestIsKeptAndTheDatabaseKnowsIt) {
  LinearLosses losses(device_, cache, true, 0);
  EXPECT_EQ(chunk_of(losses), many) << "nothing is raced yet";
  const std::int64_t before = losses.schedule({}, tensors).workspace_bytes;
  run(losses);
  EXPECT_EQ(chunk_of(losses), 1024);
  EXPECT_LE(losses.schedule({}, tensors).workspace_bytes, before);
  const int timings = device_.timings;
  run(losses);
  EXPECT_EQ(device_.timings, timings) << "the second call races no more";

  device_.prices = {};
  for (const bool tunes : {true, false}) {
    LinearLosses later(device_, cache, tunes, 0);
    EXPECT_EQ(chunk_of(later), 1024) << "the next process starts with the winner";
    run(later);
    EXPECT_EQ(device_.timings, timings);
  }
}

TEST_F(LinearChunkRace, TheResultsAreThoseOfOneCallWithTheWinnersChunks) {
  LinearLosses plain(device_, cache, false, 0), racing(device_, cache, true, 0);
  const Bytes expected = run(plain, {.chunk_tokens = 1024, .accumulation = DType::f32});
  EXPECT_EQ(run(racing), expected) << "the call that raced";
  EXPECT_EQ(run(racing), expected);
}

TEST_F(LinearChunkRace, TheLargestChunksStayWhereNoneGainsHalfAPercent) {
  device_.prices = {{2048, 1000}, {1024, 996}};
  LinearLosses losses(device_, cache, true, 0);
  run(losses);
  EXPECT_EQ(chunk_of(losses), many);
  EXPECT_GT(device_.timings, 0);
}

TEST_F(LinearChunkRace, ExponentialsAreKeptWhereTheyAreFaster) {
  align_rows(true);
  const auto gradients = [&](LinearLosses& losses, const LinearCrossEntropy& operation) {
    losses.run(*context, operation, tensors, nullptr);
    const std::size_t last = matrices.size() - 1;
    return std::vector{matrices[3].bytes(), matrices[last - 1].bytes(), matrices[last].bytes()};
  };
  LinearLosses plain(device_, cache, false, 0);
  const auto of_logits = gradients(plain, {}), of_exponentials = gradients(plain, {.exponentials = true});
  EXPECT_NE(of_logits, of_exponentials) << "they round elsewhere";
  for (const float price : {20.F, 3.F}) {
    SCOPED_TRACE(price);
    device_.of_exponentials = price;
    device_.prices = {{2048, 6}, {1024, 8}};
    cache = cache::Cache::in_memory();
    LinearLosses losses(device_, cache, true, 0);
    EXPECT_FALSE(losses.schedule({}, tensors).exponentials) << "nothing is raced yet";
    EXPECT_EQ(gradients(losses, {}), price < 6 ? of_exponentials : of_logits);
    EXPECT_EQ(losses.schedule({}, tensors).exponentials, price < 6);
    LinearLosses later(device_, cache, false, 0);
    EXPECT_EQ(later.schedule({}, tensors).exponentials, price < 6);
    cache::Cache edited = with_other_templates(cache);
    LinearLosses after_edit(device_, edited, false, 0);
    EXPECT_FALSE(after_edit.schedule({}, tensors).exponentials) << "of templates of another time";
    EXPECT_FALSE(later.schedule({.exponentials = false}, tensors).exponentials);
  }
}

TEST_F(LinearChunkRace, ExponentialsThatAreWantedAndNeverRightGiveWayToLogits) {
  align_rows(false);
  const auto gradient = [&](LinearLosses& losses, bool exponentials) {
    losses.run(*context, {.exponentials = exponentials}, tensors, nullptr);
    return matrices.back().bytes();
  };
  LinearLosses plain(device_, cache, false, 0);
  const auto of_logits = gradient(plain, false);
  ASSERT_NE(gradient(plain, true), of_logits);
  device_.library.doubles_f32 = true;  // which all tiles are compared with
  put_a_target_out_of_range();
  cache = cache::Cache::in_memory();
  LinearLosses losses(device_, cache, true, 0);
  gradient(losses, true);
  EXPECT_EQ(losses.schedule({.exponentials = true}, tensors).chunks, 1) << "no chunks have raced";
  try {
    context->check();
    ADD_FAILURE() << "nothing is told";
  } catch (const TargetOutOfRange& error) {
    EXPECT_EQ(error.count(), 1) << "of the call alone";
  }
}

/// A column whose elements are apart is no vector.
TEST_F(LinearChunkRace, WhatLiesBetweenRowsOfOneElementStaysAsItIs) {
  constexpr std::int64_t stride = 3;
  std::mt19937_64 random(9);
  for (const auto& [rows, tensor] : {std::pair{many, &tensors.hidden}, std::pair{classes, &tensors.weight}}) {
    Matrix& matrix = matrices.emplace_back(*context, bf16, rows, 1);
    matrix.set(random_values(rows, random));
    *tensor = matrix.tensor();
  }
  tensors.weight_grad = {};
  std::vector<std::uint16_t> grad(static_cast<std::size_t>(many * stride), 0xabab);
  const std::size_t bytes = grad.size() * sizeof(std::uint16_t);
  Memory memory = context->allocate(bytes);
  memory.upload(grad.data());
  tensors.hidden_grad = {
      .data = memory.data(), .dtype = bf16, .rows = many, .columns = 1, .row_stride = stride};
  LinearLosses losses(device_, cache, true, 0);
  losses.run(*context, {}, tensors, nullptr);
  EXPECT_EQ(chunk_of(losses), 1024) << "they have raced";
  memory.download(grad.data());
  for (std::size_t i = 0; i < grad.size(); ++i) ASSERT_EQ(grad[i] == 0xabab, i % stride != 0) << i;
}

TEST_F(LinearChunkRace, AWinnerServesOtherNumbersOfTokensAndOtherBudgets) {
  LinearLosses losses(device_, cache, true, 0);
  run(losses);
  tensors.hidden.rows = tensors.target.rows = tensors.hidden_grad.rows = 2000;
  EXPECT_EQ(chunk_of(losses), 1024);
  EXPECT_EQ(chunk_of(losses, {.memory_budget = std::int64_t{1} << 28}), 1024);
  EXPECT_EQ(chunk_of(losses, {.chunk_tokens = 77}), 77);
}

TEST_F(LinearChunkRace, NothingRacesWhereNothingMayBeTuned) {
  LinearLosses losses(device_, cache, false, 0);
  const std::int64_t bytes = losses.schedule({}, tensors).workspace_bytes;
  run(losses);
  EXPECT_EQ(device_.timings, 0);
  EXPECT_EQ(chunk_of(losses), many);
  EXPECT_EQ(losses.schedule({}, tensors).workspace_bytes, bytes);
}

/// A workspace holds all plans of a race before it, and no plan needs more after it.
TEST_F(LinearChunkRace, TakesNoMoreMemoryThanTheScheduleSays) {
  LinearLosses losses(device_, cache, true, 0);
  const std::int64_t bytes = losses.schedule({}, tensors).workspace_bytes;
  std::vector<unsigned char> spoilt(static_cast<std::size_t>(bytes + 256), 0xab);
  Memory framed = context->allocate(spoilt.size());
  framed.upload(spoilt.data());
  tensors.workspace = {framed.data(), DType::u8, bytes};
  run(losses);
  EXPECT_EQ(chunk_of(losses), 1024);
  framed.download(spoilt.data());
  for (std::int64_t i = bytes; i < bytes + 256; ++i) ASSERT_EQ(spoilt[static_cast<std::size_t>(i)], 0xab);
}

/// It serves meanwhile.
TEST_F(LinearChunkRace, ARaceThatWasCutShortIsMadeAgain) {
  LinearLosses losses(device_, cache, true, 0);
  run(losses);
  cache::Cache cut_short = cache::Cache::in_memory();
  for (const cache::KeySummary& summary : cache.keys()) {
    std::vector<cache::Measurement> all = cache.measurements(summary.key);
    for (cache::Measurement& measurement : all)
      if (summary.key.problem.starts_with("race chunks ")) {
        measurement.environment["cut_short"] = "1 s were over";
        measurement.environment["race_seconds"] = "1";
      }
    cut_short.add(all);
  }
  const auto timings_of_a_call = [&](double seconds) {
    LinearLosses later(device_, cut_short, true, seconds);
    EXPECT_EQ(chunk_of(later), 1024);
    const int before = device_.timings;
    run(later);
    return device_.timings - before;
  };
  EXPECT_EQ(timings_of_a_call(1), 0) << "it would come no further";
  EXPECT_GT(timings_of_a_call(0), 0);
  EXPECT_EQ(timings_of_a_call(0), 0) << "now it has come to its end";
}

/// Of two threads that race.
TEST_F(LinearChunkRace, TheFirstResultStays) {
  LinearPlans plans(device_, cache, false);
  const LinearShape shape = shape_of({}, tensors, device_);
  ASSERT_EQ(plans.of(shape)->open.size(), 2U);
  const auto keep = [&](const char* winner) {
    tuner::RaceResult result{.winner = winner, .first = "parts=1", .runners = 2};
    for (const char* name : {"parts=1", "parts=2"})
      result.runs.push_back(
          {.name = name, .samples_us = {name == result.winner ? 1.F : 2.F}, .is_final = true});
    plans.keep(shape, result);
  };
  keep("parts=2");
  keep("parts=1");
  EXPECT_EQ(plans.of(shape)->plan.parts, 2);
  const std::vector<cache::KeySummary> keys = cache.keys();
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(cache.measurements(keys.front().key).size(), 2U) << "the database says the same";
}

TEST_F(LinearChunkRace, TheFirstAndTheLastRowsAreCompared) {
  LinearLosses losses(device_, cache, false, 0);
  run(losses);
  const LinearSamples samples(device_, tensors, nullptr);
  samples.set_back();
  const std::vector<double> gradient = matrices.back().values();
  for (std::int64_t i = 0; i < many * hidden; ++i)
    ASSERT_EQ(std::isnan(gradient[static_cast<std::size_t>(i)]), i < hidden || i >= (many - 1) * hidden) << i;
  EXPECT_TRUE(std::isnan(matrices[3].values().front()));
}

TEST_F(LinearChunkRace, WhatIsNoNumberAgreesWithNoNumber) {
  LinearLosses losses(device_, cache, false, 0);
  run(losses);
  const LinearSamples samples(device_, tensors, nullptr);
  const std::vector<double> right = samples.read();
  EXPECT_TRUE(samples.agree(right, right));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const std::size_t at : {std::size_t{0}, right.size() - 1})
    for (const double none : {infinity, -infinity, std::nan("")}) {
      std::vector<double> other = right;
      other[at] = none;
      EXPECT_FALSE(samples.agree(other, right)) << none;
      EXPECT_FALSE(samples.agree(right, other)) << none;
      EXPECT_TRUE(samples.agree(other, other)) << none;
    }
  std::vector<double> end = right;
  end.back() += 1;
  EXPECT_FALSE(samples.agree(end, right));
}

/// What does not fit beside it does not race, and nothing is refused.
TEST_F(LinearChunkRace, AWorkspaceForTheLargestChunksAloneIsEnough) {
  constexpr std::int64_t wide = 900;  // so that sums take more than half of the logits
  std::mt19937_64 random(5);
  for (const auto& [rows, tensor] : {std::pair{many, &tensors.hidden}, std::pair{classes, &tensors.weight}}) {
    Matrix& matrix = matrices.emplace_back(*context, bf16, rows, wide);
    matrix.set(random_values(rows * wide, random));
    *tensor = matrix.tensor();
  }
  tensors.hidden_grad = {};
  const Matrix weight_grad(*context, bf16, classes, wide);
  tensors.weight_grad = weight_grad.tensor();
  LinearLosses plain(device_, cache, false, 0), losses(device_, cache, true, 0);
  const std::int64_t bytes = plain.schedule({}, tensors).workspace_bytes;
  EXPECT_GT(losses.schedule({}, tensors).workspace_bytes, bytes);
  const Memory memory = context->allocate(static_cast<std::size_t>(bytes));
  tensors.workspace = {memory.data(), DType::u8, bytes};
  plain.run(*context, {}, tensors, nullptr);
  const auto expected = weight_grad.bytes();
  losses.run(*context, {}, tensors, nullptr);
  EXPECT_EQ(weight_grad.bytes(), expected);
  EXPECT_EQ(chunk_of(losses), many);
  tensors.workspace = {};
  losses.run(*context, {}, tensors, nullptr);
  EXPECT_EQ(chunk_of(losses), 1024) << "the first call with memory for a race makes it";
}

TEST_F(LinearChunkRace, ATargetOutOfRangeIsCountedOnce) {
  put_a_target_out_of_range();
  LinearLosses plain(device_, cache, false, 0), losses(device_, cache, true, 0);
  run(plain);
  run(losses);
  EXPECT_EQ(chunk_of(losses), 1024) << "NaN in all results";
  try {
    context->check();
    ADD_FAILURE() << "nothing is told";
  } catch (const TargetOutOfRange& error) {
    EXPECT_EQ(error.count(), 2) << "that of the call before, and one of the call that raced";
  }
}

/// A call that is timed must tune nothing.
TEST_F(LinearChunkRace, NothingRacesBeforeItsKernelsAreTuned) {
  put_a_target_out_of_range();
  Context waiting(options(Policy::background));
  LinearLosses plain(device_, cache, false, 0), losses(device_, cache, true, 0);
  losses.run(waiting, {}, tensors, nullptr);
  EXPECT_EQ(chunk_of(losses), many);
  EXPECT_EQ(losses.schedule({}, tensors).workspace_bytes, plain.schedule({}, tensors).workspace_bytes);
  try {
    waiting.check();
    ADD_FAILURE() << "nothing is told";
  } catch (const TargetOutOfRange& error) {
    EXPECT_EQ(error.count(), 1);
  }
}

TEST_F(LinearChunkRace, ChunksWhoseResultsAreWrongAreLeftOut) {
  device_.library.wrong_rows = 1024;
  LinearLosses losses(device_, cache, true, 0);
  run(losses);
  EXPECT_EQ(chunk_of(losses), many);
}

TEST(LinearWays, HaveNamesThatFitAnyNumberOfTokens) {
  const ManyMultiprocessors device;
  const std::vector<LinearWay> few = LinearForward::ways(device.model().multiprocessors, 1100, 32000),
                               many = LinearForward::ways(device.model().multiprocessors, 2048, 32000);
  ASSERT_EQ(few.size(), many.size());
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].text(), many[i].text());
}

TEST(LinearWays, OfAnH200KeepAllOfItsClustersBusy) {
  const ManyMultiprocessors device;
  for (const std::int64_t tokens : {4096, 8192, 16384}) {
    double least = 1e30, tiles = 0;
    for (const LinearWay& way : LinearForward::ways(device.model().multiprocessors, tokens, 128256)) {
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

/// Of chunks with 2 tokens and one with the rest.
TEST_F(ContextTest, AFrozenLinearLayerWithoutAWinnerForItsLastChunkEnqueuesNothing) {
  const auto layer = [](Context& context, std::int64_t tokens) {
    std::vector<Matrix> matrices;
    matrices.reserve(6);
    std::mt19937_64 random(5);
    for (const std::int64_t rows : {tokens, std::int64_t{9}})
      matrices.emplace_back(context, DType::f32, rows, 4).set(random_values(rows * 4, random));
    matrices.emplace_back(context, DType::i64, tokens, 1)
        .set_indices(std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 3));
    matrices.emplace_back(context, DType::f32, 1, 1);
    matrices.emplace_back(context, DType::f32, tokens, 4);
    matrices.emplace_back(context, DType::f32, 9, 4);
    return matrices;
  };
  const auto run = [](Context& context, const std::vector<Matrix>& matrices) {
    context.run(LinearCrossEntropy{.chunk_tokens = 2}, {.hidden = matrices[0].tensor(),
                                                        .weight = matrices[1].tensor(),
                                                        .target = matrices[2].tensor(),
                                                        .loss = matrices[3].tensor(),
                                                        .hidden_grad = matrices[4].tensor(),
                                                        .weight_grad = matrices[5].tensor()});
  };
  {
    ContextOptions tuning = options(Policy::tune);
    tuning.tuning_seconds = 1;
    Context context(tuning);
    run(context, layer(context, 4));
  }
  Context frozen(options(Policy::frozen));
  const std::vector<Matrix> known = layer(frozen, 4), unknown = layer(frozen, 5);
  run(frozen, known);
  EXPECT_FALSE(known[4].is_untouched());
  EXPECT_THROW(run(frozen, unknown), NotTuned);
  for (const std::size_t output : {3, 4, 5}) EXPECT_TRUE(unknown[output].is_untouched()) << output;
}

}  // namespace
}  // namespace ce::test
