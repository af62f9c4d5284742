// Ranks whose kernels tell each other of rows while they run, as threads of one process: the results of one rank with all
// classes, call after call; ranks that come late or not at all; and memory that does not fit.
#include "ce/rank_exchange.hpp"

#include <gmock/gmock.h>

#include <deque>
#include <future>
#include <memory>

#include "ce/error.hpp"
#include "ce/peer_memory.hpp"
#include "runtime/host/device.hpp"
#include "tests/ce/ranks_fixture.hpp"
#include "tests/environment.hpp"

namespace ce::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ExchangingRanks : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    classes = 9400;
    boundary = 2800, next_boundary = 6000;
  }
  const std::vector<std::int64_t> three{0, 2800, 6000};

  /// Memory of so many ranks, connected.
  std::vector<PeerMemory> memories(int ranks, double patience, std::int64_t rows_of_all = rows) {
    std::vector<PeerMemory> all;
    std::vector<std::byte> descriptions;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back(context_->peer_memory({.rank = rank,
                                           .ranks = ranks,
                                           .bytes = PeerMemory::bytes_for(ranks, rows_of_all, 3),
                                           .patience = patience}));
      const auto own = all.back().description();
      descriptions.insert(descriptions.end(), own.begin(), own.end());
    }
    for (PeerMemory& memory : all) memory.connect(descriptions);
    return all;
  }

  /// A call of one of two ranks with 3,000 classes each. \returns the losses of its rows
  std::vector<double> call(const PeerView& peers, int rank) {
    constexpr std::int64_t columns = 3000;
    Matrix logits(*context_, bf16, rows, columns), grad(*context_, bf16, rows, columns),
        target(*context_, DType::i64, rows, 1), loss(*context_, DType::f32, rows, 1);
    std::mt19937_64 random(seed_ + static_cast<std::uint64_t>(rank));
    logits.set(random_values(rows * columns, random));
    target.set_indices({0, 1, 2, 3, 3000, 3001, 5999, 7, 8});
    context_->run(
        CrossEntropyExchange{.options = {.reduction = Reduction::none},
                             .first_class = rank * columns,
                             .classes = 2 * columns,
                             .peers = peers},
        {.logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor(), .grad = grad.tensor()});
    return loss.values();
  }

  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }
};

TEST_F(ExchangingRanks, HaveTheResultsOfOneWithAllClasses) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  const std::vector<Given> calls{
      {.operation = {}, .dtype = bf16},
      {.operation = {.reduction = Reduction::none, .label_smoothing = 0.1f}, .rows_upstream = true},
      {.operation = {.reduction = Reduction::sum, .z_loss = 1e-2f, .logit_scale = 0.7f}, .dtype = bf16},
      {.operation = {.label_smoothing = 0.2f, .softcap = 5}, .dtype = bf16, .weight = true},
      {.operation = {.softcap = 40}, .dtype = f16, .row_weight = true, .divisor = true},
      {.operation = {.label_smoothing = 0.1f, .z_loss = 1e-3f}, .probabilities = true, .weight = true},
      {.operation = {.reduction = Reduction::none, .token_scaling = 1},
       .row_weight = true,
       .entropy_upstream = true},
      {.operation = {.softcap = 5}, .dtype = bf16, .outputs = false, .entropy_upstream = true},
      {.operation = {.reduction = Reduction::none, .softcap = 5}, .dtype = bf16, .row_scale = true},
  };
  for (std::size_t call = 0; call < calls.size(); ++call) {
    if (!is_drawn(seed_, call, 4)) continue;
    SCOPED_TRACE(fmt::format("call {}", call));
    ThreadRanks& group = groups_.emplace_back(3);
    expect_the_same(calls[call], three, group, RankPlan::exchange);
    EXPECT_EQ(group.gathers(), 4)
        << "the ranks agree, find each other's memory, hear what rank 0 decides, and gather nothing else";
  }
}

/// What a call leaves behind does not pass for the next one's; a call without a row that counts tells no rank anything.
TEST_F(ExchangingRanks, CallOneAfterTheOther) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  ThreadRanks& group = groups_.emplace_back(3);
  for (const bool nothing_counts : {false, true, false, false}) {
    Given given{.operation = {.reduction = Reduction::none}, .dtype = bf16, .outputs = false};
    given.nothing_counts = nothing_counts;
    expect_the_same(given, three, group, RankPlan::exchange);
    ++seed_;
  }
  EXPECT_EQ(group.gathers(), 4);
}

/// Without being asked to, too; and not where there is no gradient, or they are asked to gather.
TEST_F(ExchangingRanks, AreThoseThatCan) {
  const Given given{.operation = {.reduction = Reduction::none}, .dtype = bf16, .outputs = false};
  Given loss_alone = given;
  loss_alone.grad = false;
  ThreadRanks& group = groups_.emplace_back(3);
  expect_the_same(given, three, group, RankPlan::automatic);
  EXPECT_EQ(group.gathers(), 9) << "with 5 that are timed";
  for (const auto& [call, plan] :
       {std::pair<const Given*, RankPlan>{&loss_alone, RankPlan::automatic}, {&given, RankPlan::gather}}) {
    expect_the_same(*call, three, groups_.emplace_back(3), plan);
    EXPECT_EQ(groups_.back().gathers(), 3);
  }
}

/// Where all kernels were measured, rank 0's times decide for all.
TEST_F(ExchangingRanks, AreThoseThatAreFasterSo) {
  const Given given{.operation = {.reduction = Reduction::none}, .dtype = bf16, .outputs = false};
  ContextOptions chosen = options(Policy::tune);
  chosen.tuning_seconds = 0.01;
  context_.emplace(chosen);
  ThreadRanks& group = groups_.emplace_back(3);
  group.patience = std::chrono::seconds(200);
  const LogLines log;
  expect_the_same(given, three, group, RankPlan::automatic);
  EXPECT_EQ(log.count(LogLevel::info, "us by exchange"), 1u) << "rank 0 says so";
  EXPECT_THAT(group.gathers(), testing::AnyOf(9, 10)) << "without and with one of statistics";
  const int decided = group.gathers();
  expect_the_same(given, three, group, RankPlan::automatic);
  EXPECT_EQ(group.gathers() - decided, decided - 9) << "for good";
}

TEST_F(ExchangingRanks, OfWhichOneCannotAllHearOfIt) {
  classes = 83, boundary = 28, next_boundary = 56;
  ThreadRanks& group = groups_.emplace_back(2);
  std::vector<std::string> heard(2);
  for_each_rank(2, [&](std::size_t own) {
    const auto rank = static_cast<int>(own);
    const std::int64_t first = rank * 28, end = rank == 0 ? 28 : classes;
    heard[own] = refusal([&] {
      run(*context_, {}, first, end,
          Shard{.communicator = group.communicator(rank),
                .first_class = first,
                .classes = classes,
                .plan = RankPlan::exchange});
    });
  });
  EXPECT_THAT(heard[0], AllOf(HasSubstr("CrossEntropy"), HasSubstr("cannot exchange"),
                              HasSubstr("no kernel for an exchange")));
  EXPECT_EQ(heard[1], heard[0]);
}

TEST_F(ExchangingRanks, WaitForOneThatIsLate) {
  std::vector<PeerMemory> both = memories(2, 60);
  for (const int late_ms : {0, 300}) {  // the first call is that which compiles
    auto first = std::async([&] { return call(both[0].view(), 0); });
    std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
    const std::vector<double> second = call(both[1].view(), 1);
    EXPECT_EQ(first.get(), second);
    EXPECT_FALSE(std::isnan(second.front())) << late_ms << " ms late";
  }
  EXPECT_NO_THROW(context_->check());
}

/// A rank that waited gives up, has NaN, and tells the others: the one that comes too late hears of it, too.
TEST_F(ExchangingRanks, OfWhichOneIsMissingGiveUpInTime) {
  std::vector<PeerMemory> both = memories(2, 0.2);
  EXPECT_EQ(both[1].failure(), std::nullopt);
  for (const double loss : call(both[0].view(), 0)) EXPECT_TRUE(std::isnan(loss));
  const std::string missing = "rank 1 did not take part within 0.2 s";
  EXPECT_EQ(both[0].failure(), missing);
  EXPECT_EQ(both[1].failure(), missing);
  EXPECT_THAT(refusal([&] { context_->check(); }),
              AllOf(HasSubstr("the exchange of rank"), HasSubstr(missing)));
  for (const double loss : call(both[1].view(), 1)) EXPECT_TRUE(std::isnan(loss));
  EXPECT_THAT(refusal([&] { context_->check(); }), HasSubstr(missing));
  // For good: no rank is waited for any more, and each rank has said so once.
  for (const double loss : call(both[0].view(), 0)) EXPECT_TRUE(std::isnan(loss));
  EXPECT_EQ(refusal([&] { context_->check(); }), "nothing");
}

/// A rank that fails before its kernel runs.
TEST_F(ExchangingRanks, HearOfOneThatGivesUp) {
  std::vector<PeerMemory> both = memories(2, 60);
  both[1].give_up();
  EXPECT_THAT(both[0].failure().value_or(""), HasSubstr("rank 1 did not take part"))
      << "and waits for nobody";
  for (const double loss : call(both[0].view(), 0)) EXPECT_TRUE(std::isnan(loss));
}

/// Also where no kernel of a rank can be compiled, once all have agreed to exchange.
TEST_F(ExchangingRanks, HearOfOneWhoseCallFails) {
  classes = 6000, boundary = 3000, next_boundary = 5999;
  std::deque<Context> contexts;
  contexts.emplace_back(options(Policy::lookup));
  {
    ContextOptions of_rank_1 = options(Policy::lookup);
    of_rank_1.database += "1";
    const ScopedEnvironment none("CE_HOST_COMPILER", "/nonexistent/c++");
    contexts.emplace_back(of_rank_1);
  }
  ThreadRanks& group = groups_.emplace_back(2);
  const Given given{.operation = {.reduction = Reduction::none}, .dtype = bf16, .outputs = false};
  std::vector<std::string> heard(2);
  for_each_rank(2, [&](std::size_t own) {
    const auto rank = static_cast<int>(own);
    const Shard shard{.communicator = group.communicator(rank),
                      .first_class = rank * boundary,
                      .classes = classes,
                      .plan = RankPlan::exchange};
    heard[own] = refusal([&] {
      static_cast<void>(run(contexts.at(own), given, shard.first_class, shard.first_class + boundary, shard));
    });
  });
  EXPECT_THAT(heard[0], HasSubstr("rank 1 did not take part")) << "and does not wait for it";
  EXPECT_THAT(heard[1], HasSubstr("/nonexistent/c++"));
}

/// One memory serves all calls of a communicator that fit it; larger ones have another, and so has what comes after them.
TEST_F(ExchangingRanks, HaveMemoryForTheLargestCallSoFar) {
  const std::unique_ptr<runtime::Device> device = runtime::open_host_device();
  PeerMemories memories;
  RankExchanges exchanges;
  const Communicator communicator = groups_.emplace_back(1).communicator(0);
  const auto get = [&](std::int64_t of_rows, bool fixed) {
    return exchanges
        .get(*device, memories, communicator, PeerMemory::bytes_for(1, of_rows, 3), nullptr, fixed)
        .view;
  };
  const PeerView small = get(rows, false);
  EXPECT_EQ(get(rows, true), small);
  EXPECT_EQ(get(1, false), small);
  EXPECT_EQ(get(100 * rows, true), PeerView{}) << "nothing can be made while a call is captured";
  const PeerView large = get(100 * rows, false);
  EXPECT_GE(large.bytes, PeerMemory::bytes_for(1, 100 * rows, 3));
  EXPECT_NE(large.memory, small.memory) << "which graphs may still use";
  EXPECT_EQ(get(rows, true), large);
}

TEST_F(ExchangingRanks, NeedMemoryThatFits) {
  const std::int64_t least = PeerMemory::bytes_for(2, 0, 1);
  const auto memory = [&](PeerMemory::Options options) {
    return refusal([&] { static_cast<void>(context_->peer_memory(options)); });
  };
  EXPECT_THAT(memory({.rank = 2, .ranks = 2, .bytes = least}), AllOf(HasSubstr("rank"), HasSubstr("0 to 1")));
  EXPECT_THAT(memory({.rank = 0, .ranks = 0, .bytes = least}), HasSubstr("ranks"));
  EXPECT_THAT(memory({.rank = 0, .ranks = 2, .bytes = least - 1}), HasSubstr("bytes_for"));
  EXPECT_THAT(memory({.rank = 0, .ranks = 2, .bytes = least, .patience = 0}), HasSubstr("patience"));

  PeerMemory one = context_->peer_memory({.rank = 0, .ranks = 2, .bytes = least});
  PeerMemory other = context_->peer_memory({.rank = 1, .ranks = 2, .bytes = least + 16});
  EXPECT_THAT(refusal([&] { static_cast<void>(one.view()); }), HasSubstr("connect()"));
  std::vector<std::byte> descriptions(one.description().begin(), one.description().end());
  EXPECT_THAT(refusal([&] { one.connect(descriptions); }), HasSubstr("128 for each of 2 ranks"));
  descriptions.insert(descriptions.end(), other.description().begin(), other.description().end());
  EXPECT_THAT(refusal([&] { one.connect(descriptions); }), HasSubstr("on rank 1"));
  std::ranges::rotate(descriptions, descriptions.begin() + PeerMemory::description_bytes);
  EXPECT_THAT(refusal([&] { one.connect(descriptions); }),
              HasSubstr("the descriptions of all ranks in their order"));

  std::vector<PeerMemory> both = memories(2, 1, rows - 1);
  EXPECT_THAT(
      refusal([&] { call(both[0].view(), 0); }),
      AllOf(HasSubstr("CrossEntropyExchange"), HasSubstr("peers.bytes"), HasSubstr("9 rows of 3 words")));
  EXPECT_THAT(refusal([&] { call({}, 0); }), HasSubstr("peers.memory"));
}

TEST_F(ExchangingRanks, CannotBeOfAnotherHostOrFormatOrOfOneGpu) {
  const std::int64_t bytes = PeerMemory::bytes_for(2, 9, 3);
  PeerMemory one = context_->peer_memory({.rank = 0, .ranks = 2, .bytes = bytes}),
             other = context_->peer_memory({.rank = 1, .ranks = 2, .bytes = bytes});
  std::vector<std::byte> both(one.description().begin(), one.description().end());
  both.insert(both.end(), other.description().begin(), other.description().end());
  const auto with = [&](std::size_t changed) {
    std::vector<std::byte> all = both;
    all[PeerMemory::description_bytes + changed] ^= std::byte{1};
    return refusal([&] { one.connect(all); });
  };
  EXPECT_THAT(with(0), HasSubstr("another format for rank 1"));
  EXPECT_THAT(with(8), HasSubstr("rank 1 cannot be reached: it is on another host"));
  EXPECT_THAT(with(24), AllOf(HasSubstr("rank 1 cannot be reached"), HasSubstr("another process")));
  // As those of two ranks on one GPU are.
  constexpr std::size_t device = 40;
  std::copy_n(both.begin() + device, 8,
              both.begin() + static_cast<std::ptrdiff_t>(PeerMemory::description_bytes + device));
  EXPECT_THAT(refusal([&] { one.connect(both); }),
              HasSubstr("rank 1 cannot be reached: it uses the same GPU"));
}

}  // namespace
}  // namespace ce::test
