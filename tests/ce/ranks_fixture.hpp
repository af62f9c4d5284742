#pragma once
/// \file
/// Ranks of one process that share the classes, and what they and one rank with all classes compute.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {

/// Ranks that are threads, and gather by looking at each other's memory.
class ThreadRanks {
 public:
  explicit ThreadRanks(int size)
      : size_(size), states_(static_cast<std::size_t>(size)), sent_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] Communicator communicator(int rank) {
    State& state = states_.at(static_cast<std::size_t>(rank));
    state = {this, rank};
    return {.rank = rank, .size = size_, .all_gather = all_gather, .state = &state};
  }
  [[nodiscard]] int gathers() const { return gathers_; }
  std::chrono::milliseconds patience{120000};

 private:
  struct State {
    ThreadRanks* ranks = nullptr;
    int rank = 0;
  };
  struct Sent {
    const void* from = nullptr;
    std::size_t bytes = 0;
  };

  static const char* all_gather(void* state, const void* send, void* receive, std::size_t bytes, Stream) {
    auto& [ranks, rank] = *static_cast<State*>(state);
    return ranks->gather(rank, send, receive, bytes);
  }
  const char* gather(int rank, const void* send, void* receive, std::size_t bytes) {
    sent_[static_cast<std::size_t>(rank)] = {send, bytes};
    if (!meet()) return "a rank is missing";
    const bool fits = std::ranges::all_of(sent_, [bytes](const Sent& sent) { return sent.bytes == bytes; });
    for (std::size_t i = 0; fits && i < sent_.size(); ++i)
      std::memcpy(static_cast<std::byte*>(receive) + i * bytes, sent_[i].from, bytes);
    if (!meet()) return "a rank is missing";
    if (rank == 0) ++gathers_;
    return fits ? nullptr : "the ranks sent different numbers of bytes";
  }
  /// A barrier that no rank waits at for ever.
  bool meet() {
    std::unique_lock lock(mutex_);
    const int turn = turn_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++turn_;
      all_here_.notify_all();
      return true;
    }
    return all_here_.wait_for(lock, patience, [&] { return turn_ != turn; });
  }

  const int size_;
  std::vector<State> states_;
  std::vector<Sent> sent_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int arrived_ = 0, turn_ = 0, gathers_ = 0;
};

/// What a call may have beside logits, target and loss.
struct Given {
  CrossEntropy operation;
  DType dtype = DType::f32;
  bool probabilities = false, weight = false, grad = true, rows_upstream = false, row_weight = false,
       row_scale = false, divisor = false, outputs = true, entropy_upstream = false, nothing_counts = false;
  double shift = 0;  ///< of all logits
};

class Ranks : public ContextTest {
 protected:
  static constexpr std::int64_t rows = 9;
  std::int64_t classes = 83;
  /// With a target at each end of the parts between them.
  std::int64_t boundary = 28, next_boundary = 56;

  void SetUp() override {
    ContextTest::SetUp();
    if (IsSkipped()) return;
    if (tested_device() != "host") GTEST_SKIP() << "threads gather in the memory of the host";
    context_.emplace(options(Policy::lookup));
  }

  /// All numbers that a call leaves: the gradient first.
  using Results = std::vector<std::vector<double>>;

  /// The call on classes first to end.
  Results run(Context& context, const Given& given, std::int64_t first, std::int64_t end,
              const std::optional<Shard>& shard) {
    const std::int64_t columns = end - first;
    std::mt19937_64 random(seed_);
    const auto part = [&](const std::vector<double>& all) {
      std::vector<double> own;
      for (std::int64_t row = 0; row < rows; ++row)
        own.insert(own.end(), all.begin() + row * classes + first, all.begin() + row * classes + end);
      return own;
    };
    Matrix logits(context, given.dtype, rows, columns), grad(context, given.dtype, rows, columns),
        probabilities(context, given.dtype, rows, columns), target(context, DType::i64, rows, 1),
        weight(context, DType::f32, classes, 1), row_weight(context, DType::f32, rows, 1),
        row_scale(context, DType::f32, rows, 1), divisor(context, DType::f32, 1, 1),
        of_entropy(context, DType::f32, rows, 1), of_lse(context, DType::f32, rows, 1);
    const bool none = given.operation.reduction == Reduction::none;
    const std::int64_t losses = none ? rows : 1;
    Matrix upstream(context, DType::f32, given.rows_upstream ? rows : 1, 1),
        loss(context, DType::f32, losses, 1), z_loss(context, DType::f32, losses, 1),
        lse(context, DType::f32, rows, 1), argmax(context, DType::i64, rows, 1),
        hit(context, DType::u8, rows, 1), logprob(context, DType::f32, rows, 1),
        entropy(context, DType::f32, rows, 1);
    std::vector<double> shifted = random_values(rows * classes, random);
    for (double& x : shifted) x += given.shift;
    logits.set(part(shifted));
    std::vector<double> spread = random_values(rows * classes, random);
    for (double& p : spread) p = std::abs(p) / static_cast<double>(classes);
    probabilities.set(part(spread));
    // One at each end of every shard, and rows that are left out.
    std::vector<std::int64_t> targets{
        0, classes - 1, -100, boundary - 1, boundary, next_boundary - 1, next_boundary, -100, 11};
    if (given.nothing_counts) std::ranges::fill(targets, -100);
    target.set_indices(targets);
    std::vector<double> weights = random_values(classes, random);
    for (double& w : weights) w = std::abs(w);
    weight.set(weights);
    row_weight.set({1, 0.5, 2, 0, 1.5, 1, 1, 3, 0.25});
    row_scale.set({1, 0.5, 0.7, 2, 0, 1, 0.25, 3, 1});  // of which 0 is none: that row is NaN
    divisor.set({11});
    upstream.set(std::vector<double>(static_cast<std::size_t>(given.rows_upstream ? rows : 1), -1.5));
    of_entropy.set({1, -1, 0.5, 0, 2, 1, 1, 1, 1});
    of_lse.set({0.5, 0, 1, -1, 2, 0, 0, 1, 1});

    const auto if_so = [](bool so, const Matrix& matrix) { return so ? matrix.tensor() : Tensor{}; };
    const bool of_classes = !given.probabilities;
    const CrossEntropy::Tensors tensors{
        .logits = logits.tensor(),
        .target = given.probabilities ? probabilities.tensor() : target.tensor(),
        .weight = if_so(given.weight, weight),
        .upstream = if_so(given.grad, upstream),
        .loss = loss.tensor(),
        .grad = if_so(given.grad, grad),
        .z_loss_out = if_so(given.outputs && given.operation.z_loss != 0, z_loss),
        .lse = if_so(given.outputs, lse),
        .argmax = if_so(given.outputs, argmax),
        .hit = if_so(given.outputs && of_classes, hit),
        .logprob = if_so(given.outputs && of_classes, logprob),
        .entropy = if_so(given.outputs, entropy),
        .row_weight = if_so(given.row_weight, row_weight),
        .row_scale = if_so(given.row_scale, row_scale),
        .divisor = if_so(given.divisor, divisor),
        .entropy_upstream = if_so(given.entropy_upstream, of_entropy),
        .lse_upstream = if_so(given.entropy_upstream, of_lse)};
    if (shard)
      context.run(given.operation, tensors, *shard);
    else
      context.run(given.operation, tensors);
    context.check();
    Results results{given.grad ? grad.values() : std::vector<double>{}, loss.values()};
    for (const Matrix* output : {&z_loss, &lse, &logprob, &entropy}) results.push_back(output->values());
    for (const Matrix* output : {&argmax, &hit}) {
      const std::vector<std::int64_t> all = output->indices();
      results.emplace_back(all.begin(), all.end());
    }
    return results;
  }

  /// Calls `work` for each rank on a thread of its own.
  static void for_each_rank(std::size_t ranks, const std::function<void(std::size_t)>& work) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  /// What each of the ranks has; the shards are as equal as `first` says.
  std::vector<Results> run_ranks(const Given& given, const std::vector<std::int64_t>& first,
                                 ThreadRanks& group, RankPlan plan) {
    const auto ranks = static_cast<int>(first.size());
    std::vector<Results> all(first.size());
    for_each_rank(first.size(), [&](std::size_t own) {
      const auto rank = static_cast<int>(own);
      const std::int64_t end = rank + 1 < ranks ? first[own + 1] : classes;
      try {
        all[own] = run(*context_, given, first[own], end,
                       Shard{.communicator = group.communicator(rank),
                             .first_class = first[own],
                             .classes = classes,
                             .plan = plan});
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
    return all;
  }

  void expect_the_same(const Given& given, const std::vector<std::int64_t>& first) {
    ThreadRanks& group = groups_.emplace_back(static_cast<int>(first.size()));
    expect_the_same(given, first, group, RankPlan::automatic);
    EXPECT_EQ(group.gathers(), 3) << "the ranks agree, hear what rank 0 decides, and gather once";
  }
  void expect_the_same(const Given& given, const std::vector<std::int64_t>& first, ThreadRanks& group,
                       RankPlan plan) {
    const Results whole = run(*context_, given, 0, classes, std::nullopt);
    const std::vector<Results> ranks = run_ranks(given, first, group, plan);
    const double relative = given.dtype == DType::f32 ? 2e-5 : 3 * rounding(given.dtype);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {} of {}", rank, ranks.size()));
      const std::int64_t end = rank + 1 < ranks.size() ? first[rank + 1] : classes;
      ASSERT_FALSE(ranks[rank].empty()) << "it has failed";
      std::vector<double> grad;
      if (given.grad)
        for (std::int64_t row = 0; row < rows; ++row)
          grad.insert(grad.end(), whole[0].begin() + row * classes + first[rank],
                      whole[0].begin() + row * classes + end);
      expect_near(ranks[rank][0], grad, relative, 3e-6, "grad");
      for (std::size_t i = 1; i < whole.size(); ++i)
        expect_near(ranks[rank][i], whole[i], 2e-5, 5e-6, fmt::format("result {}", i).c_str());
      // Of bits, not of numbers.
      for (std::size_t i = 1; i < whole.size(); ++i)
        EXPECT_EQ(std::memcmp(ranks[rank][i].data(), ranks[0][i].data(), 8 * ranks[0][i].size()), 0);
    }
  }

  std::deque<ThreadRanks> groups_;  ///< each at an address of its own
  std::uint64_t seed_ = test_seed();
  std::optional<Context> context_;
};

}  // namespace ce::test
