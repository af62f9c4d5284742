// Options and tensors of cross entropy that cannot be used: refused by name, before anything is enqueued.
#include <limits>
#include <vector>

#include "tests/ce/arguments_fixture.hpp"

namespace ce::test {
namespace {

const CrossEntropy none{.reduction = Reduction::none};

TEST_F(Arguments, OfCrossEntropyByThemselves) {
  using Tensors = CrossEntropy::Tensors;
  refuse([](Tensors& t) { t.logits.columns = 0; }, {"logits.columns", "0", "1 or more"});
  refuse([](Tensors& t) { t.logits.data = nullptr; }, {"logits.data", "null", "device memory"});
  refuse([](Tensors& t) { t.target.data = nullptr; }, {"target.data", "null", "device memory"});
  refuse([](Tensors& t) { t.loss.data = nullptr; }, {"loss.data", "null", "device memory"});
  refuse([](Tensors& t) { t.grad.data = nullptr; }, {"grad.data", "null", "device memory"});
  refuse([](Tensors& t) { t.target.data = moved(t.target, 4); }, {"target.data", "0x", "8-byte"});
  refuse([](Tensors& t) { t.loss.data = moved(t.loss, 2); }, {"loss.data", "0x", "4-byte"});
  refuse([](Tensors& t) { t.grad.data = moved(t.grad, 2); }, {"grad.data", "0x", "4-byte"});
  refuse([](Tensors& t) { t.grad.row_stride = 32; }, {"grad.row_stride", "32", "64 columns"});
  refuse([](Tensors& t) { t.logits.dtype = DType::i32; }, {"logits.dtype", "i32", "bf16"});
  refuse([](Tensors& t) { t.logits = {}; }, {"logits", "not given", "one for each target"});
  refuse([](Tensors& t) { t.target = {}; }, {"target", "not given", "class indices (i32 or i64), or prob"});
  refuse([](Tensors& t) { t.target = {.dtype = DType::i64}; }, {"target", "not given", "class indices"});
  refuse([](Tensors& t) { t.loss = {}; }, {"loss", "not given", "1 element"});
  refuse([](Tensors& t) { t.target.dtype = DType::f32; },
         {"target.dtype", "f32", "i32 or i64 (class indices), because it has one element for each row"});
  refuse([](Tensors& t) { t.target.dtype = DType::u8; }, {"target.dtype", "u8", "i32 or i64"});
  refuse([](Tensors& t) { t.target.dtype = DType(42); }, {"target.dtype", "42", "i32 or i64"});
  refuse([](Tensors& t) { t.loss.dtype = DType(42); }, {"loss.dtype", "42", "f32"});
  refuse([](Tensors& t) { t.loss.dtype = DType::bf16; }, {"loss.dtype", "bf16", "f32"});
  refuse([](Tensors& t) { t.loss.dtype = DType::i32; }, {"loss.dtype", "i32", "f32"});
}

TEST_F(Arguments, OfCrossEntropyTogether) {
  using Tensors = CrossEntropy::Tensors;
  refuse([](Tensors& t) { t.grad.rows = 7; }, {"grad.rows", "7", "8 rows of logits"});
  refuse([](Tensors& t) { t.grad.columns = 63; }, {"grad.columns", "63", "64 columns of logits"});
  refuse([](Tensors& t) { t.grad.dtype = DType::f16; }, {"grad.dtype", "f16", "f32"});
  refuse([](Tensors& t) { t.target.rows = 7; }, {"target", "7 x 1", "8 elements"});
  refuse([](Tensors& t) { t.target.row_stride = 2; }, {"target", "row stride 2", "8 elements, one after"});
  refuse([](Tensors& t) { t.loss.rows = 8; }, {"loss", "8 x 1", "1 element"});
  refuse([](Tensors& t) { t.loss.rows = 1; }, {"loss", "1 x 1", "8 elements"}, none);
  refuse([](Tensors& t) { t.loss.row_stride = 3; }, {"loss", "row stride 3", "8 elements"}, none);
}

TEST_F(Arguments, CrossEntropyTensorsThatOverlap) {
  using Tensors = CrossEntropy::Tensors;
  const Tensor logits = matrix_a->tensor();
  refuse([&](Tensors& t) { t.grad.data = moved(logits, 512); },
         {"grad.data", "overlapping logits", "exactly logits"});
  refuse([&](Tensors& t) { t.loss.data = moved(logits, 8); },
         {"loss.data", "overlapping logits", "memory of its own"});
  refuse([&](Tensors& t) { t.loss.data = moved(t.grad, 8); },
         {"loss.data", "overlapping grad", "memory of its own"});
  refuse([&](Tensors& t) { t.loss.data = moved(targets->tensor(), 8); },
         {"loss.data", "overlapping target", "memory of its own"});
  refuse([&](Tensors& t) { t.target.data = moved(t.grad, 8); },
         {"target.data", "overlapping grad", "memory of its own"});
  refuse(
      [&](Tensors& t) {
        t.grad = logits;
        t.target.data = moved(logits, 8);
      },
      {"target.data", "overlapping grad", "memory of its own"});
  refuse([&](Tensors& t) { t.target = t.grad = logits; },
         {"grad.data", "overlapping target", "memory of its own"});
}

TEST_F(Arguments, Options) {
  struct Wrong {
    CrossEntropy operation;
    Expectation expectation;
  };
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [operation, expectation] :
       std::vector<Wrong>{{{.reduction = Reduction(9)}, {"reduction", "9", "none, mean or sum"}},
                          {{.label_smoothing = -0.5f}, {"label_smoothing", "-0.5", "0 to 1"}},
                          {{.label_smoothing = 1.5f}, {"label_smoothing", "1.5", "0 to 1"}},
                          {{.label_smoothing = nan}, {"label_smoothing", "nan", "0 to 1"}},
                          {{.z_loss = -1.f}, {"z_loss", "-1", "0 to 2^60"}},
                          {{.z_loss = inf}, {"z_loss", "inf", "0 to 2^60"}},
                          {{.softcap = -30.f}, {"softcap", "-30", "0 (no cap), or 2^-60 to 2^60"}},
                          {{.softcap = nan}, {"softcap", "nan", "2^60"}},
                          {{.logit_scale = 0.f}, {"logit_scale", "0", "2^-60 to 2^60"}},
                          {{.logit_scale = inf}, {"logit_scale", "inf", "2^60"}},
                          {{.softcap = 1e-39f}, {"softcap", "e-39", "2^-60"}},
                          {{.softcap = 2.4e38f}, {"softcap", "2.4e+38", "2^60"}},
                          {{.logit_scale = 2.4e38f}, {"logit_scale", "2.4e+38", "2^60"}}}) {
    expect_refused(operation, entropy, expectation);
    const CrossEntropyBackward backward{.reduction = operation.reduction,
                                        .label_smoothing = operation.label_smoothing,
                                        .z_loss = operation.z_loss,
                                        .softcap = operation.softcap,
                                        .logit_scale = operation.logit_scale};
    expect_refused(backward,
                   {.logits = entropy.logits,
                    .target = entropy.target,
                    .lse = vector(DType::f32, rows),
                    .grad = entropy.grad},
                   expectation);
  }
}

TEST_F(Arguments, ProbabilitiesAsTargets) {
  using Tensors = CrossEntropy::Tensors;
  const auto probabilities = [this](Tensors& t) {
    t.target = entropy.grad;
    t.grad = {};
  };
  refuse(
      [&](Tensors& t) {
        probabilities(t);
        t.target.dtype = DType::f16;
      },
      {"target.dtype", "f16", "f32 (the dtype of logits)"});
  refuse(
      [&](Tensors& t) {
        probabilities(t);
        t.target.rows = 4;
      },
      {"target.rows", "4", "8 rows of logits"});
  refuse(
      [&](Tensors& t) {
        probabilities(t);
        t.hit = vector(DType::u8, rows);
      },
      {"hit.data", "set", "null, because target holds probabilities"});
  refuse([&](Tensors& t) { t.target = t.grad; }, {"grad.data", "overlapping target", "memory of its own"});
}

TEST_F(Arguments, WeightAndUpstream) {
  using Tensors = CrossEntropy::Tensors;
  refuse([&](Tensors& t) { t.weight = vector(DType::f32, 63); }, {"weight", "63 x 1", "64 elements"});
  refuse([&](Tensors& t) { t.weight = vector(DType::i32, 64); }, {"weight.dtype", "i32", "or f32"});
  refuse([&](Tensors& t) { t.weight = vector(DType::f16, 64); }, {"weight.dtype", "f16", "f32"});
  refuse([&](Tensors& t) { t.weight = {.data = nullptr, .rows = 64}; },
         {"weight.data", "null", "device memory"});
  refuse([&](Tensors& t) { t.weight = {.data = t.grad.data, .rows = 64}; },
         {"weight.data", "overlapping grad", "memory of its own"});
  refuse([&](Tensors& t) { t.upstream = vector(DType::f32, 7); },
         {"upstream", "7 x 1", "1 element, or one for each of the 8 rows"});
  refuse(
      [&](Tensors& t) {
        t.upstream = vector(DType::f32, 8);
        t.upstream.row_stride = 2;
      },
      {"upstream", "8 x 1 with row stride 2 and column stride 1", "one for each of the 8 rows"});
  refuse([&](Tensors& t) { t.upstream = batched(vector(DType::f32, 16).data, DType::f32, 2, 4, 1, 5); },
         {"upstream", "in batches of 4 rows, 5 apart", "one for each of the 8 rows"});
  refuse([&](Tensors& t) { t.upstream = vector(DType::bf16, 8); },
         {"upstream.dtype", "bf16", "f32 (the dtype of loss)"});
  refuse([&](Tensors& t) { t.upstream = {.data = t.grad.data, .rows = 1}; },
         {"upstream.data", "overlapping grad", "memory of its own"});
  refuse(
      [&](Tensors& t) {
        t.upstream = vector(DType::f32, 1);
        t.grad = {};
      },
      {"upstream.data", "set", "null, because there is no grad"});
}

TEST_F(Arguments, InputsOfRows) {
  using Tensors = CrossEntropy::Tensors;
  refuse([&](Tensors& t) { t.row_weight = vector(DType::f32, 7); }, {"row_weight", "7 x 1", "8 elements"});
  refuse([&](Tensors& t) { t.row_weight = vector(DType::bf16, 8); }, {"row_weight.dtype", "bf16", "f32"});
  refuse([&](Tensors& t) { t.row_scale = vector(DType::f32, 7); }, {"row_scale", "7 x 1", "8 elements"});
  refuse([&](Tensors& t) { t.divisor = vector(DType::f32, 8); }, {"divisor", "8 x 1", "1 element"});
  refuse([&](Tensors& t) { t.divisor = vector(DType::f32, 1); },
         {"divisor.data", "set", "null, except with the reduction mean"}, none);
  refuse(
      [&](Tensors& t) {
        t.entropy_upstream = vector(DType::f32, 8);
        t.grad = {};
      },
      {"entropy_upstream.data", "set", "null, except with a gradient"});
  refuse([&](Tensors& t) { t.lse_upstream = {.data = t.grad.data, .rows = 8}; },
         {"lse_upstream.data", "overlapping grad", "memory of its own"});
  refuse(
      [&](Tensors& t) { t.given_lse = vector(DType::f32, 8); },
      {"given_lse.data", "set", "null, except with losses of class indices without gradient and smoothing"});
  for (const auto& [name, output] : {std::pair{"lse", &Tensors::lse},
                                     {"entropy", &Tensors::entropy},
                                     {"argmax", &Tensors::argmax},
                                     {"hit", &Tensors::hit}})
    refuse(
        [&, output = output](Tensors& t) {
          t.grad = {};
          t.given_lse = vector(DType::f32, 8);
          t.*output = vector(DType::f32, 8);
        },
        {std::string(name) + ".data", "set", "null, because given_lse is given"});
  refuse([&](Tensors& t) { t.entropy = vector(DType::f16, 8); }, {"entropy.dtype", "f16", "f32"});
  refuse(
      [&](Tensors& t) {
        t.target = entropy.grad;
        t.grad = {};
        t.logprob = vector(DType::f32, 8);
      },
      {"logprob.data", "set", "null, because target holds probabilities"});
  refuse([](Tensors&) {}, {"token_scaling", "-1", "0 to 16"}, {.token_scaling = -1});
  refuse(
      [&](Tensors& t) {
        t.target = entropy.grad;
        t.grad = {};
      },
      {"token_scaling", "1", "0, because target holds probabilities"}, {.token_scaling = 1});
}

TEST_F(Arguments, WhatTheBackwardNeedsOfTheForward) {
  const auto refuse_backward = [&](const CrossEntropyBackward& operation, const auto& change,
                                   const Expectation& expectation) {
    CrossEntropyBackward::Tensors tensors{
        .logits = entropy.logits, .target = entropy.target, .lse = losses->tensor(), .grad = entropy.grad};
    change(tensors);
    expect_refused(operation, tensors, expectation);
  };
  using Tensors = CrossEntropyBackward::Tensors;
  refuse_backward({.token_scaling = 1}, [](Tensors&) {},
                  {"logprob", "not given", "because token_scaling is set"});
  refuse_backward({}, [&](Tensors& t) { t.entropy_upstream = vector(DType::f32, rows); },
                  {"entropy", "not given", ""});
  refuse_backward({}, [&](Tensors& t) { t.entropy = vector(DType::f32, rows); },
                  {"entropy.data", "set", "null, except with entropy_upstream"});
}

TEST_F(Arguments, OptionalOutputs) {
  using Tensors = CrossEntropy::Tensors;
  const CrossEntropy with_z{.reduction = Reduction::none, .z_loss = 1.f};
  refuse([&](Tensors& t) { t.z_loss_out = vector(DType::f32, 1); },
         {"z_loss_out.data", "set", "null, because the factor z_loss is 0"});
  refuse([&](Tensors& t) { t.z_loss_out = vector(DType::f32, 1); }, {"z_loss_out", "1 x 1", "8 elements"},
         with_z);
  refuse([&](Tensors& t) { t.z_loss_out = vector(DType::f16, 8); },
         {"z_loss_out.dtype", "f16", "f32 (the dtype of loss)"}, with_z);
  refuse([&](Tensors& t) { t.z_loss_out = t.loss; },
         {"z_loss_out.data", "overlapping loss", "memory of its own"}, with_z);
  refuse([&](Tensors& t) { t.lse = vector(DType::f16, 8); }, {"lse.dtype", "f16", "f32"});
  refuse([&](Tensors& t) { t.lse = vector(DType::f32, 9); }, {"lse", "9 x 1", "8 elements"});
  refuse([&](Tensors& t) { t.argmax = vector(DType::i32, 8); }, {"argmax.dtype", "i32", "i64"});
  refuse([&](Tensors& t) { t.argmax = vector(DType::i64, 1); }, {"argmax", "1 x 1", "8 elements"});
  refuse([&](Tensors& t) { t.hit = vector(DType::i32, 8); }, {"hit.dtype", "i32", "u8"});
  refuse(
      [&](Tensors& t) {
        t.lse = vector(DType::f32, 8);
        t.hit = vector(DType::u8, 8);
      },
      {"hit.data", "overlapping lse", "memory of its own"});
  refuse([&](Tensors& t) { t.argmax = targets->tensor(); },
         {"argmax.data", "overlapping target", "memory of its own"});
}

TEST_F(Arguments, OfCrossEntropyBackward) {
  const CrossEntropyBackward::Tensors right{.logits = entropy.logits,
                                            .target = entropy.target,
                                            .lse = vector(DType::f32, rows),
                                            .grad = entropy.grad};
  const auto refuse_with = [&](const auto& change, const Expectation& expectation) {
    CrossEntropyBackward::Tensors tensors = right;
    change(tensors);
    expect_refused(CrossEntropyBackward{}, tensors, expectation);
  };
  using Tensors = CrossEntropyBackward::Tensors;
  refuse_with([](Tensors& t) { t.lse = {}; }, {"lse", "not given", "8 elements"});
  refuse_with([](Tensors& t) { t.lse.data = nullptr; }, {"lse.data", "null", "device memory"});
  refuse_with([](Tensors& t) { t.lse.dtype = DType::bf16; }, {"lse.dtype", "bf16", "f32"});
  refuse_with([](Tensors& t) { t.lse.data = t.grad.data; },
              {"lse.data", "overlapping grad", "memory of its own"});
  refuse_with([](Tensors& t) { t.grad = {}; }, {"grad", "not given", "8 x 64 elements, like logits"});
  refuse_with([](Tensors& t) { t.target.rows = 7; }, {"target", "7 x 1", "8 elements"});
  refuse_with(
      [this](Tensors& t) { t.upstream = {.data = losses->tensor().data, .dtype = DType::f16, .rows = 1}; },
      {"upstream.dtype", "f16", "the dtype of logits, or f32"});
}

}  // namespace
}  // namespace ce::test
