// What rank 0 decides for all: the kernels that every rank runs, which way a call goes, and what comes of it where rank 0 or
// another rank cannot.
#include "ce/rank_decision.hpp"

#include <gmock/gmock.h>

#include "ce/counters.hpp"
#include "ce/error.hpp"
#include "ce/rank_exchange.hpp"
#include "generator/variant.hpp"
#include "runtime/host/device.hpp"
#include "tests/ce/ranks_fixture.hpp"
#include "tests/tuner/device_decorator.hpp"

namespace ce::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DecidingRanks : public Ranks {
 protected:
  static constexpr std::int64_t columns = 28;

  /// What a Context runs for the statistics of a shard.
  Choice choice_of(Context& context) {
    Matrix logits(context, DType::f32, rows, columns), target(context, DType::i64, rows, 1),
        statistics(context, DType::f32, rows, 3);
    return context
        .prepare(CrossEntropyShard{.first_class = 0, .classes = classes},
                 {.logits = logits.tensor(), .target = target.tensor(), .statistics = statistics.tensor()})
        .choice();
  }
  /// Makes the Context run another config than its own for that.
  Choice run_another(Context& context) {
    const Choice own = choice_of(context);
    const generator::Config config = generator::parse_config(own.config);
    for (const generator::Config& other : generator::variant(config.variant).points()) {
      const std::string text = generator::to_text(other);
      if (text == own.config) continue;
      context.use(own.key, text);
      if (const Choice now = choice_of(context); now.config == text) return now;
    }
    ADD_FAILURE() << "there is but one config";
    return own;
  }
  /// A call of every rank with equal shards, a Context for each `ranks_of_one` of them.
  /// \returns what went wrong, or nothing
  std::vector<std::string> call(std::deque<Context>& contexts, int ranks_of_one, bool grad) {
    const int ranks = static_cast<int>(contexts.size()) * ranks_of_one;
    classes = ranks * columns;
    boundary = columns, next_boundary = classes - 1;
    ThreadRanks& group = groups_.emplace_back(ranks);
    group.patience = std::chrono::seconds(200);
    std::vector<std::string> heard(static_cast<std::size_t>(ranks));
    Given given{.operation = {.reduction = Reduction::none}, .grad = grad, .outputs = false};
    for_each_rank(heard.size(), [&](std::size_t own) {
      const auto rank = static_cast<int>(own);
      try {
        static_cast<void>(run(contexts.at(static_cast<std::size_t>(rank / ranks_of_one)), given,
                              rank * columns, (rank + 1) * columns,
                              Shard{.communicator = group.communicator(rank),
                                    .first_class = rank * columns,
                                    .classes = classes}));
      } catch (const Error& error) {
        heard[own] = error.what();
      }
    });
    return heard;
  }
};

TEST_F(DecidingRanks, AllRunWhatRankZeroRuns) {
  std::deque<Context> contexts;
  for (int i = 0; i < 8; ++i) contexts.emplace_back(options(Policy::lookup));
  classes = 64 * columns;
  const std::string own = choice_of(contexts.back()).config;
  const Choice of_rank_0 = run_another(contexts.front());
  ASSERT_NE(of_rank_0.config, own);
  for (const std::string& heard : call(contexts, 8, false)) EXPECT_EQ(heard, "");
  for (Context& context : contexts) {
    const Choice choice = choice_of(context);
    EXPECT_EQ(choice.config, of_rank_0.config);
    EXPECT_EQ(name(choice.origin), "assigned");
    EXPECT_EQ(choice.key, of_rank_0.key);
  }
}

/// The others neither tune nor wait for a search of their own.
TEST_F(DecidingRanks, OneTunesForAll) {
  std::deque<Context> contexts;
  for (const char* rank : {"0", "1"}) {
    ContextOptions chosen = options(Policy::tune);
    chosen.database += rank;
    chosen.tuning_seconds = 0.01;
    contexts.emplace_back(chosen);
  }
  const std::uint64_t before = shared_counters().tuned;
  for (const std::string& heard : call(contexts, 1, false)) EXPECT_EQ(heard, "");
  EXPECT_EQ(shared_counters().tuned - before, 2u) << "statistics and merge, each once";
  const Choice decided = choice_of(contexts.front()), assigned = choice_of(contexts.back());
  EXPECT_EQ(assigned.config, decided.config);
  EXPECT_GT(decided.row_us, 0);
  EXPECT_EQ(name(assigned.origin), "assigned");
  EXPECT_EQ(assigned.row_us, 0) << "this one has measured nothing";
}

TEST_F(DecidingRanks, HearOfItWhereRankZeroCannot) {
  std::deque<Context> contexts;
  contexts.emplace_back(options(Policy::frozen));
  contexts.emplace_back(options(Policy::lookup));
  const std::vector<std::string> heard = call(contexts, 1, false);
  EXPECT_THAT(heard[0], AllOf(HasSubstr("the policy is frozen"), Not(HasSubstr("rank 0"))));
  EXPECT_EQ(heard[1], "rank 0: " + heard[0]);
}

TEST_F(DecidingRanks, RunTheirOwnWhereAConfigCannotServe) {
  const Choice own = choice_of(*context_);
  const LogLines log;
  context_->use(own.key, "block/warps=1024,vec=1,load=default,store=default");
  EXPECT_EQ(choice_of(*context_).config, own.config);
  context_->use(own.key, "no config");
  EXPECT_EQ(choice_of(*context_).config, own.config);
  EXPECT_EQ(log.count(LogLevel::warning, "cannot be used on this rank"), 2u);
}

/// A GPU that a collective keeps busy for good.
class BusyDevice : public DeviceDecorator {
 public:
  BusyDevice() : DeviceDecorator(runtime::open_host_device()) {}
  bool is_idle(Stream) override { return false; }
};

TEST(WaitingRanks, GiveUpInTime) {
  BusyDevice device;
  Communicator communicator{
      .rank = 3,
      .size = 1,
      .all_gather = [](void*, const void* send, void* receive, std::size_t bytes, Stream) -> const char* {
        std::memcpy(receive, send, bytes);
        return nullptr;
      },
      .patience = 0.05};
  const auto message = [&] {
    try {
      static_cast<void>(gather_from_ranks(device, communicator, std::as_bytes(std::span("words")), nullptr));
    } catch (const DeviceError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(message(), AllOf(HasSubstr("the all-gather of rank 3"), HasSubstr("within 0.05 s")));
  communicator.patience = 600;
  communicator.failure = [](void*) -> const char* { return "a rank is gone"; };
  EXPECT_THAT(message(), HasSubstr("a rank is gone"));
}

TEST_F(DecidingRanks, CheckAsksTheCommunicator) {
  Communicator communicator = groups_.emplace_back(1).communicator(0);
  EXPECT_NO_THROW(context_->check(communicator, nullptr));
  communicator.failure = [](void*) -> const char* { return "a rank is gone"; };
  EXPECT_THROW(context_->check(communicator, nullptr), DeviceError);
}

/// Each rank compares the same figures as rank 0 alone has them; the widest shard counts.
TEST(RankTimes, DecideByTheWidestShard) {
  RankTimes times{.shard = 1, .merge = 0.1, .backward = 1, .exchange = 2.2, .all_gather = 20};
  EXPECT_TRUE(exchange_is_faster(times, 100, 1)) << "220 us against 210 and the all-gather";
  EXPECT_FALSE(exchange_is_faster(times, 1000, 1)) << "2200 us against 2120";
  EXPECT_FALSE(exchange_is_faster(times, 100, 2)) << "440 us against 430";
  times.exchange = 1.5;
  EXPECT_TRUE(exchange_is_faster(times, 1000, 1));
  times.exchange = 100;
  times.merge = 0;
  EXPECT_TRUE(exchange_is_faster(times, 1000, 1)) << "a time is not known";
}

}  // namespace
}  // namespace ce::test
