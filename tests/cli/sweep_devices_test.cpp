// Which device of several gets which job of a sweep.
#include "cli/commands/sweep_devices.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

using Names = std::vector<std::string>;

TEST(DeviceList, NamesDevices) {
  EXPECT_EQ(device_list("", 8), Names{""});
  EXPECT_EQ(device_list("cuda:3", 0), Names{"cuda:3"});
  EXPECT_EQ(device_list("cuda:all", 3), (Names{"cuda:0", "cuda:1", "cuda:2"}));
  EXPECT_EQ(device_list("cuda,cuda:2", 0), (Names{"cuda:0", "cuda:2"}));
  EXPECT_EQ(device_list("host,host", 0), (Names{"host", "host"}));
}

TEST(DeviceList, RefusesWhatNamesNone) {
  EXPECT_THROW(static_cast<void>(device_list("cuda:all", 0)), DeviceError);
  for (const char* text :
       {"cuda:0,", ",", "cuda:0,gpu", "cuda:0,cuda:all", "cuda,cuda:0", "cuda:1,host,cuda:1"})
    try {
      static_cast<void>(device_list(text, 8));
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "--device");
      EXPECT_EQ(error.value(), "\"" + std::string(text) + "\"");
    }
}

TEST(WorkQueue, HandsOutEachJobOnceAndWhatWasPassedOverAtTheEnd) {
  WorkQueue queue(3);
  EXPECT_EQ(queue.take().value().index, 0U);
  queue.skip(0);
  const auto second = queue.take().value(), third = queue.take().value();
  EXPECT_EQ(second.index, 1U);
  EXPECT_EQ(third.index, 2U);
  EXPECT_FALSE(third.waits);
  queue.finish(1);
  const auto last = queue.take().value();
  EXPECT_EQ(last.index, 0U);
  EXPECT_TRUE(last.waits);
  queue.finish(2);
  queue.finish(0);
  EXPECT_FALSE(queue.take());
}

TEST(WorkQueue, GivesAJobToAnotherOnceAndNotTwice) {
  WorkQueue queue(1);
  ASSERT_TRUE(queue.take());
  std::atomic<int> taken = -1;
  // Has nothing to take until the job comes back.
  std::thread other([&] {
    if (const auto job = queue.take()) taken = static_cast<int>(job->index);
  });
  EXPECT_TRUE(queue.give_back(0));
  other.join();
  EXPECT_EQ(taken, 0);
  EXPECT_FALSE(queue.give_back(0));
  EXPECT_FALSE(queue.take());
}

TEST(WorkQueue, StopsForThoseWhoWaitToo) {
  WorkQueue queue(2);
  ASSERT_TRUE(queue.take());
  ASSERT_TRUE(queue.take());
  std::thread other([&] { EXPECT_FALSE(queue.take()); });
  queue.stop();
  other.join();
  WorkQueue full(1);
  full.stop();
  EXPECT_FALSE(full.take());
}

}  // namespace
}  // namespace ce::cli
