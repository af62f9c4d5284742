// The write-ahead log among processes that never stop reading.
#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cache/fixture.hpp"
#include "tests/until.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

class Log : public CacheTest {
 protected:
  /// Twice the length from which on writers wait for readers: on a busy machine some wait in vain.
  static constexpr std::int64_t most_bytes = std::int64_t{32} << 20;

  /// Commits 50 MB. \returns the greatest size of the log on the way
  std::int64_t write(Cache& cache) {
    std::int64_t greatest = 0;
    const std::vector<std::byte> image(200'000, std::byte{7});
    for (int i = 0; i < 250; ++i) {
      cache.keep_binary(fmt::format("binary {}", i), image, {});
      greatest = std::max(greatest, size());
    }
    EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
    EXPECT_EQ(cache.status().binaries, 250);
    return greatest;
  }
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(fs::file_size(file().string() + "-wal"));
  }
  /// Reads through a connection of its own, in transactions of that time, until it is stopped.
  [[nodiscard]] std::jthread reader(std::chrono::milliseconds time) {
    return std::jthread([this, path = file().string(), time](const std::stop_token& stop) {
      SQLite::Database database(path, SQLite::OPEN_READONLY, 5000);
      while (!stop.stop_requested()) {
        database.exec("BEGIN");
        static_cast<void>(database.execAndGet("SELECT COUNT(*) FROM keys"));
        ++reads_;
        std::this_thread::sleep_for(time);
        database.exec("COMMIT");
      }
    });
  }

  std::atomic<int> reads_ = 0;  ///< of all readers
};

/// A program that never closes its database leaves a file that can be copied.
TEST_F(Log, ACheckpointPutsWhatWasCommittedIntoTheFile) {
  Cache cache = Cache::open(file());
  const auto copied = [&] {
    const fs::path copy = file().string() + "-copied";
    fs::copy_file(file(), copy, fs::copy_options::overwrite_existing);
    return Cache::open(copy).status().measurements;
  };
  cache.add({.key = key,
             .config = "block/warps=8",
             .stage = stage_of_finals,
             .rows = 40,
             .samples_us = {10},
             .median_us = 10});
  EXPECT_EQ(copied(), 0);
  EXPECT_EQ(warnings("is empty: to copy a database in use, also copy the file ce.db-copied-wal"), 1)
      << "who copies the file alone is told";
  cache.checkpoint();
  EXPECT_EQ(copied(), 1);
}

TEST_F(Log, StaysShortWhileSomeoneReadsAtAnyTime) {
  Cache cache = Cache::open(file());
  cache.add(a_measurement(key, "config"));
  std::vector<std::jthread> readers;
  for (int i = 0; i < 6; ++i) readers.push_back(reader(std::chrono::milliseconds(1 + i / 2)));
  ASSERT_TRUE(ce::test::until([&] { return reads_ > 0; }));
  const int before = reads_;
  const std::int64_t greatest = write(cache);
  std::cout << "log of " << greatest << " bytes\n";
  EXPECT_LT(greatest, most_bytes);
  EXPECT_GT(reads_, before) << "nobody read meanwhile";
}

TEST_F(Log, OfWhoNeverStopsReadingGrowsAndEndsWithHim) {
  Cache cache = Cache::open(file());
  cache.add(a_measurement(key, "config"));
  {
    SQLite::Database stays(file().string(), SQLite::OPEN_READONLY, 5000);
    stays.exec("BEGIN");
    static_cast<void>(stays.execAndGet("SELECT COUNT(*) FROM keys"));
    EXPECT_GT(write(cache), most_bytes);
    EXPECT_EQ(stays.execAndGet("SELECT COUNT(*) FROM binaries").getInt(), 0) << "what he began with";
  }
  cache.add(a_measurement(key, "another"));
  EXPECT_LT(size(), most_bytes);
}

}  // namespace
}  // namespace ce::cache::test
