#include "ce/background.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace ce::test {
namespace {

TEST(Background, WhoeverStopsItReturnsWhenNothingIsAtWork) {
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
  background.add({}, {});  // is not taken any more
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
