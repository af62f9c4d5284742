#include "cache/cache.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/environment.hpp"
#include "tests/seed.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

std::string any_text(std::mt19937_64& random) {
  static constexpr std::array pieces{"a",  "'",  "\"", ";--", "%", "_", "\n", "\\", "{",
                                     "\t", "µs", "漢", "?1",  "/", " ", "=",  ","};
  std::string text;
  for (auto left = random() % 12; left > 0; --left) text += pieces[random() % pieces.size()];
  return text;
}

Measurement any_measurement(std::mt19937_64& random, const Key& key, int number) {
  Measurement m = a_measurement(key, any_text(random), number);
  m.template_digest = any_text(random);
  m.compile_key = any_text(random);
  m.outcome = random() % 2 == 0 ? Outcome::measured : Outcome::quarantined;
  m.reason = any_text(random);
  m.stage = static_cast<int>(random() % 2);
  m.rows = static_cast<std::int64_t>(random()) << 20;
  m.bytes = std::numeric_limits<std::int64_t>::max() - random();
  m.samples_us.resize(random() % 50);
  for (float& sample : m.samples_us) sample = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  m.median_us = std::uniform_real_distribution(0.0, 1e9)(random);
  m.spread = random() % 4 == 0 ? std::numeric_limits<double>::quiet_NaN()
                               : 1.0 / (1.0 + static_cast<double>(random()));
  m.registers = static_cast<int>(random() % 256);
  m.local_bytes = static_cast<int>(random() % 100000);
  m.environment = cache::Environment();
  for (auto left = random() % 4; left > 0; --left) m.environment[any_text(random)] = any_text(random);
  return m;
}

using CacheBasics = CacheTest;

TEST_F(CacheBasics, RoundTripOfEverything) {
  std::mt19937_64 random(ce::test::test_seed());
  std::vector<Measurement> expected;
  {
    Cache cache = Cache::open(file());
    for (int i = 0; i < 200; ++i) expected.push_back(any_measurement(random, key, i));
    for (const Measurement& measurement : expected) cache.add(measurement);
  }
  const auto actual = Cache::open(file()).measurements(key);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(actual[i], expected[i]);
  }
}

TEST_F(CacheBasics, OldestFirstWhateverTheOrderOfAdding) {
  Cache cache = Cache::in_memory();
  for (const int number : {3, 1, 2, 1}) cache.add(a_measurement(key, std::to_string(number), number));
  cache.add(a_measurement(key, "another 1", 1));
  std::string order;
  for (const Measurement& measurement : cache.measurements(key)) order += measurement.config;
  EXPECT_EQ(order, "1another 123") << "each once, and those of the same time as they were added";
}

TEST_F(CacheBasics, DatesWhatHasNoDate) {
  Cache cache = Cache::in_memory();
  Measurement measurement = a_measurement(key, "config");
  measurement.created_at.clear();
  cache.add(measurement);
  const std::string date = cache.measurements(key).at(0).created_at;
  EXPECT_EQ(date.size(), std::string_view("2030-01-31T12:00:00.000Z").size()) << date;
  EXPECT_EQ(date.back(), 'Z');
  const auto now = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const auto year = [&](int days) {
    return std::to_string(
        static_cast<int>(std::chrono::year_month_day(now + std::chrono::days(days)).year()));
  };
  EXPECT_TRUE(date.substr(0, 4) == year(0) || date.substr(0, 4) == year(-1)) << date;
}

TEST_F(CacheBasics, AnEnvironmentThatIsNoUtf8DoesNotStopIt) {
  Cache cache = Cache::in_memory();
  Measurement measurement = a_measurement(key, "config");
  measurement.environment = {{"host", "\xff\xfe"}};
  cache.add(measurement);
  EXPECT_EQ(cache.measurements(key).at(0).environment.at("host"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_F(CacheBasics, EqualEnvironmentsAreStoredOnce) {
  Cache cache = Cache::open(file());
  for (int i = 0; i < 5; ++i) cache.add(a_measurement(key, std::to_string(i)));
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM environments"), "1");
}

TEST_F(CacheBasics, KeysComeByDeviceThenProblem) {
  Cache cache = Cache::in_memory();
  cache.add(a_measurement({.problem = "b", .device = "1"}, "x", 5));
  cache.add(a_measurement({.problem = "a", .device = "2"}, "x", 1));
  cache.add(a_measurement({.problem = "a", .device = "1"}, "x", 3));
  cache.add(a_measurement({.problem = "a", .device = "1"}, "x", 2));
  Measurement wrong = a_measurement({.problem = "a", .device = "1"}, "y", 4);
  wrong.outcome = Outcome::quarantined;
  cache.add(wrong);
  const auto keys = cache.keys();
  ASSERT_EQ(keys.size(), 3U);
  EXPECT_EQ(keys[0].key, (Key{.problem = "a", .device = "1"}));
  EXPECT_EQ(keys[1].key, (Key{.problem = "b", .device = "1"}));
  EXPECT_EQ(keys[2].key, (Key{.problem = "a", .device = "2"}));
  EXPECT_EQ(keys[0].measurements, 3);
  EXPECT_EQ(keys[0].configs, 2);
  EXPECT_EQ(keys[0].quarantined, 1);
  EXPECT_EQ(keys[0].first_at, a_measurement(key, "", 2).created_at);
  EXPECT_EQ(keys[0].last_at, a_measurement(key, "", 4).created_at);
}

TEST_F(CacheBasics, FindsKeysByTheBeginningOfTheirId) {
  Cache cache = Cache::in_memory();
  std::vector<Key> keys;
  for (int i = 0; i < 64; ++i) {
    keys.push_back({.problem = fmt::format("problem {}", i), .device = "gpu"});
    cache.add(a_measurement(keys.back(), "config"));
    cache.add(a_measurement(keys.back(), "config"));
  }
  EXPECT_EQ(cache.find("").size(), keys.size());
  std::size_t by_first_digit = 0;
  for (const char digit : std::string_view("0123456789abcdef")) {
    const auto found = cache.find(std::string(1, digit));
    by_first_digit += found.size();
    for (const Key& one : found) EXPECT_EQ(one.id().front(), digit);
  }
  EXPECT_EQ(by_first_digit, keys.size());
  for (const Key& one : keys) {
    EXPECT_EQ(one.id().size(), 12U);
    EXPECT_EQ(cache.find(one.id()), std::vector{one});
  }
  for (const char* none : {"%", "_", "g", "~", "'", "0000000000000", "*"})
    EXPECT_TRUE(cache.find(none).empty()) << none;
}

TEST_F(CacheBasics, KeyIdTellsProblemFromDevice) {
  EXPECT_NE((Key{.problem = "ab", .device = "c"}.id()), (Key{.problem = "a", .device = "bc"}.id()));
  EXPECT_NE((Key{.problem = "a", .device = "b"}.id()), (Key{.problem = "b", .device = "a"}.id()));
}

TEST_F(CacheBasics, BinariesRoundTripAndTheFirstStays) {
  const std::vector<std::byte> image = as_bytes(std::string_view("\0ELF\xff\0", 6));
  {
    Cache cache = Cache::open(file());
    EXPECT_FALSE(cache.binary("one").has_value());
    cache.keep_binary("one", image, {.compiler = "nvrtc", .name = "softmax"});
    cache.keep_binary("one", as_bytes("second"), {.compiler = "nvrtc", .name = "softmax"});
    cache.keep_binary("empty", {}, {.compiler = "nvrtc", .name = "nothing"});
  }
  const Cache cache = Cache::open(file());
  EXPECT_EQ(cache.binary("one"), image);
  EXPECT_EQ(cache.binary("empty"), std::vector<std::byte>{});
  EXPECT_EQ(cache.status().binaries, 2);
  EXPECT_EQ(sql_value(file(), "SELECT compiler || ' ' || name FROM binaries WHERE compile_key = 'one'"),
            "nvrtc softmax");
}

TEST_F(CacheBasics, DamagedBinaryIsNoneAndCanBeReplaced) {
  Cache cache = Cache::open(file());
  cache.keep_binary("damaged one", as_bytes("good image"), {});
  sql(file(), "UPDATE binaries SET image = CAST('goOd image' AS BLOB)");
  EXPECT_FALSE(cache.binary("damaged one").has_value());
  EXPECT_EQ(warnings("damaged one"), 1U);
  cache.keep_binary("damaged one", as_bytes("good image"), {});
  EXPECT_EQ(cache.binary("damaged one"), as_bytes("good image"));
}

/// As where an index that is damaged leads to another row.
TEST_F(CacheBasics, ABinaryOfAnotherKeyIsNone) {
  Cache cache = Cache::open(file());
  cache.keep_binary("one", as_bytes("image of one"), {});
  sql(file(), "UPDATE binaries SET compile_key = 'two'");
  EXPECT_FALSE(cache.binary("two").has_value());
  EXPECT_FALSE(cache.binary("one").has_value());
  cache.keep_binary("two", as_bytes("image of two"), {});
  EXPECT_EQ(cache.binary("two"), as_bytes("image of two"));
}

TEST_F(CacheBasics, ThreadsShareOneCache) {
  Cache cache = Cache::open(file());
  constexpr int threads = 4, count = 50;
  {
    std::vector<std::jthread> running;
    for (int t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        for (int i = 0; i < count; ++i) {
          cache.add(a_measurement(key, fmt::format("{}-{}", t, i)));
          cache.keep_binary(fmt::format("{}", i), as_bytes("image"), {});
          static_cast<void>(cache.find(""));
        }
      });
  }
  EXPECT_EQ(cache.status().measurements, threads * count);
  EXPECT_EQ(cache.status().binaries, count);
}

TEST_F(CacheBasics, TwoCachesOfOneFileSeeEachOther) {
  Cache one = Cache::open(file());
  {
    Cache two = Cache::open(file());
    two.add(a_measurement(key, "two", 2));
    one.add(a_measurement(key, "one", 1));
    EXPECT_EQ(two.measurements(key).size(), 2U);
  }
  EXPECT_EQ(one.measurements(key).size(), 2U);
}

TEST_F(CacheBasics, StatusOfAFile) {
  Cache cache = Cache::open(file());
  cache.add(a_measurement(key, "config"));
  const Status status = cache.status();
  EXPECT_EQ(status.path, file());
  EXPECT_TRUE(status.persistent);
  EXPECT_EQ(status.problem, "");
  EXPECT_EQ(status.journal_mode, "wal");
  EXPECT_GT(status.file_bytes, 0);
  EXPECT_EQ(status.measurements, 1);
  EXPECT_EQ(status.keys, 1);
  EXPECT_EQ(status.binaries, 0);
  EXPECT_EQ(warnings(""), 0U);
}

TEST_F(CacheBasics, StatusOfAMemory) {
  const Status status = Cache::in_memory().status();
  EXPECT_EQ(status.path, "");
  EXPECT_FALSE(status.persistent);
  EXPECT_EQ(status.problem, "");
}

TEST_F(CacheBasics, MovesWithItsContents) {
  Cache first = Cache::open(file());
  first.add(a_measurement(key, "config"));
  Cache second = std::move(first);
  EXPECT_EQ(second.measurements(key).size(), 1U);
  second = Cache::in_memory();
  EXPECT_TRUE(second.measurements(key).empty());
}

TEST_F(CacheBasics, NewFilesAndFoldersArePrivate) {
  const fs::path deep = folder() / "a" / "b" / "c" / "ce.db";
  Cache cache = Cache::open(deep);
  cache.add(a_measurement(key, "config"));
  for (fs::path parent = deep.parent_path(); parent != folder(); parent = parent.parent_path())
    EXPECT_EQ(mode(parent), 0700U) << parent;
  EXPECT_EQ(mode(deep), 0600U);
  EXPECT_EQ(mode(deep.string() + "-wal"), 0600U);
}

TEST_F(CacheBasics, ExistingModesStay) {
  fs::create_directory(folder() / "team");
  fs::permissions(folder() / "team", fs::perms(0750));
  write_file(folder() / "team" / "ce.db", "");
  fs::permissions(folder() / "team" / "ce.db", fs::perms(0640));
  Cache::open(folder() / "team" / "ce.db").add(a_measurement(key, "config"));
  EXPECT_EQ(mode(folder() / "team"), 0750U);
  EXPECT_EQ(mode(folder() / "team" / "ce.db"), 0640U);
}

TEST_F(CacheBasics, OddFileNames) {
  for (const char* odd : {"a b?c#d%20.db", ":memory:", "file:x"}) {
    Cache::open(folder() / odd).add(a_measurement(key, "config"));
    EXPECT_EQ(Cache::open_existing(folder() / odd).measurements(key).size(), 1U) << odd;
    EXPECT_TRUE(fs::is_regular_file(folder() / odd)) << odd;
  }
}

TEST_F(CacheBasics, DefaultPath) {
  const ce::test::ScopedEnvironment home("HOME", "/home/someone");
  const ce::test::ScopedEnvironment data("XDG_DATA_HOME", "/data");
  const ce::test::ScopedEnvironment file("CE_DB", "some/file.db");
  EXPECT_EQ(Cache::default_path(), "some/file.db");
  const ce::test::ScopedEnvironment no_file("CE_DB", "");
  EXPECT_EQ(Cache::default_path(), "/data/ce/ce.db");
  const ce::test::ScopedEnvironment relative("XDG_DATA_HOME", "data");
  EXPECT_EQ(Cache::default_path(), "/home/someone/.local/share/ce/ce.db");
  const ce::test::ScopedEnvironment no_data("XDG_DATA_HOME", nullptr);
  EXPECT_EQ(Cache::default_path(), "/home/someone/.local/share/ce/ce.db");
  const ce::test::ScopedEnvironment no_home("HOME", nullptr);
  EXPECT_EQ(Cache::default_path(), "");
}

}  // namespace
}  // namespace ce::cache::test
