// The table of chosen kernels by itself.
#include "ce/plan_table.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/host/device.hpp"

namespace ce::test {
namespace {

using generator::Problem;

class PlanTableTest : public testing::Test {
 protected:
  /// A kernel that is never launched: it has no steps.
  const PlanTable::Entry& put(const Problem& problem, const std::string& config, bool provisional = false) {
    return table.put(problem, tuner::Kernel(*device, {}),
                     {.config = config, .reason = "", .key = "", .provisional = provisional});
  }
  static Problem wide(std::int64_t columns) {
    return {.operation = generator::Operation::softmax, .rows = 64, .columns = columns};
  }

  std::unique_ptr<runtime::Device> device = runtime::open_host_device();
  PlanTable table;
};

TEST_F(PlanTableTest, FindsWhatWasPut) {
  EXPECT_EQ(table.find(wide(1)), nullptr);
  const PlanTable::Entry& added = put(wide(1), "one");
  EXPECT_EQ(added.choice.config, "one");
  EXPECT_EQ(table.find(wide(1)), &added);
  EXPECT_EQ(table.find(wide(2)), nullptr);
}

TEST_F(PlanTableTest, RowsOfABucketHaveOnePlan) {
  Problem some = wide(1), most = some, more = some;
  some.rows = 33;
  most.rows = 64;
  more.rows = 65;
  const PlanTable::Entry& added = put(some, "one");
  EXPECT_EQ(table.find(most), &added);
  EXPECT_EQ(table.find(more), nullptr);
}

TEST_F(PlanTableTest, EveryMemberOfAProblemCounts) {
  const Problem base{.operation = generator::Operation::cross_entropy, .rows = 64, .columns = 100};
  std::vector<Problem> problems(12, base);
  problems[1].operation = generator::Operation::softmax;
  problems[2].dtype = DType::f16;
  problems[3].target_dtype = DType::i32;
  problems[4].loss_dtype = DType::bf16;
  problems[5].reduction = base.reduction == Reduction::sum ? Reduction::mean : Reduction::sum;
  problems[6].gradient = !base.gradient;
  problems[7].in_place = !base.in_place;
  problems[8].alignment = generator::Alignment::shifted;
  problems[9].rows = 128;
  problems[10].weight_dtype = DType::bf16;
  problems[11].upstream = generator::Upstream::rows;
  if (problems[2] == base) problems[2].dtype = DType::f32;
  if (problems[4] == base) problems[4].loss_dtype = DType::f32;
  for (const auto field : {&Problem::probabilities, &Problem::weights, &Problem::batched, &Problem::strided})
    problems.emplace_back(base).*field = true;
  for (const auto& option : generator::cross_entropy_options)
    problems.emplace_back(base).has.*option.field = true;
  for (const auto& output : generator::cross_entropy_outputs)
    problems.emplace_back(base).has.*output.field = true;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    ASSERT_EQ(table.find(problems[i]), nullptr) << i;
    put(problems[i], fmt::format("{}", i));
  }
  for (std::size_t i = 0; i < problems.size(); ++i)
    EXPECT_EQ(table.find(problems[i])->choice.config, fmt::format("{}", i));
}

/// One value of one member.
struct Setting {
  std::size_t member;
  std::function<void(Problem&)> apply;
};

/// All values of each member that a kernel depends on, but for the sizes.
std::vector<Setting> settings() {
  std::vector<Setting> all;
  std::size_t member = 0;
  const auto add = [&](auto Problem::*field, auto last) {
    for (int value = 0; value <= static_cast<int>(last); ++value)
      all.push_back({.member = member, .apply = [=](Problem& problem) {
                       problem.*field = static_cast<decltype(last)>(value);
                     }});
    ++member;
  };
  add(&Problem::operation, generator::Operation::add);
  for (const auto field :
       {&Problem::dtype, &Problem::target_dtype, &Problem::loss_dtype, &Problem::weight_dtype})
    add(field, DType::u8);
  add(&Problem::reduction, Reduction::sum);
  add(&Problem::upstream, generator::Upstream::rows);
  add(&Problem::alignment, generator::Alignment::element);
  for (const auto field : {&Problem::gradient, &Problem::probabilities, &Problem::weights, &Problem::in_place,
                           &Problem::batched, &Problem::strided})
    add(field, true);
  const auto add_flag = [&](bool generator::CrossEntropyFlags::*flag) {
    for (const bool value : {false, true})
      all.push_back({.member = member, .apply = [=](Problem& problem) { problem.has.*flag = value; }});
    ++member;
  };
  for (const auto& option : generator::cross_entropy_options) add_flag(option.field);
  for (const auto& output : generator::cross_entropy_outputs) add_flag(output.field);
  for (const auto& input : generator::cross_entropy_inputs) add_flag(input.field);
  return all;
}

/// A member that lacked a bit would look like its neighbour's.
TEST_F(PlanTableTest, NoTwoValuesOfTwoMembersAreTakenForEachOther) {
  const std::vector<Setting> all = settings();
  std::vector<std::pair<Problem, const PlanTable::Entry*>> all_put;
  for (const Setting& one : all)
    for (const Setting& other : all) {
      if (other.member <= one.member) continue;
      Problem problem{.rows = 64, .columns = 100};
      one.apply(problem);
      other.apply(problem);
      const bool known = std::any_of(all_put.begin(), all_put.end(),
                                     [&](const auto& each) { return each.first == problem; });
      if (known) continue;
      ASSERT_EQ(table.find(problem), nullptr) << generator::code_text(problem);
      all_put.emplace_back(problem, &put(problem, ""));
    }
  for (const auto& [problem, added] : all_put)
    EXPECT_EQ(table.find(problem), added) << generator::code_text(problem);
}

TEST_F(PlanTableTest, MoreProblemsThanSlots) {
  constexpr int count = 5000;
  for (int i = 1; i <= count; ++i) put(wide(i), fmt::format("{}", i));
  for (int i = 1; i <= count; ++i) {
    const PlanTable::Entry* found = table.find(wide(i));
    ASSERT_NE(found, nullptr) << i;
    EXPECT_EQ(found->choice.config, fmt::format("{}", i));
  }
  EXPECT_EQ(table.find(wide(count + 1)), nullptr);
}

TEST_F(PlanTableTest, ReplacesAndKeepsTheReplaced) {
  const PlanTable::Entry& before = put(wide(1), "before", true);
  const PlanTable::Entry& after = put(wide(1), "after");
  EXPECT_EQ(table.find(wide(1)), &after);
  EXPECT_FALSE(after.choice.provisional);
  // A thread may still be about to launch it.
  EXPECT_EQ(before.choice.config, "before");
  EXPECT_TRUE(before.choice.provisional);
}

TEST_F(PlanTableTest, ForgetsOtherConfigsOfAKey) {
  const PlanTable::Entry& before = put(wide(1), "before");
  put(wide(2), "other");  // all have the key ""
  table.forget("another key", "after");
  EXPECT_EQ(table.find(wide(1)), &before);
  table.forget("", "before");
  EXPECT_EQ(table.find(wide(1)), &before);
  EXPECT_EQ(table.find(wide(2)), nullptr);
  const PlanTable::Entry& again = put(wide(2), "before");
  EXPECT_EQ(table.find(wide(2)), &again);
  put(wide(1), "after");
  table.forget("", "before");
  EXPECT_EQ(table.find(wide(1)), nullptr) << "nor what was there before";
}

TEST_F(PlanTableTest, ReadersNeedNoLock) {
  constexpr int count = 2000;
  std::atomic<int> written = 0;
  std::atomic<bool> wrong = false;
  std::vector<std::jthread> readers;
  for (int reader = 0; reader < 4; ++reader)
    readers.emplace_back([&] {
      for (int done = 0; done < count; done = written.load(std::memory_order_acquire))
        for (int i = 1; i <= count; i += 7) {
          const bool must_be_there = i <= written.load(std::memory_order_acquire);
          const PlanTable::Entry* found = table.find(wide(i));
          if (found == nullptr ? must_be_there : !found->choice.config.starts_with(fmt::format("{} ", i)))
            wrong = true;
        }
    });
  for (int i = 1; i <= count; ++i) {
    put(wide(i), fmt::format("{} at first", i), true);
    written.store(i, std::memory_order_release);
    if (i % 3 == 0) put(wide(i / 3), fmt::format("{} again", i / 3));
  }
  readers.clear();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(table.find(wide(1))->choice.config, "1 again");
}

}  // namespace
}  // namespace ce::test
