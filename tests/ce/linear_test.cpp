// LinearCrossEntropy from end to end on one device, against f64: options, dtypes and outputs drawn together, chunks of any
// size, logits that tie.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <random>

#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"
#include "tuner/verify/reference.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

/// Quarters from -1 to 1: so few bits that products of rows of a dozen are exact in bf16, and often tie.
std::vector<double> quarters(std::int64_t count, std::mt19937_64& random) {
  std::uniform_int_distribution<int> uniform(-4, 4);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = uniform(random) / 4.;
  return values;
}

std::vector<double> positive(std::int64_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0.25, 2);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = uniform(random);
  return values;
}

struct LinearCase {
  std::string name;
  LinearCrossEntropy operation;
  std::int64_t tokens = 21, hidden = 12, classes = 40;
  DType dtype = DType::f32, loss_dtype = DType::f32, target_dtype = DType::i64;
  std::optional<DType> weight_grad_dtype = {}, bias_dtype = {}, bias_grad_dtype = {}, class_weight_dtype = {};
  int upstreams = 0;  ///< 0, 1, or 2 for one for each token
  bool probabilities = false, hidden_grad = true, weight_grad = true, loss = true, rows = false,
       strided = false;
  bool divisor = false, row_weight = false, row_scale = false, entropy_upstream = false, lse_upstream = false,
       own_workspace = false;
  /// With valid_tokens, by so many more than count.
  std::optional<std::int64_t> spare = {};
};

/// The tensors of a case with random values, and what must come out of them.
class LinearCall {
 public:
  LinearCall(Context& context, const LinearCase& which, std::uint64_t seed)
      : context_(context), case_(which), random_(seed) {
    const Layout apart = which.strided ? Layout{.padding = 8} : Layout{};
    const DType logits = which.operation.logits_dtype.value_or(which.dtype);
    Tensors& t = tensors;
    hidden_ = input("hidden", t.hidden, which.dtype, which.tokens, which.hidden, quarters, apart);
    weight_ = input("weight", t.weight, which.dtype, which.classes, which.hidden, quarters, apart);
    if (which.bias_dtype) bias_ = input("bias", t.bias, *which.bias_dtype, which.classes, 1, quarters);
    make_logits(logits);
    make_target(logits);
    if (which.spare) case_.operation.valid_tokens = std::min(valid_tokens() + *which.spare, which.tokens);
    const bool none = which.operation.cross_entropy.reduction == Reduction::none;
    const std::int64_t losses = none ? which.tokens : 1;
    if (which.loss) output("loss", t.loss, which.loss_dtype, losses, 1);
    if (which.loss && which.operation.cross_entropy.z_loss != 0)
      output("z_loss_out", t.z_loss_out, which.loss_dtype, losses, 1);
    if (which.hidden_grad)
      output("hidden_grad", t.hidden_grad, which.dtype, which.tokens, which.hidden, apart);
    if (which.weight_grad)
      output("weight_grad", t.weight_grad, which.weight_grad_dtype.value_or(which.dtype), which.classes,
             which.hidden);
    if (which.bias_grad_dtype) output("bias_grad", t.bias_grad, *which.bias_grad_dtype, which.classes, 1);
    if (which.class_weight_dtype)
      class_weight_ =
          input("class_weight", t.class_weight, *which.class_weight_dtype, which.classes, 1, positive);
    if (which.upstreams > 0)
      upstream_ = input("upstream", t.upstream, which.loss_dtype, which.upstreams == 1 ? 1 : which.tokens, 1,
                        positive);
    if (which.row_weight)
      row_weight_ = input("row_weight", t.row_weight, DType::f32, which.tokens, 1, positive);
    if (which.row_scale) row_scale_ = input("row_scale", t.row_scale, DType::f32, which.tokens, 1, positive);
    if (which.divisor) divisor_ = input("divisor", t.divisor, DType::f32, 1, 1, positive);
    if (which.entropy_upstream)
      entropy_upstream_ =
          input("entropy_upstream", t.entropy_upstream, DType::f32, which.tokens, 1, positive);
    if (which.lse_upstream)
      lse_upstream_ = input("lse_upstream", t.lse_upstream, DType::f32, which.tokens, 1, positive);
    if (which.rows) {
      output("lse", t.lse, DType::f32, which.tokens, 1);
      output("entropy", t.entropy, DType::f32, which.tokens, 1);
      output("argmax", t.argmax, DType::i64, which.tokens, 1);
      if (!which.probabilities) {
        output("logprob", t.logprob, DType::f32, which.tokens, 1);
        output("hit", t.hit, DType::u8, which.tokens, 1);
      }
    }
    if (which.own_workspace) {
      workspace_.emplace(
          context.allocate(static_cast<std::size_t>(context.schedule(case_.operation, t).workspace_bytes)));
      t.workspace = {workspace_->data(), DType::u8, static_cast<std::int64_t>(workspace_->bytes())};
    }
  }

  void run() {
    context_.run(case_.operation, tensors);
    context_.synchronize();
  }

  void expect_right() const {
    const CrossEntropy& options = case_.operation.cross_entropy;
    generator::CrossEntropyAmounts<double> amounts;
    for (const generator::CrossEntropyOption& option : generator::cross_entropy_options)
      amounts[option.field] = static_cast<double>(options.*option.of_forward);
    generator::CrossEntropyReference want =
        generator::cross_entropy({.columns = case_.classes,
                                  .logits = logits_,
                                  .targets = target_,
                                  .probabilities = probabilities_,
                                  .weights = class_weight_,
                                  .upstream = upstream_,
                                  .row_weights = row_weight_,
                                  .row_scales = row_scale_,
                                  .entropy_upstream = entropy_upstream_,
                                  .lse_upstream = lse_upstream_,
                                  .ignore_index = options.ignore_index,
                                  .reduction = options.reduction,
                                  .amounts = amounts,
                                  .divisor = divisor_.empty() ? 0 : divisor_.front(),
                                  .gradient = true});
    using Flags = generator::CrossEntropyFlags;
    for (std::size_t token = 0; case_.operation.valid_tokens && token < target_.size(); ++token)
      if (target_[token] == options.ignore_index) {
        want[&Flags::lse_out][token] = std::numeric_limits<double>::quiet_NaN();
        want[&Flags::argmax_out][token] = -1;
        want[&Flags::logprob_out][token] = want[&Flags::entropy_out][token] = 0;
      }
    const bool none = options.reduction == Reduction::none;
    const double of_loss = 1.01 * rounding(case_.loss_dtype) + 4e-6;
    const auto check = [&](const char* name, const std::vector<double>& expected, double relative,
                           double absolute) {
      if (const Matrix* matrix = find(name)) {
        expect_near(matrix->values(), expected, relative, absolute, name);
        EXPECT_TRUE(matrix->frame_is_intact()) << name;
      }
    };
    check("loss", none ? want.losses : std::vector{want.loss}, of_loss, 1e-5);
    check("z_loss_out", none ? want.z_losses : std::vector{want.z_loss}, of_loss, 1e-5);
    check("lse", want[&Flags::lse_out], 4e-6, 1e-5);
    check("logprob", want[&Flags::logprob_out], 4e-6, 1e-5);
    check("entropy", want[&Flags::entropy_out], 1e-5, 1e-5);
    const auto check_indices = [&](const char* name, const std::vector<double>& expected) {
      const Matrix* matrix = find(name);
      if (matrix == nullptr) return;
      const std::vector<std::int64_t> indices = matrix->indices();
      EXPECT_EQ(std::vector<double>(indices.begin(), indices.end()), expected) << name;
    };
    check_indices("argmax", want[&Flags::argmax_out]);
    check_indices("hit", want[&Flags::hit_out]);
    expect_gradients(want.gradient);
  }

  /// The bytes of all outputs.
  [[nodiscard]] std::vector<std::vector<std::byte>> results() const {
    std::vector<std::vector<std::byte>> all;
    for (const auto& [name, matrix] : matrices_) all.push_back(matrix.bytes());
    return all;
  }

  [[nodiscard]] std::int64_t valid_tokens() const {
    return std::count_if(target_.begin(), target_.end(),
                         [&](auto target) { return target != case_.operation.cross_entropy.ignore_index; });
  }
  [[nodiscard]] const LinearCrossEntropy& operation() const { return case_.operation; }

  using Tensors = LinearCrossEntropy::Tensors;
  Tensors tensors;

  [[nodiscard]] const Matrix* find(const std::string& name) const {
    for (const auto& [own, matrix] : matrices_)
      if (own == name) return &matrix;
    return nullptr;
  }

 private:
  std::vector<double> input(const char* name, ConstTensor& tensor, DType dtype, std::int64_t rows,
                            std::int64_t columns,
                            const std::function<std::vector<double>(std::int64_t, std::mt19937_64&)>& draw,
                            Layout layout = {}) {
    Matrix& matrix = matrices_.emplace_back(name, Matrix(context_, dtype, rows, columns, layout)).second;
    tensor = matrix.tensor();
    return matrix.set(draw(rows * columns, random_));
  }
  void output(const char* name, Tensor& tensor, DType dtype, std::int64_t rows, std::int64_t columns,
              Layout layout = {}) {
    tensor = matrices_.emplace_back(name, Matrix(context_, dtype, rows, columns, layout)).second.tensor();
  }

  void make_logits(DType dtype) {
    std::vector<double> exact(static_cast<std::size_t>(case_.tokens * case_.classes));
    for (std::int64_t token = 0; token < case_.tokens; ++token)
      for (std::int64_t c = 0; c < case_.classes; ++c) {
        double sum = bias_.empty() ? 0 : bias_[static_cast<std::size_t>(c)];
        for (std::int64_t k = 0; k < case_.hidden; ++k) sum += hidden(token, k) * weight(c, k);
        exact[static_cast<std::size_t>(token * case_.classes + c)] = sum;
      }
    logits_ = Matrix(context_, dtype, case_.tokens, case_.classes).set(exact);
  }

  void make_target(DType logits) {
    if (case_.probabilities) {
      probabilities_ =
          input("target", tensors.target, logits, case_.tokens, case_.classes, [&](auto count, auto& random) {
            std::vector<double> all = positive(count, random);
            for (double& p : all) p /= static_cast<double>(case_.classes);
            return all;
          });
      return;
    }
    std::uniform_int_distribution<std::int64_t> uniform(0, case_.classes - 1);
    target_.resize(static_cast<std::size_t>(case_.tokens));
    for (std::int64_t& target : target_)
      target = random_() % 4 == 0 ? case_.operation.cross_entropy.ignore_index : uniform(random_);
    Matrix& matrix =
        matrices_.emplace_back("target", Matrix(context_, case_.target_dtype, case_.tokens, 1)).second;
    matrix.set_indices(target_);
    tensors.target = matrix.tensor();
  }

  [[nodiscard]] double hidden(std::int64_t token, std::int64_t k) const {
    return hidden_[static_cast<std::size_t>(token * case_.hidden + k)];
  }
  [[nodiscard]] double weight(std::int64_t c, std::int64_t k) const {
    return weight_[static_cast<std::size_t>(c * case_.hidden + k)];
  }

  /// Within the roundings on the way: of the gradient of the logits, of each sum over a chunk, and of the result.
  void expect_gradients(const std::vector<double>& gradient) const {
    const double element =
        rounding(case_.operation.logits_dtype.value_or(case_.dtype)) + rounding(case_.dtype) + 4e-6;
    const auto check = [&](const char* name, std::int64_t rows, std::int64_t columns, double roundings,
                           auto&& term, std::int64_t terms) {
      const Matrix* matrix = find(name);
      if (matrix == nullptr) return;
      const std::vector<double> got = matrix->values();
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column) {
          double sum = 0, magnitude = 0;
          for (std::int64_t i = 0; i < terms; ++i) {
            const double own = term(row, column, i);
            sum += own;
            magnitude += std::abs(own);
          }
          const double value = got[static_cast<std::size_t>(row * columns + column)];
          ASSERT_NEAR(value, sum, 1.1 * (element + roundings) * magnitude + 1e-6)
              << name << '[' << row << ", " << column << ']';
        }
      EXPECT_TRUE(matrix->frame_is_intact()) << name;
    };
    const auto of_logits = [&](std::int64_t token, std::int64_t c) {
      return gradient[static_cast<std::size_t>(token * case_.classes + c)];
    };
    const double own = rounding(case_.dtype);
    check(
        "hidden_grad", case_.tokens, case_.hidden, own,
        [&](auto token, auto k, auto c) { return of_logits(token, c) * weight(c, k); }, case_.classes);
    const bool rounds_chunks = case_.operation.accumulation.value_or(DType::f32) != DType::f32,
               rounds_hidden = case_.operation.exponentials.value_or(false);
    check(
        "weight_grad", case_.classes, case_.hidden, own * ((rounds_chunks ? 6 : 1) + (rounds_hidden ? 1 : 0)),
        [&](auto c, auto k, auto token) { return of_logits(token, c) * hidden(token, k); }, case_.tokens);
    check(
        "bias_grad", case_.classes, 1, rounding(case_.bias_grad_dtype.value_or(DType::f32)),
        [&](auto c, auto, auto token) { return of_logits(token, c); }, case_.tokens);
  }

  Context& context_;
  LinearCase case_;
  std::mt19937_64 random_;
  std::vector<std::pair<std::string, Matrix>> matrices_;
  std::optional<Memory> workspace_;
  std::vector<double> hidden_, weight_, bias_, logits_, probabilities_, class_weight_, upstream_, row_weight_,
      row_scale_, divisor_, entropy_upstream_, lse_upstream_;
  std::vector<std::int64_t> target_;
};

class Linear : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (!IsSkipped()) context = std::make_unique<Context>(options(Policy::lookup));
  }
  void expect_right(LinearCase which) {
    // All in one, an odd number, and a power of two.
    for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{5}, std::int64_t{8}}) {
      which.operation.chunk_tokens = chunk;
      SCOPED_TRACE(fmt::format("{}, chunks of {}", which.name, chunk));
      LinearCall call(*context, which, test_seed());
      call.run();
      call.expect_right();
      if (HasFatalFailure()) return;
    }
  }

  std::unique_ptr<Context> context;
};

LinearCase named(std::string name, LinearCase which) {
  which.name = std::move(name);
  return which;
}

/// Options, dtypes and outputs in such company that each meets the others somewhere.
std::vector<LinearCase> linear_cases() {
  return {
      named("mean", {}),
      named("mean_bf16",
            {.dtype = bf16, .loss_dtype = bf16, .target_dtype = DType::i32, .upstreams = 1, .strided = true}),
      // A product that is made in f32 where rows follow each other.
      named("odd_classes", {.hidden = 16, .classes = 41, .dtype = bf16}),
      named("odd_classes_apart", {.hidden = 16, .classes = 41, .dtype = bf16, .strided = true}),
      named("odd_classes_dropped", {.hidden = 64, .classes = 41, .dtype = f16, .spare = 1}),
      named("f32_logits",
            {.operation = {.cross_entropy = {.reduction = Reduction::sum, .label_smoothing = 0.1f},
                           .logits_dtype = DType::f32},
             .dtype = bf16,
             .weight_grad_dtype = DType::f32,
             .bias_dtype = bf16,
             .bias_grad_dtype = DType::f32,
             .rows = true}),
      named("rows_f16", {.operation = {.cross_entropy = {.reduction = Reduction::none, .softcap = 8}},
                         .dtype = f16,
                         .loss_dtype = f16,
                         .bias_dtype = DType::f32,
                         .bias_grad_dtype = DType::f32,
                         .upstreams = 2,
                         .own_workspace = true}),
      named("weights_and_z_loss", {.operation = {.cross_entropy = {.z_loss = 0.01f, .logit_scale = 0.5f}},
                                   .class_weight_dtype = DType::f32,
                                   .rows = true,
                                   .row_weight = true}),
      named("weights_bf16", {.operation = {.cross_entropy = {.label_smoothing = 0.2f}, .accumulation = bf16},
                             .dtype = bf16,
                             .class_weight_dtype = bf16,
                             .upstreams = 2,
                             .loss = false}),
      named("probabilities",
            {.operation = {.cross_entropy = {.z_loss = 0.01f}}, .probabilities = true, .rows = true}),
      named("divisor",
            {.operation = {.cross_entropy = {.token_scaling = 1}}, .weight_grad = false, .divisor = true}),
      named("logprob_and_entropy",
            {.operation = {.cross_entropy = {.reduction = Reduction::none, .logit_scale = 2}},
             .upstreams = 2,
             .hidden_grad = false,
             .loss = false,
             .rows = true,
             .row_scale = true,
             .entropy_upstream = true,
             .lse_upstream = true}),
      named("evaluation", {.operation = {.cross_entropy = {.reduction = Reduction::sum}},
                           .dtype = bf16,
                           .hidden_grad = false,
                           .weight_grad = false,
                           .rows = true}),
  };
}

TEST_F(Linear, IsCrossEntropyOfALinearLayerWhateverTheOptionsAndTheChunks) {
  const std::uint64_t seed = test_seed();
  const std::vector<LinearCase> cases = linear_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!is_drawn(seed, i, 3)) continue;
    expect_right(cases[i]);
    if (HasFatalFailure()) return;
  }
}

/// Calls without gradients, of 16-bit rows that begin at 16 bytes: on the host device and on Hopper no logits are made.
std::vector<LinearCase> forward_cases() {
  std::vector<LinearCase> cases{
      named("losses", {.operation = {.cross_entropy = {.reduction = Reduction::none}}, .dtype = bf16}),
      named("results_of_rows", {.operation = {.cross_entropy = {.z_loss = 0.01f}},
                                .classes = 500,
                                .dtype = bf16,
                                .target_dtype = DType::i32,
                                .rows = true,
                                .row_weight = true}),
      named("softcap_f16", {.operation = {.cross_entropy = {.reduction = Reduction::sum, .softcap = 2}},
                            .tokens = 130,
                            .dtype = f16,
                            .loss_dtype = f16,
                            .bias_dtype = DType::f32,
                            .strided = true}),
      named("smoothing_f32", {.operation = {.cross_entropy = {.label_smoothing = 0.1f, .logit_scale = 2},
                                            .logits_dtype = DType::f32},
                              .classes = 193,
                              .dtype = bf16,
                              .bias_dtype = bf16,
                              .class_weight_dtype = DType::f32,
                              .rows = true}),
      named("smoothing_capped", {.operation = {.cross_entropy = {.label_smoothing = 0.2f, .softcap = 3}},
                                 .classes = 300,
                                 .dtype = bf16,
                                 .rows = true,
                                 .divisor = true,
                                 .own_workspace = true}),
      named("temperatures",
            {.operation = {.cross_entropy = {.reduction = Reduction::none, .token_scaling = 1}},
             .tokens = 300,
             .dtype = f16,
             .loss = false,
             .rows = true,
             .row_scale = true}),
      named("weights", {.tokens = 1, .classes = 1, .dtype = bf16, .class_weight_dtype = bf16, .rows = true})};
  for (LinearCase& which : cases) {
    which.hidden = 16;
    which.hidden_grad = which.weight_grad = false;
  }
  return cases;
}

/// Calls whose gradients may be made of exponentials.
std::vector<LinearCase> exponentials_cases() {
  std::vector<LinearCase> cases{
      named("mean", {}),
      named("z_loss_i32", {.operation = {.cross_entropy = {.z_loss = 0.01f}},
                           .loss_dtype = bf16,
                           .target_dtype = DType::i32,
                           .upstreams = 1,
                           .strided = true}),
      named("rows_capped",
            {.operation = {.cross_entropy = {.reduction = Reduction::none, .softcap = 2, .logit_scale = 2}},
             .classes = 300,
             .loss_dtype = bf16,
             .upstreams = 2,
             .rows = true}),
      named("f32_logits", {.operation = {.cross_entropy = {.z_loss = 0.1f}, .logits_dtype = DType::f32},
                           .tokens = 130,
                           .classes = 193,
                           .weight_grad_dtype = DType::f32,
                           .rows = true,
                           .divisor = true,
                           .row_weight = true}),
      named("f32_logits_capped", {.operation = {.cross_entropy = {.reduction = Reduction::sum, .softcap = 3},
                                                .logits_dtype = DType::f32},
                                  .upstreams = 2,
                                  .lse_upstream = true,
                                  .own_workspace = true}),
      // Logits so far above the target's that maxima are raised, from tile to tile.
      named("far", {.operation = {.cross_entropy = {.logit_scale = 40}}, .tokens = 60, .classes = 900}),
      named("far_f32", {.operation = {.cross_entropy = {.logit_scale = 100}, .logits_dtype = DType::f32},
                        .classes = 700,
                        .rows = true}),
      // So large that what the products round is more than what exponentials can hold.
      named(
          "far_apart_f32",
          {.operation = {.cross_entropy = {.logit_scale = 1e9F}, .logits_dtype = DType::f32}, .tokens = 60}),
      named("hidden_alone", {.operation = {.cross_entropy = {.ignore_index = 3}}, .weight_grad = false}),
      named("weight_alone",
            {.operation = {.cross_entropy = {.reduction = Reduction::sum}, .accumulation = bf16},
             .hidden_grad = false,
             .loss = false}),
      named("valid_tokens", {.tokens = 300, .row_weight = true, .spare = 2}),
      named("one_class", {.tokens = 9, .classes = 1}),
  };
  for (LinearCase& which : cases) {
    which.hidden = 16;
    which.dtype = bf16;
    which.operation.exponentials = true;
  }
  return cases;
}

TEST_F(Linear, GradientsMayBeMadeOfExponentials) {
  const std::uint64_t seed = test_seed();
  const std::vector<LinearCase> cases = exponentials_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!is_drawn(seed, i, 2)) continue;
    expect_right(cases[i]);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Linear, ExponentialsAreRefusedWhereTheyDoNotServe) {
  const auto expect_refusal = [&](LinearCase which) {
    which.hidden = 16;
    which.operation.exponentials = true;
    LinearCall call(*context, which, test_seed());
    EXPECT_THAT([&] { call.run(); }, testing::ThrowsMessage<InvalidArgument>(HasSubstr("exponentials")))
        << which.name;
  };
  expect_refusal(named("f32", {}));
  expect_refusal(named("f16", {.dtype = f16}));
  expect_refusal(named("bias", {.dtype = bf16, .bias_dtype = bf16}));
  expect_refusal(named("class_weight", {.dtype = bf16, .class_weight_dtype = bf16}));
  expect_refusal(named("row_scale", {.dtype = bf16, .row_scale = true}));
  expect_refusal(named("entropy", {.dtype = bf16, .rows = true, .entropy_upstream = true}));
  expect_refusal(
      named("smoothing", {.operation = {.cross_entropy = {.label_smoothing = 0.1f}}, .dtype = bf16}));
  expect_refusal(named("scaling", {.operation = {.cross_entropy = {.token_scaling = 1}}, .dtype = bf16}));
  expect_refusal(named("probabilities", {.dtype = bf16, .probabilities = true}));
}

TEST_F(Linear, WithoutGradientsThereAreNoLogits) {
  const std::uint64_t seed = test_seed();
  const std::vector<LinearCase> cases = forward_cases();
  const runtime::Model model = open_device(tested_device())->model();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!is_drawn(seed, i, 2)) continue;
    SCOPED_TRACE(cases[i].name);
    LinearCall call(*context, cases[i], seed);
    if (model.is_host() || model.capability == 90) {
      const LinearSchedule schedule = context->schedule(cases[i].operation, call.tensors);
      EXPECT_EQ(schedule.chunks, 1);
      EXPECT_LT(schedule.workspace_bytes, cases[i].tokens * 132 * 64) << "statistics of each split";
    }
    call.run();
    call.expect_right();
    if (HasFailure()) return;
  }
}

TEST_F(Linear, GradientsTakeLogitsAlsoOfRowsThatBeginAtSixteenBytes) {
  LinearCall call(*context, {.hidden = 16, .dtype = bf16}, test_seed());
  call.run();
  call.expect_right();
}

TEST_F(Linear, WithoutGradientsArgmaxOrHitMayBeAskedForAlone) {
  using Tensors = LinearCrossEntropy::Tensors;
  const LinearCase which{
      .hidden = 16, .dtype = bf16, .hidden_grad = false, .weight_grad = false, .rows = true};
  LinearCall all(*context, which, 1);
  all.run();
  for (const auto& [name, member] : {std::pair{"argmax", &Tensors::argmax}, {"hit", &Tensors::hit}}) {
    LinearCall alone(*context, which, 1);
    const Tensor asked_for = alone.tensors.*member;
    for (const auto output :
         {&Tensors::lse, &Tensors::entropy, &Tensors::argmax, &Tensors::logprob, &Tensors::hit})
      alone.tensors.*output = {};
    alone.tensors.*member = asked_for;
    alone.run();
    EXPECT_EQ(alone.find(name)->indices(), all.find(name)->indices()) << name;
    EXPECT_NEAR(alone.find("loss")->values().front(), all.find("loss")->values().front(), 1e-5) << name;
  }
}

/// Copies of boxes begin at 16 bytes.
TEST_F(Linear, RowsThatBeginElsewhereMakeLogitsWithoutGradients) {
  const runtime::Model model = open_device(tested_device())->model();
  if (!model.is_host() && model.capability != 90) GTEST_SKIP() << "it makes them whatever the rows";
  const LinearCase which{.hidden = 16, .dtype = bf16, .hidden_grad = false, .weight_grad = false};
  for (const auto member : {&LinearCrossEntropy::Tensors::hidden, &LinearCrossEntropy::Tensors::weight}) {
    LinearCall call(*context, which, 1);
    ConstTensor& tensor = call.tensors.*member;
    const std::int64_t logits = which.tokens * which.classes * size_of(which.dtype);
    EXPECT_LT(context->schedule(which.operation, call.tensors).workspace_bytes, logits);
    tensor.data = static_cast<const std::byte*>(tensor.data) + size_of(tensor.dtype);
    EXPECT_GE(context->schedule(which.operation, call.tensors).workspace_bytes, logits);
  }
}

/// Tokens that are left out in such company that each way of a call meets them.
std::vector<LinearCase> valid_token_cases() {
  const auto all = [] {
    std::vector<LinearCase> both = linear_cases(), forward = forward_cases();
    std::move(forward.begin(), forward.end(), std::back_inserter(both));
    return both;
  };
  std::vector<LinearCase> cases;
  for (LinearCase& which : all()) {
    if (which.probabilities) continue;
    which.spare = static_cast<std::int64_t>(cases.size() % 3) * 2;
    which.name += fmt::format(", {} to spare", *which.spare);
    cases.push_back(std::move(which));
  }
  return cases;
}

TEST_F(Linear, TokensThatAreLeftOutAreInNoProductAndChangeNothing) {
  const std::uint64_t seed = test_seed();
  const std::vector<LinearCase> cases = valid_token_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!is_drawn(seed, i, 4)) continue;
    expect_right(cases[i]);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Linear, WithoutGradientsTokensThatAreLeftOutAreInNoStatistics) {
  const std::uint64_t seed = test_seed();
  const std::vector<LinearCase> cases = valid_token_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].hidden_grad || cases[i].weight_grad || !is_drawn(seed, i, 3)) continue;
    SCOPED_TRACE(cases[i].name);
    LinearCall call(*context, cases[i], seed);
    call.run();
    call.expect_right();
    if (HasFailure()) return;
  }
}

/// One number, many, and others that are no multiple of any unit.
TEST_F(Linear, RowsOfAnyWidthArePutNextToEachOther) {
  for (const auto& [hidden, dtype, strided] :
       {std::tuple{std::int64_t{1}, bf16, false}, {3, bf16, true}, {6, f16, false}, {5, DType::f32, true}})
    expect_right({.name = fmt::format("hidden {} of {}", hidden, name(dtype)),
                  .hidden = hidden,
                  .dtype = dtype,
                  .loss_dtype = dtype,
                  .strided = strided,
                  .spare = 1});
}

/// Rows of tokens that are left out take part in nothing, not even where they are NaN.
TEST_F(Linear, WhatIsLeftOutIsNeverRead) {
  LinearCall call(*context, {.operation = {.chunk_tokens = 5}, .spare = 2}, 3);
  const std::int64_t valid = call.valid_tokens();
  ASSERT_LT(valid, 21);
  Matrix spoilt(*context, DType::f32, 21, 12);
  std::vector<double> values = call.find("hidden")->values();
  const std::vector<std::int64_t> targets = call.find("target")->indices();
  for (std::size_t token = 0; token < targets.size(); ++token)
    if (targets[token] == -100)
      std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(12 * token), 12, std::nan(""));
  spoilt.set(values);
  call.tensors.hidden = spoilt.tensor();
  call.run();
  call.expect_right();
}

TEST_F(Linear, NoTokenThatCountsMakesAMeanOfNothing) {
  for (const std::int64_t valid : {0, 3}) {
    LinearCall call(*context, {.rows = true}, 1);
    Matrix targets(*context, DType::i64, 21, 1);
    targets.set_indices(std::vector<std::int64_t>(21, -100));
    call.tensors.target = targets.tensor();
    context->run({.chunk_tokens = 8, .valid_tokens = valid}, call.tensors);
    context->synchronize();
    EXPECT_TRUE(std::isnan(call.find("loss")->values().front()));
    EXPECT_THAT(call.find("weight_grad")->values(), testing::Each(0.));
    EXPECT_THAT(call.find("hidden_grad")->values(), testing::Each(0.));
    EXPECT_THAT(call.find("argmax")->indices(), testing::Each(-1));
    EXPECT_THAT(call.find("entropy")->values(), testing::Each(0.));
  }
}

TEST_F(Linear, MoreTokensThanTheCallSaysMakeNaNAndNothingElseIsWritten) {
  for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean})
    for (const auto& [missing, exponentials] :
         {std::pair{std::int64_t{1}, false}, {1000, false}, {1, true}, {1000, true}}) {
      LinearCase which{.operation = {.cross_entropy = {.reduction = reduction, .z_loss = 0.1f},
                                     .exponentials = exponentials},
                       .hidden = 16,
                       .dtype = exponentials ? bf16 : DType::f32,
                       .strided = true,
                       .own_workspace = true};
      if (!exponentials) which.bias_dtype = which.bias_grad_dtype = DType::f32;
      LinearCall call(*context, which, 1);
      LinearCrossEntropy operation = which.operation;
      operation.valid_tokens = std::max<std::int64_t>(call.valid_tokens() - missing, 0);
      call.tensors.workspace = {};
      context->run(operation, call.tensors);
      context->synchronize();
      const auto all_nan = testing::Each(testing::Truly([](double value) { return std::isnan(value); }));
      for (const char* name : {"loss", "z_loss_out", "weight_grad", "bias_grad"})
        if (const Matrix* made = call.find(name)) {
          EXPECT_THAT(made->values(), all_nan) << name;
        }
      for (const char* name : {"loss", "z_loss_out", "hidden_grad", "weight_grad", "bias_grad"})
        if (const Matrix* made = call.find(name)) {
          EXPECT_TRUE(made->frame_is_intact()) << name;
        }
    }
}

TEST_F(Linear, WithoutGradientsMoreTokensThanTheCallSaysMakeNaNAndNoHit) {
  for (const DType dtype : {bf16, DType::f32}) {
    SCOPED_TRACE(name(dtype));
    LinearCall call(*context,
                    {.hidden = 16, .dtype = dtype, .hidden_grad = false, .weight_grad = false, .rows = true},
                    1);
    std::vector<std::int64_t> targets = call.find("target")->indices();
    for (std::int64_t& target : targets)
      if (target != -100) target = 0;  // the largest of classes that are all NaN
    Matrix of_class_0(*context, DType::i64, std::ssize(targets), 1);
    of_class_0.set_indices(targets);
    call.tensors.target = of_class_0.tensor();
    context->run({.valid_tokens = call.valid_tokens() - 1}, call.tensors);
    context->synchronize();
    const auto all_nan = testing::Each(testing::Truly([](double value) { return std::isnan(value); }));
    for (const char* name : {"loss", "lse", "logprob", "entropy"})
      EXPECT_THAT(call.find(name)->values(), all_nan) << name;
    EXPECT_THAT(call.find("argmax")->indices(), testing::Each(-1));
    EXPECT_THAT(call.find("hit")->indices(), testing::Each(0));
  }
}

TEST_F(Linear, AnyTokensAndAnyWidths) {
  for (const auto& [tokens, hidden, classes] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {2, 3, 130}, {17, 8, 33}, {33, 5, 2}})
    expect_right({.name = fmt::format("{} x {} x {}", tokens, hidden, classes),
                  .tokens = tokens,
                  .hidden = hidden,
                  .classes = classes});
}

TEST_F(Linear, TheSameCallGivesTheSameBits) {
  const LinearCase which{.operation = {.chunk_tokens = 6}, .dtype = bf16};
  LinearCall first(*context, which, 5), second(*context, which, 5);
  first.run();
  second.run();
  EXPECT_EQ(first.results(), second.results());
}

TEST_F(Linear, WithoutTokensThereIsNoLossAndNoGradient) {
  LinearCall call(*context, {.tokens = 3, .weight_grad_dtype = DType::f32}, 1);
  LinearCrossEntropy::Tensors& tensors = call.tensors;
  tensors.hidden.rows = tensors.hidden_grad.rows = tensors.target.rows = 0;
  context->run(LinearCrossEntropy{}, tensors);
  context->synchronize();
  EXPECT_TRUE(std::isnan(call.find("loss")->values().front()));
  EXPECT_THAT(call.find("weight_grad")->values(), testing::Each(0.));
  EXPECT_TRUE(call.find("hidden_grad")->is_untouched());
  Matrix divisor(*context, DType::f32, 1, 1);
  divisor.set({4});
  tensors.divisor = divisor.tensor();
  context->run(LinearCrossEntropy{}, tensors);
  context->synchronize();
  EXPECT_EQ(call.find("loss")->values().front(), 0);
}

TEST_F(Linear, AllTokensIgnoredMakeAMeanOfNothing) {
  LinearCall call(*context, {.operation = {.chunk_tokens = 8}}, 1);
  Matrix targets(*context, DType::i64, 21, 1);
  targets.set_indices(std::vector<std::int64_t>(21, -100));
  call.tensors.target = targets.tensor();
  context->run({.chunk_tokens = 8}, call.tensors);
  context->synchronize();
  EXPECT_TRUE(std::isnan(call.find("loss")->values().front()));
  EXPECT_THAT(call.find("weight_grad")->values(), testing::Each(0.));
}

TEST_F(Linear, ATargetOutOfRangeIsTold) {
  LinearCall call(*context, {.operation = {.chunk_tokens = 8}}, 1);
  std::vector<std::int64_t> values(21, 1);
  values[10] = 4000;
  Matrix targets(*context, DType::i64, 21, 1);
  targets.set_indices(values);
  call.tensors.target = targets.tensor();
  context->run({.chunk_tokens = 8}, call.tensors);
  EXPECT_THROW(context->check(nullptr), TargetOutOfRange);
  EXPECT_TRUE(std::isnan(call.find("loss")->values().front()));
}

TEST_F(Linear, AWrongCallIsRefusedByName) {
  const auto message = [&](const LinearCrossEntropy& operation, auto&& change) -> std::string {
    LinearCall call(*context, {}, 1);
    change(call.tensors);
    try {
      context->run(operation, call.tensors);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing";
  };
  using Tensors = LinearCrossEntropy::Tensors;
  EXPECT_THAT(message({}, [](Tensors& t) { t.weight.columns = 11; }),
              AllOf(HasSubstr("LinearCrossEntropy"), HasSubstr("weight.columns"), HasSubstr("12")));
  EXPECT_THAT(message({}, [](Tensors& t) { t.weight.dtype = f16; }), HasSubstr("weight.dtype"));
  EXPECT_THAT(message({}, [](Tensors& t) { t.target.rows = 20; }), HasSubstr("target"));
  EXPECT_THAT(message({}, [](Tensors& t) { t.weight_grad.rows = 39; }), HasSubstr("weight_grad.rows"));
  EXPECT_THAT(message({}, [](Tensors& t) { t.hidden_grad = t.weight_grad; }), HasSubstr("hidden_grad"));
  EXPECT_THAT(message({}, [](Tensors& t) { t.hidden = {}; }), HasSubstr("hidden"));
  EXPECT_THAT(message({}, [](Tensors& t) { t.bias_grad = t.loss; }), HasSubstr("bias"));
  EXPECT_THAT(message({}, [](Tensors& t) { t.hidden_grad.data = const_cast<void*>(t.hidden.data); }),
              HasSubstr("overlapping"));
  EXPECT_THAT(message({.logits_dtype = bf16}, [](Tensors&) {}), HasSubstr("logits_dtype"));
  EXPECT_THAT(message({.accumulation = f16}, [](Tensors&) {}), HasSubstr("accumulation"));
  EXPECT_THAT(message({.memory_budget = -1}, [](Tensors&) {}), HasSubstr("memory_budget"));
  EXPECT_THAT(message({.chunk_tokens = -1}, [](Tensors&) {}), HasSubstr("chunk_tokens"));
  EXPECT_THAT(message({.cross_entropy = {.label_smoothing = 2}}, [](Tensors&) {}),
              HasSubstr("LinearCrossEntropy: label_smoothing"));
  EXPECT_THAT(message({.valid_tokens = 22}, [](Tensors&) {}),
              HasSubstr("valid_tokens is 22; expected 0 to 21, the number of tokens"));
  EXPECT_THAT(message({.valid_tokens = -1}, [](Tensors&) {}), HasSubstr("valid_tokens is -1"));
  const Matrix probabilities(*context, DType::f32, 21, 40);
  EXPECT_THAT(message({.valid_tokens = 3}, [&](Tensors& t) { t.target = probabilities.tensor(); }),
              HasSubstr("valid_tokens"));
  Matrix small(*context, DType::u8, 256, 1);
  EXPECT_THAT(message({}, [&](Tensors& t) { t.workspace = small.tensor(); }), HasSubstr("workspace"));
  EXPECT_THAT(message({.accumulation = f16}, [](Tensors&) {}),
              HasSubstr("accumulation is f16; expected f32, the dtype of weight_grad"));
  EXPECT_THAT(message({.logits_dtype = f16}, [](Tensors&) {}),
              HasSubstr("logits_dtype is f16; expected f32, the dtype of hidden"));
}

/// No kernel of cross entropy sees the tensors of a sum over several chunks.
TEST_F(Linear, LossesOfSeveralChunksAreCheckedBeforeAnythingIsWritten) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum})
    for (const std::int64_t chunk_tokens : {std::int64_t{0}, std::int64_t{8}}) {
      SCOPED_TRACE(fmt::format("chunks of {}", chunk_tokens));
      const LinearCrossEntropy operation{.cross_entropy = {.reduction = reduction, .z_loss = 0.1f},
                                         .chunk_tokens = chunk_tokens};
      const auto refuse = [&](Tensor LinearCrossEntropy::Tensors::*member, auto&& change,
                              const std::string& said) {
        LinearCall call(*context, {.operation = operation}, 1);
        change(call.tensors.*member);
        EXPECT_THAT([&] { context->run(operation, call.tensors); },
                    testing::ThrowsMessage<InvalidArgument>(HasSubstr("LinearCrossEntropy: " + said)));
        for (const char* name : {"loss", "z_loss_out", "hidden_grad", "weight_grad"})
          EXPECT_TRUE(call.find(name)->is_untouched()) << name;
      };
      for (const DType dtype : {f16, bf16, DType::i32, DType::i64, DType::u8}) {
        const auto change = [&](Tensor& tensor) { tensor.dtype = dtype; };
        refuse(&LinearCrossEntropy::Tensors::loss, change,
               fmt::format("loss.dtype is {}; expected f32 (the dtype of logits, or f32)", name(dtype)));
        refuse(&LinearCrossEntropy::Tensors::z_loss_out, change,
               fmt::format("z_loss_out.dtype is {}; expected f32 (the dtype of loss)", name(dtype)));
      }
      for (const auto& [member, name] : {std::pair{&LinearCrossEntropy::Tensors::loss, "loss"},
                                         {&LinearCrossEntropy::Tensors::z_loss_out, "z_loss_out"}}) {
        refuse(
            member, [](Tensor& t) { t.rows = 7; }, fmt::format("{} is 7 x 1", name));
        refuse(
            member, [](Tensor& t) { t.rows = -3; }, fmt::format("{}.rows is -3", name));
        refuse(
            member, [](Tensor& t) { t.batch_rows = -1; }, fmt::format("{}.batch_rows is -1", name));
        refuse(
            member, [](Tensor& t) { t.data = static_cast<std::byte*>(t.data) + 1; },
            fmt::format("{}.data is ", name));
      }
    }
}

}  // namespace
}  // namespace ce::test
