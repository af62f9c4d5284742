#include "tuner/verify/trial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tuner/verify/elements.hpp"

namespace ce::generator {
namespace {

using Memory = std::vector<std::vector<std::byte>>;

/// Problems with every operation, option and layout at least once.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const Operation operation : {Operation::softmax, Operation::log_softmax, Operation::softmax_backward,
                                    Operation::log_softmax_backward})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const bool in_place : {false, true})
        all.push_back({.operation = operation, .dtype = dtype, .in_place = in_place});
  const Problem cross_entropy{.operation = Operation::cross_entropy, .gradient = true};
  const Problem outputs{.operation = Operation::cross_entropy,
                        .dtype = DType::bf16,
                        .target_dtype = DType::i32,
                        .loss_dtype = DType::bf16,
                        .weight_dtype = DType::bf16,
                        .upstream = Upstream::rows,
                        .gradient = true,
                        .weights = true,
                        .has = {.smoothing = true,
                                .z_loss = true,
                                .softcap = true,
                                .scale = true,
                                .z_loss_out = true,
                                .lse_out = true,
                                .argmax_out = true,
                                .hit_out = true}};
  for (Problem kind : {cross_entropy, outputs})
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
      kind.reduction = reduction;
      all.push_back(kind);
      all.push_back(kind);
      all.back().in_place = true;
      all.push_back(kind);
      all.back().probabilities = true;
      all.back().has.hit_out = false;
      all.push_back(kind);
      all.back().operation = Operation::cross_entropy_backward;
      all.back().has.z_loss_out = all.back().has.lse_out = all.back().has.argmax_out =
          all.back().has.hit_out = false;
      all.push_back(kind);
      all.back().gradient = false;
      all.back().upstream = Upstream::one;
    }
  for (const Operation ceiling : {Operation::copy, Operation::read, Operation::add})
    all.push_back({.operation = ceiling});
  for (std::size_t i = 0; i < all.size(); ++i) {
    Problem& problem = all[i];
    problem.rows = 64;
    problem.columns = i % 5 == 4 ? 1 : 37;
    if (is_ceiling(problem.operation)) continue;
    problem.batched = i % 2 == 1;
    problem.strided = i % 7 == 3;
    if (!problem.strided) problem.alignment = alignments.at(i / 2 % alignments.size());
    if (problem.alignment == Alignment::dense && !can_be_dense(problem))
      problem.alignment = Alignment::shifted;
    if (problem.in_place && inputs(problem) == 1 && problem.alignment == Alignment::element)
      problem.alignment = Alignment::shifted;  // the same memory is never misaligned
  }
  return all;
}

/// What a right kernel leaves behind.
Memory right_answer(const Trial& trial) {
  Memory memory;
  for (const TrialTensor& tensor : trial.tensors) {
    std::vector<std::byte>& bytes = memory.emplace_back(tensor.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = tensor.initial[i % tensor.initial.size()];
  }
  for (const Expected& expected : trial.expected)
    for (std::int64_t row = 0; row < expected.rows; ++row) {
      const auto first = expected.values.begin() + row * expected.columns;
      std::vector<double> values(first, first + expected.columns);
      write_elements(expected.dtype, memory[expected.tensor].data() + trial.tensors[expected.tensor].offset,
                     expected.row_offset(row), expected.layout.column, values);
    }
  for (const ExpectedBytes& expected : trial.expected_bytes)
    std::memcpy(memory[expected.tensor].data(), expected.bytes.data(), expected.bytes.size());
  return memory;
}

TEST(Trial, TheRightAnswerIsRight) {
  for (const Problem& problem : problems()) {
    validate(problem);
    for (const Trial& trial : verification_trials(problem, 1)) {
      EXPECT_EQ(mismatch(trial, right_answer(trial)), std::nullopt) << title(problem);
      EXPECT_FALSE(trial.expected.empty() && trial.expected_bytes.empty());
    }
  }
}

/// mismatch() is what every verification rests on: it must see one wrong element of any output.
TEST(Trial, AWrongElementIsSeen) {
  for (const Problem& problem : problems())
    for (const Trial& trial : verification_trials(problem, 2))
      for (const Expected& expected : trial.expected)
        for (const std::int64_t row : {std::int64_t{0}, expected.rows - 1}) {
          Memory wrong = right_answer(trial);
          std::byte* start = wrong[expected.tensor].data() + trial.tensors[expected.tensor].offset;
          const std::int64_t last =
              expected.row_offset(row) + (expected.columns - 1) * expected.layout.column;
          const double value = read_element(expected.dtype, start, last);
          const bool whole = !is_floating(expected.dtype);
          write_element(expected.dtype, start, last,
                        std::isfinite(value) ? (whole ? std::abs(value - 1) : value * 1.05 + 0.01) : 0.);
          EXPECT_TRUE(mismatch(trial, wrong))
              << trial.tensors[expected.tensor].name << " of " << title(problem);
        }
}

/// What is too large for the dtype becomes an infinity, but of its own sign, and nothing else does.
TEST(Trial, AWrongInfinityIsSeen) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::byte stored[4];
    write_element(dtype, stored, 0, generator::largest(dtype));
    EXPECT_EQ(read_element(dtype, stored, 0), generator::largest(dtype)) << name(dtype);
  }
  const Problem softmax{.operation = Operation::softmax, .dtype = DType::f16, .rows = 1, .columns = 1};
  Trial trial = verification_trials(softmax, 1).front();
  Expected& output = trial.expected.front();
  const auto agrees = [&](double want, double got) {
    output.values.assign(output.values.size(), want);
    Memory memory = right_answer(trial);
    std::byte* start = memory[output.tensor].data() + trial.tensors[output.tensor].offset;
    write_element(output.dtype, start, output.row_offset(0), got);
    return !mismatch(trial, memory);
  };
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_TRUE(agrees(1e6, infinity));
  EXPECT_FALSE(agrees(1e6, -infinity));
  EXPECT_FALSE(agrees(1, infinity));
  EXPECT_FALSE(agrees(infinity, 1));
  EXPECT_FALSE(agrees(nan, 1));
  EXPECT_FALSE(agrees(1, nan));
  EXPECT_TRUE(agrees(nan, nan));
}

/// Also between batches, behind rows and in front of the first.
TEST(Trial, AWriteOutsideOfTheRowsIsSeen) {
  for (const Problem& problem : problems())
    for (const Trial& trial : verification_trials(problem, 3))
      for (const Expected& expected : trial.expected) {
        const auto size = static_cast<std::size_t>(size_of(expected.dtype));
        std::vector<bool> owned(trial.tensors[expected.tensor].bytes / size);
        const std::size_t start = trial.tensors[expected.tensor].offset / size;
        for (std::int64_t row = 0; row < expected.rows; ++row)
          for (std::int64_t i = 0; i < expected.columns; ++i)
            owned[start + static_cast<std::size_t>(expected.row_offset(row) + i * expected.layout.column)] =
                true;
        Memory memory = right_answer(trial);
        for (std::size_t at = 0; at < owned.size(); at += 1 + at / 8) {
          if (owned[at]) continue;
          std::byte& byte = memory[expected.tensor][at * size];
          byte ^= std::byte{1};
          EXPECT_TRUE(mismatch(trial, memory)) << title(problem) << ", element " << at;
          byte ^= std::byte{1};
        }
      }
}

TEST(Trial, ChangedInputsAndCountersAreSeen) {
  for (const Problem& problem : problems())
    for (const Trial& trial : verification_trials(problem, 4)) {
      Memory memory = right_answer(trial);
      const auto flipped = [&](std::size_t tensor, std::size_t byte) {
        memory[tensor][byte] ^= std::byte{1};
        const bool seen = mismatch(trial, memory).has_value();
        memory[tensor][byte] ^= std::byte{1};
        return seen;
      };
      for (const ExpectedBytes& expected : trial.expected_bytes)
        EXPECT_TRUE(flipped(expected.tensor, expected.bytes.size() - 1))
            << trial.tensors[expected.tensor].name;
      for (std::size_t i = 0; i < trial.tensors.size(); ++i) {
        if (!trial.tensors[i].read_only) continue;
        EXPECT_TRUE(flipped(i, memory[i].size() - 1)) << trial.tensors[i].name;
      }
    }
}

/// Where its probability is 1 - 10^-6 or more, the gradient and the loss of a target are as exact as any
/// other: a kernel that subtracts almost equal numbers is found out.
TEST(Trial, CancellationIsSeen) {
  const Problem problem{.operation = Operation::cross_entropy, .gradient = true, .rows = 64, .columns = 1000};
  const std::vector<Trial> trials = verification_trials(problem, 5);
  ASSERT_EQ(trials.size(), 3u);
  const Trial& confident = trials.back();
  for (const Expected& expected : confident.expected) {
    std::int64_t small = 0;
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      const double want = expected.values[i];
      const double allowed = expected.absolute + expected.relative * std::abs(want);
      EXPECT_LE(allowed, 1e-4 * std::abs(want) + 1e-35);
      small += want != 0 && std::abs(want) < 1e-6;
    }
    EXPECT_GT(small, expected.rows / 2) << confident.tensors[expected.tensor].name;
    EXPECT_TRUE(expected.slack.empty());
  }
}

/// The matrices lie as the problem says.
TEST(Trial, PlacementsAreOfTheAlignmentClass) {
  for (const Problem& problem : problems()) {
    if (problem.strided || is_ceiling(problem.operation)) continue;
    std::vector<Trial> trials = verification_trials(problem, 6);
    trials.push_back(timing_trial(problem, 6));
    for (const Trial& trial : trials) {
      std::vector<RowPlacement> matrices;
      const auto add = [&](const char* name, const Layout& layout) {
        const auto tensor = std::ranges::find(trial.tensors, name, &TrialTensor::name);
        if (tensor != trial.tensors.end())
          matrices.push_back(
              {tensor->offset, layout.row * size_of(problem.dtype), layout.batch * size_of(problem.dtype)});
      };
      add("input", trial.arguments.input_layout);
      add("second", trial.arguments.second_layout);
      add("output", trial.arguments.output_layout);
      const bool can_differ = matrices.size() > 1;
      const std::int64_t row_bytes = problem.columns * size_of(problem.dtype);
      EXPECT_EQ(
          alignment_of(problem.rows, row_bytes, matrices),
          problem.alignment == Alignment::element && !can_differ ? Alignment::shifted : problem.alignment)
          << title(problem);
      EXPECT_EQ(trial.arguments.batch_rows > 0, problem.batched);
      const Layout& input = trial.arguments.input_layout;
      if (problem.batched) {
        EXPECT_GE(input.batch, (trial.arguments.batch_rows + 1) * input.row) << "else rows are evenly apart";
      }
    }
  }
}

/// A kernel that reads or writes beside its row meets poison, and is seen.
TEST(Trial, RowsOfAFewElementsLieApart) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element})
      for (std::int64_t columns = 1; columns <= 33; ++columns)
        for (const Operation operation : {Operation::softmax_backward, Operation::cross_entropy}) {
          Problem problem{.operation = operation, .dtype = dtype};
          problem.gradient = is_cross_entropy(operation);
          problem.alignment = alignment;
          problem.rows = 33;
          problem.columns = columns;
          const std::int64_t least = columns + 16 / size_of(dtype);
          for (const Trial& trial : verification_trials(problem, 6)) {
            EXPECT_GE(trial.arguments.input_layout.row, least) << title(problem);
            EXPECT_GE(trial.arguments.output_layout.row, least) << title(problem);
          }
        }
}

TEST(Trial, ATimingNeedsLittleMemory) {
  const Problem problem{.operation = Operation::cross_entropy,
                        .dtype = DType::bf16,
                        .reduction = Reduction::mean,
                        .gradient = true,
                        .in_place = true,
                        .rows = 4096,
                        .columns = 32000};
  const Trial trial = timing_trial(problem, 1);
  std::size_t bytes = 0, on_host = 0;
  for (const TrialTensor& tensor : trial.tensors) {
    bytes += tensor.bytes;
    on_host += tensor.initial.size();
  }
  EXPECT_LT(bytes, static_cast<std::size_t>(problem.rows * (problem.columns * 2 + 32)));
  EXPECT_LT(on_host, std::size_t{2} << 20);
}

/// Ranks are late by a part of what a row takes, so that shards of twice the width are timed with twice the lag of a
/// cluster; and right results are asked for with and without.
TEST(Trial, OfRanksThatExchangeHearsLateOfRows) {
  const auto headers = [](const std::vector<Trial>& trials) {
    std::vector<PeerExchange> all;
    for (const Trial& trial : trials)
      for (const TrialTensor& tensor : trial.tensors)
        if (tensor.name == "exchange")
          std::memcpy(&all.emplace_back(), tensor.initial.data(), sizeof(PeerExchange));
    return all;
  };
  Problem problem{.operation = Operation::cross_entropy_exchange,
                  .dtype = DType::bf16,
                  .gradient = true,
                  .rows = 4,
                  .columns = 16384};
  const PeerExchange narrow = headers({timing_trial(problem, 1)}).at(0);
  EXPECT_GT(narrow.lag, 0U);
  EXPECT_GT(narrow.lag_of_cluster, 0U);
  problem.columns *= 2;
  const PeerExchange wide = headers({timing_trial(problem, 1)}).at(0);
  EXPECT_EQ(wide.lag, narrow.lag);
  EXPECT_NEAR(wide.lag_of_cluster, 2 * narrow.lag_of_cluster, 1);
  const std::vector<PeerExchange> verified = headers(verification_trials(problem, 1));
  const auto is_late = [](const PeerExchange& header) { return header.lag > 0; };
  EXPECT_TRUE(std::ranges::any_of(verified, is_late));
  EXPECT_FALSE(std::ranges::all_of(verified, is_late));
}

}  // namespace
}  // namespace ce::generator
