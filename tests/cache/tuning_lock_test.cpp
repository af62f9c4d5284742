// Who may tune a key.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "tests/cache/fixture.hpp"
#include "tests/cache/processes.hpp"

namespace ce::cache::test {
namespace {

class TuningLockTest : public CacheTest {
 protected:
  [[nodiscard]] std::filesystem::path tuning_lock_file() const {
    return file().string() + "-tuning-lock-" + key.id();
  }
};

TEST_F(TuningLockTest, OneAtATimeForEachKey) {
  const Cache one = Cache::open(file()), two = Cache::open(file());
  const Key other{.problem = "softmax f32 8192", .device = key.device};
  {
    const auto held = one.try_tuning_lock(key);
    ASSERT_TRUE(held);
    EXPECT_EQ(mode(tuning_lock_file()), 0600U);
    EXPECT_FALSE(one.try_tuning_lock(key));
    EXPECT_FALSE(two.try_tuning_lock(key));
    EXPECT_TRUE(two.try_tuning_lock(other));
  }
  EXPECT_FALSE(std::filesystem::exists(tuning_lock_file())) << "left behind";
  EXPECT_TRUE(two.try_tuning_lock(key));
  EXPECT_TRUE(one.try_tuning_lock(key));
  EXPECT_EQ(warnings(""), 0U);
}

TEST_F(TuningLockTest, DiesWithItsProcess) {
  const Cache cache = Cache::open(file());
  Process holder({"--lock", file().string(), key.problem, key.device});
  ASSERT_EQ(holder.line(), "locked");
  EXPECT_FALSE(cache.try_tuning_lock(key));
  holder.kill();
  EXPECT_EQ(holder.wait(), -SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(tuning_lock_file()));
  EXPECT_TRUE(cache.try_tuning_lock(key)) << "the file that the dead process left is in the way";
  EXPECT_FALSE(std::filesystem::exists(tuning_lock_file()));
}

TEST_F(TuningLockTest, AForkedChildNeitherGivesItBackNorKeepsIt) {
  const Cache cache = Cache::open(file());
  auto lock = cache.try_tuning_lock(key);
  ASSERT_TRUE(lock);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    lock.reset();
    static_cast<void>(::write(ends[1], "x", 1));
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1) << "the child has not ended its copy";
  for (const int end : ends) ::close(end);
  EXPECT_FALSE(cache.try_tuning_lock(key));
  lock.reset();
  EXPECT_TRUE(cache.try_tuning_lock(key)) << "the child's copy of the descriptor keeps the lock";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(TuningLockTest, AChildOfADeadProcessDoesNotKeepIt) {
  const Cache cache = Cache::open(file());
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t holder = ::fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    const auto lock = Cache::open(file()).try_tuning_lock(key);
    if (lock && ::fork() == 0) {
      const pid_t child = ::getpid();  // told by itself: then it has its own descriptors
      static_cast<void>(!::write(ends[1], &child, sizeof child));
      ::pause();
      ::_exit(0);
    }
    ::kill(::getpid(), SIGKILL);
  }
  ::close(ends[1]);
  pid_t child = -1;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  ::waitpid(holder, nullptr, 0);
  EXPECT_EQ(::kill(child, 0), 0) << "it lives";
  EXPECT_TRUE(cache.try_tuning_lock(key));
  ::kill(child, SIGKILL);
  ::close(ends[0]);
}

TEST_F(TuningLockTest, WithoutAFileItKeepsNobodyOut) {
  const Cache cache = Cache::in_memory();
  const auto first = cache.try_tuning_lock(key), second = cache.try_tuning_lock(key);
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
}

TEST_F(TuningLockTest, WithoutLocksItKeepsNobodyOutAndSaysSoOnce) {
  const Cache cache = Cache::open(file());
  std::filesystem::create_directory(tuning_lock_file());  // binds root too, unlike permission bits
  const auto first = cache.try_tuning_lock(key), second = cache.try_tuning_lock(key);
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_EQ(warnings(folder().string()), 1U);
}

}  // namespace
}  // namespace ce::cache::test
