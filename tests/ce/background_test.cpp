#include "ce/background.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <future>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/until.hpp"

namespace ce::test {
namespace {

std::ptrdiff_t threads_here() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

TEST(Background, WhoeverStopsItReturnsWhenNothingIsAtWork) {
  std::jthread([] {}).join();  // ThreadSanitizer's own thread starts with the first
  const std::ptrdiff_t before = threads_here();
  std::promise<void> begun;
  std::atomic<bool> ended = false;
  Background background([&](const generator::Problem&, const std::stop_token& stop) {
    begun.set_value();
    while (!stop.stop_requested()) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // longer than another takes to come by
    ended = true;
    return true;
  });
  background.add({}, {});
  begun.get_future().wait();
  std::atomic<int> early = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        background.stop();
        early += ended ? 0 : 1;
      });
  }
  EXPECT_EQ(early, 0);
  background.add({.rows = 2}, {.rows = 2});  // is not taken any more
  EXPECT_TRUE(until([&] { return threads_here() <= before; }, std::chrono::seconds(10))) << "a thread waits";
}

TEST(Background, TakesABucketOnce) {
  std::promise<void> last;
  std::atomic<int> some = 0;
  Background background([&](const generator::Problem& problem, const std::stop_token&) {
    if (problem.rows == 128) last.set_value();
    some += problem.rows < 128 ? 1 : 0;
    return true;
  });
  const generator::Problem bucket{.rows = 64};
  for (const std::int64_t rows : {33, 40, 64}) background.add(bucket, {.rows = rows});
  background.add({.rows = 128}, {.rows = 128});
  last.get_future().wait();
  EXPECT_EQ(some, 1);
}

TEST(Background, WhatIsNotSettledIsTriedAgain) {
  std::promise<void> settled;
  int tries = 0;
  Background background([&](const generator::Problem&, const std::stop_token&) {
    if (++tries < 2) return false;
    settled.set_value();
    return true;
  });
  background.add({}, {});
  EXPECT_EQ(settled.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  background.stop();
  EXPECT_EQ(tries, 2);
}

TEST(Background, MayBeStoppedByWhatItDoes) {
  std::promise<void> stopped;
  Background* own = nullptr;
  Background background([&](const generator::Problem&, const std::stop_token& stop) {
    own->stop();
    EXPECT_TRUE(stop.stop_requested());
    stopped.set_value();
    return true;
  });
  own = &background;
  background.add({}, {});
  stopped.get_future().wait();
  background.stop();
  EXPECT_TRUE(background.has_stopped());
}

}  // namespace
}  // namespace ce::test
