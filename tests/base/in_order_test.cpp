#include "base/in_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ce {
namespace {

using std::chrono::seconds;

class InOrder : public testing::TestWithParam<std::size_t> {};

TEST_P(InOrder, TakesEachResultOnce) {
  std::vector<std::size_t> taken;
  make_in_order(
      1000, [](std::size_t i) { return std::make_unique<std::size_t>(i * i); },
      [&](std::size_t i, std::unique_ptr<std::size_t> result) {
        EXPECT_EQ(*result, i * i);
        taken.push_back(i);
      },
      GetParam());
  ASSERT_EQ(taken.size(), 1000U);
  for (std::size_t i = 0; i < taken.size(); ++i) ASSERT_EQ(taken[i], i);
}

TEST_P(InOrder, OfNothingIsNothing) {
  make_in_order(
      0, [](std::size_t i) { return i; }, [](std::size_t, std::size_t) { FAIL(); },  //
      GetParam());
}

TEST_P(InOrder, WhatMakingThrowsComesAfterWhatWasBeforeIt) {
  std::size_t taken = 0;
  const auto make = [](std::size_t i) {
    if (i >= 17) throw std::runtime_error(std::to_string(i));
    return i;
  };
  const auto take = [&](std::size_t, std::size_t) { ++taken; };
  try {
    make_in_order(100, make, take, GetParam());
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "17");
  }
  EXPECT_EQ(taken, 17U);
}

TEST_P(InOrder, WhatTakingThrowsEndsTheWork) {
  std::atomic<std::size_t> made = 0;
  const auto make = [&](std::size_t i) {
    ++made;
    return i;
  };
  const auto take = [](std::size_t i, std::size_t) {
    if (i == 5) throw std::runtime_error("enough");
  };
  EXPECT_THROW(make_in_order(1'000'000, make, take, GetParam()), std::runtime_error);
  EXPECT_LE(made, 6 + 2 * GetParam());
}

TEST_P(InOrder, FewResultsWait) {
  std::atomic<std::size_t> alive = 0, most = 0;
  struct Counted {
    explicit Counted(std::atomic<std::size_t>& counter) : counter_(&counter) { ++counter; }
    Counted(Counted&& other) noexcept : counter_(std::exchange(other.counter_, nullptr)) {}
    Counted& operator=(Counted&&) = delete;
    ~Counted() {
      if (counter_ != nullptr) --*counter_;
    }
    std::atomic<std::size_t>* counter_;
  };
  make_in_order(
      500, [&](std::size_t) { return Counted(alive); },
      [&](std::size_t, const Counted&) { most = std::max(most.load(), alive.load()); }, GetParam());
  EXPECT_LE(most, 1 + 3 * GetParam());  // in slots, in hands, and the one that is taken
  EXPECT_EQ(alive, 0U);
}

INSTANTIATE_TEST_SUITE_P(Threads, InOrder, testing::Values(0, 1, 2, 7));

TEST(InOrderOfTwoThreads, BothWorkAtOnce) {
  std::mutex mutex;
  std::condition_variable changed;
  int here = 0;
  const auto make = [&](std::size_t) {
    std::unique_lock lock(mutex);
    ++here;
    changed.notify_all();
    return changed.wait_for(lock, seconds(60), [&] { return here == 2; });
  };
  make_in_order(
      2, make, [](std::size_t, bool met) { EXPECT_TRUE(met); }, 2);
}

}  // namespace
}  // namespace ce
