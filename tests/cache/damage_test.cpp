// Databases that are damaged: cut short, or with bytes that no program wrote.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "cache/cache.hpp"
#include "cache/maintenance.hpp"
#include "cache/schema.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

/// A few in CI; CE_DAMAGE_ROUNDS=1000 for all.
int rounds() { return std::stoi(environment_variable("CE_DAMAGE_ROUNDS").value_or("40")); }

class Damage : public CacheTest {
 protected:
  static constexpr int keys = 3, configs = 40, binaries = 3;

  /// \param ballast  bytes of one more binary
  explicit Damage(std::size_t ballast = 0) : whole_(written(ballast)) {}

  [[nodiscard]] static Key key_of(int i) {
    return {.problem = fmt::format("softmax f32 {}", 1024 << i), .device = "Some GPU"};
  }
  [[nodiscard]] static Measurement measurement_of(int key, int config) {
    Measurement m = a_measurement(key_of(key), fmt::format("block/warps={}", config), config);
    m.environment["driver"] = fmt::format("{}", config / 8);
    return m;
  }
  [[nodiscard]] static std::vector<std::byte> image_of(int i) {
    return as_bytes(std::string(3000, static_cast<char>('a' + i)));
  }
  [[nodiscard]] const std::string& whole() const { return whole_; }

  /// Their logs not counted.
  [[nodiscard]] std::vector<fs::path> set_aside() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder()))
      if (const std::string name = entry.path().filename();
          name.find(".corrupt-") != std::string::npos && !name.ends_with("-wal"))
        found.push_back(entry.path());
    return found;
  }

  struct Read {
    int measurements = 0, binaries = 0;
  };
  /// Everything that the cache has is as it was written.
  static Read read(const Cache& cache) {
    Read result;
    for (int k = 0; k < keys; ++k) {
      std::set<std::string> seen;
      for (const Measurement& m : cache.measurements(key_of(k))) {
        if (m.config == "new") continue;
        EXPECT_TRUE(seen.insert(m.config).second) << m.config << " twice";
        const int config = std::stoi(m.config.substr(m.config.find('=') + 1));
        expect_same(m, measurement_of(k, config));
        ++result.measurements;
      }
    }
    for (int i = 0; i < binaries; ++i) {
      const auto image = cache.binary(fmt::format("binary {}", i));
      if (!image) continue;
      EXPECT_EQ(*image, image_of(i));
      ++result.binaries;
    }
    return result;
  }

  /// Opens a file with these bytes, reads all that it has, and works on. \returns what could be read
  Read work_with(const std::string& bytes) {
    const fs::path file = folder() / fmt::format("{}.db", ++number_);  // messages that are told apart
    write_file(file, bytes);
    const Measurement added = a_measurement(key_of(0), "new", 59000);
    bool persistent = false;
    Read before;
    {
      Cache cache = Cache::open(file);
      before = read(cache);
      cache.add(added);
      read(cache);
      EXPECT_EQ(cache.measurements(key_of(0)).back().config, "new");
      persistent = cache.status().persistent;
    }
    Read after;
    {
      const Cache cache = Cache::open(file);
      after = read(cache);
      if (persistent) {
        EXPECT_EQ(cache.measurements(key_of(0)).back().config, "new");
      }
    }
    EXPECT_GE(before.measurements, after.measurements) << "not all that is there was read at first";
    const auto aside = set_aside();
    EXPECT_LE(aside.size(), 1U);
    EXPECT_LE(warnings(file.string()), 1U) << "said more than once: " << warning(file.string());
    EXPECT_TRUE(aside.empty() || warnings("set aside as " + aside.front().string()) == 1) << "not said";
    for (const fs::path& path : aside)
      for (const char* suffix : {"", "-wal"}) fs::remove(path.string() + suffix);
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(file.string() + suffix);
    return after;
  }

 private:
  [[nodiscard]] std::string written(std::size_t ballast) const {
    {
      Cache cache = Cache::open(file());
      std::vector<Measurement> list;
      for (int config = 0; config < configs; ++config)
        for (int k = 0; k < keys; ++k) list.push_back(measurement_of(k, config));
      cache.add(list);
      for (int i = 0; i < binaries; ++i)
        cache.keep_binary(fmt::format("binary {}", i), image_of(i), {.compiler = "nvrtc", .name = "softmax"});
      if (ballast > 0)
        cache.keep_binary("ballast", std::vector<std::byte>(ballast, std::byte{1}),
                          {.compiler = "", .name = ""});
    }
    return contents(file());
  }

  std::string whole_;
  int number_ = 0;
};

/// SQLite reads nothing of a file whose header is damaged, but all else of it is there.
TEST_F(Damage, AHeaderIsWrittenAnew) {
  constexpr std::size_t header_bytes = 100;
  for (std::size_t at = 0; at < header_bytes; ++at) {
    SCOPED_TRACE(fmt::format("byte {}", at));
    std::string bytes = whole();
    bytes[at] = static_cast<char>(~bytes[at]);
    const Read read = work_with(bytes);
    EXPECT_EQ(read.measurements, keys * configs);
    EXPECT_EQ(read.binaries, binaries);
  }
  std::string bytes = whole();
  std::fill_n(bytes.begin(), 60, 'x');
  EXPECT_EQ(work_with(bytes).measurements, keys * configs) << "most of it";
}

/// Which moves the texts of the tables behind all else.
TEST_F(Damage, AHeaderIsWrittenAnewAfterAVacuum) {
  write_file(file(), whole());
  Maintenance::open(file()).vacuum();
  std::string bytes = contents(file());
  bytes[68] = static_cast<char>(~bytes[68]);  // of the application_id
  EXPECT_EQ(work_with(bytes).measurements, keys * configs);
}

TEST_F(Damage, AWholeFileIsRead) {
  const Read all = work_with(whole());
  EXPECT_EQ(all.measurements, keys * configs);
  EXPECT_EQ(all.binaries, binaries);
  EXPECT_EQ(warnings(""), 0U);
}

TEST_F(Damage, AnyByteFlipped) {
  std::mt19937_64 random(ce::test::test_seed());
  double kept = 0;
  for (int round = 0; round < rounds(); ++round) {
    std::string bytes = whole();
    const std::size_t at = random() % bytes.size();
    const int flip = 1 + static_cast<int>(random() % 255);
    SCOPED_TRACE(fmt::format("byte {} changed by {}", at, flip));
    bytes[at] = static_cast<char>(bytes[at] ^ flip);
    kept += work_with(bytes).measurements;
    if (HasFailure()) break;
  }
  kept /= rounds() * keys * configs;
  std::cout << "kept " << 100 * kept << "% of all measurements\n";
  EXPECT_GT(kept, 0.8);
}

/// The texts of keys are in tables and in indexes. A key that an index has lost is found all the same.
TEST_F(Damage, AnyTextOfAKeyChanged) {
  const std::string name = key_of(1).id();
  for (const std::string& text : {key_of(1).problem, key_of(1).device, name}) {
    int kept_all = 0;
    for (std::size_t at = whole().find(text); at != std::string::npos; at = whole().find(text, at + 1)) {
      SCOPED_TRACE(fmt::format("{} at byte {}", text, at));
      std::string bytes = whole();
      bytes[at + text.size() - 1] = '~';
      kept_all += work_with(bytes).measurements == keys * configs ? 1 : 0;
    }
    EXPECT_GE(kept_all, 1) << text << ": of the one in an index nothing is lost";
  }
}

TEST_F(Damage, CutAtAnyLength) {
  std::mt19937_64 random(ce::test::test_seed());
  double kept = 0;
  for (int round = 0; round < rounds(); ++round) {
    const std::size_t length = random() % whole().size();
    SCOPED_TRACE(fmt::format("cut to {} bytes", length));
    kept += work_with(whole().substr(0, length)).measurements;
    if (HasFailure()) break;
  }
  std::cout << "kept " << 100 * kept / (rounds() * keys * configs) << "% of all measurements\n";
  const Read of_all_but_the_last_page = work_with(whole().substr(0, whole().size() - 4096));
  EXPECT_EQ(of_all_but_the_last_page.measurements, keys * configs);
  EXPECT_EQ(of_all_but_the_last_page.binaries, binaries - 1);
}

/// Files that are too large to be examined in full.
class LargeDamage : public Damage {
 protected:
  static constexpr std::size_t ballast = 17 << 20;
  LargeDamage() : Damage(ballast) {}
};

TEST_F(LargeDamage, AnyByteOfAllButTheBallastFlipped) {
  const std::size_t others = whole().size() - ballast;
  std::mt19937_64 random(ce::test::test_seed());
  double kept = 0;
  const int rounds = 1 + test::rounds() / 4;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = whole();
    const std::size_t at = random() % others;
    const int flip = 1 + static_cast<int>(random() % 255);
    SCOPED_TRACE(fmt::format("byte {} changed by {}", at, flip));
    bytes[at] = static_cast<char>(bytes[at] ^ flip);
    kept += work_with(bytes).measurements;
    if (HasFailure()) break;
  }
  kept /= rounds * keys * configs;
  std::cout << "kept " << 100 * kept << "% of all measurements\n";
  EXPECT_GT(kept, 0.8);
}

/// Of what no check of pages finds: an index that leads past rows.
TEST_F(LargeDamage, AByteOfAnIndexThatHidesMeasurements) {
  constexpr std::size_t in_an_index = 56426;
  std::string bytes = whole();
  bytes[in_an_index] = static_cast<char>(bytes[in_an_index] ^ 58);
  EXPECT_EQ(work_with(bytes).measurements, keys * configs);
}

TEST_F(LargeDamage, CutAtAnyLength) {
  std::mt19937_64 random(ce::test::test_seed());
  for (int round = 0; round < 1 + rounds() / 50; ++round) {
    const std::size_t length = whole().size() - random() % ballast;
    SCOPED_TRACE(fmt::format("cut to {} bytes", length));
    EXPECT_EQ(work_with(whole().substr(0, length)).measurements, keys * configs);
    if (HasFailure()) break;
  }
}

TEST_F(LargeDamage, IsLookedForOnceAnHour) {
  const fs::path file = folder() / "shared.db", mark = folder() / "shared.db-examined";
  write_file(file, whole());
  Cache::open(file).add(a_measurement(key_of(0), "first", 59000));
  ASSERT_TRUE(fs::exists(mark));
  EXPECT_EQ(fs::status(mark).permissions(), fs::status(file).permissions());
  const auto of_the_first = fs::last_write_time(mark);
  Cache::open(file).add(a_measurement(key_of(0), "second", 59001));
  EXPECT_EQ(fs::last_write_time(mark), of_the_first);
  fs::last_write_time(mark, of_the_first - std::chrono::hours(2));
  Cache::open(file).add(a_measurement(key_of(0), "third", 59002));
  EXPECT_GE(fs::last_write_time(mark), of_the_first);
}

TEST_F(Damage, WhatLiesBehindAPageThatCannotBeReadIsKept) {
  constexpr std::size_t page_bytes = 4096;
  constexpr char leaf_of_a_table = 0x0d;
  std::string bytes = whole();
  std::vector<std::size_t> pages;  // of measurements
  for (std::size_t page = page_bytes; page < bytes.size(); page += page_bytes)
    if (bytes[page] == leaf_of_a_table &&
        std::string_view(bytes).substr(page, page_bytes).find("compile-block") != std::string_view::npos)
      pages.push_back(page);
  ASSERT_GE(pages.size(), 3U);
  bytes[pages[pages.size() / 2]] = '\x7f';
  const fs::path file = folder() / "hole.db";
  write_file(file, bytes);
  const Cache cache = Cache::open(file);
  const int found = read(cache).measurements;
  EXPECT_EQ(warnings("set aside as " + file.string()), 1U);
  EXPECT_GT(found, keys * configs / 2);
  EXPECT_LT(found, keys * configs);
  for (const int config : {0, configs - 1}) {
    const auto list = cache.measurements(key_of(keys - 1));
    EXPECT_TRUE(std::any_of(list.begin(), list.end(), [&](const Measurement& m) {
      return m.config == measurement_of(keys - 1, config).config;
    })) << config;
  }
}

TEST_F(Damage, ACompiledKernelThatWasChangedIsLeftBehind) {
  const fs::path file = folder() / "binary.db";
  std::string bytes = whole();
  bytes.at(bytes.find(std::string(100, 'b')) + 50) = 'x';
  write_file(file, bytes);
  sql(file, "DROP INDEX quarantines");
  const Cache cache = Cache::open(file);
  EXPECT_EQ(read(cache).measurements, keys * configs);
  EXPECT_EQ(warnings("set aside as " + file.string()), 1U);
  EXPECT_EQ(cache.status().binaries, binaries - 1);
}

TEST_F(Damage, WhatNobodyHasLookedForIsMendedWhenItIsMet) {
  const fs::path measurement = folder() / "measurement.db", trigger = folder() / "trigger.db";
  write_file(measurement, whole());
  sql(measurement,
      "DROP TRIGGER measurements_refuse_update; UPDATE measurements SET median_us = 0.5 WHERE id = 1");
  std::string bytes = whole();
  bytes.at(bytes.find("VALUES (NEW.key_id") + 9) = 'x';
  write_file(trigger, bytes);
  for (const fs::path& file : {measurement, trigger}) {
    SCOPED_TRACE(file);
    fs::resize_file(file, (std::uintmax_t{1} << 30) + 4096);  // too large to be examined
    Cache cache = Cache::open(file);
    const int before = file == measurement ? keys * configs - 1 : keys * configs;
    EXPECT_EQ(read(cache).measurements, before);
    EXPECT_EQ(warnings("set aside as " + file.string()), file == measurement ? 1U : 0U);
    cache.add(a_measurement(key_of(0), "new", 59000));
    EXPECT_EQ(warnings("set aside as " + file.string()), 1U);
    EXPECT_EQ(warnings(file.string()), 1U);
    EXPECT_TRUE(cache.status().persistent);
    EXPECT_EQ(Cache::open_existing(file).status().measurements, before + 1);
  }
}

TEST_F(Damage, ALogThatWaitsIsReadToo) {
  const fs::path source = folder() / "source.db", file = folder() / "copy.db";
  write_file(source, whole());
  {
    Cache cache = Cache::open(source);
    cache.add(a_measurement(key_of(0), "in the log", 1));
    std::string bytes = contents(source);
    bytes.at(bytes.find("compile-block/warps=20") + 20) = '7';
    write_file(file, bytes);
    fs::copy_file(source.string() + "-wal", file.string() + "-wal");
  }
  const Cache cache = Cache::open(file);
  EXPECT_EQ(cache.measurements(key_of(0)).size() + cache.measurements(key_of(1)).size() +
                cache.measurements(key_of(2)).size(),
            keys * configs);
  EXPECT_EQ(cache.measurements(key_of(0)).at(2).config, "in the log");
  EXPECT_EQ(warnings("set aside"), 1U);
}

TEST_F(Damage, WhoHasTheFileOpenGoesOnInTheNewOne) {
  write_file(file(), whole());
  Cache other = Cache::open(file());
  other.add(a_measurement(key_of(0), "before", 1));
  sql(file(),
      "DROP TRIGGER measurements_refuse_update; UPDATE measurements SET median_us = 0.5 WHERE id = 1");
  Cache cache = Cache::open(file());
  EXPECT_EQ(cache.measurements(key_of(0)).size(), configs);
  EXPECT_EQ(warnings("set aside"), 1U);
  other.add(a_measurement(key_of(0), "after", 2));
  EXPECT_EQ(other.measurements(key_of(0)).size(), configs + 1);
  EXPECT_EQ(cache.measurements(key_of(0)).size(), configs + 1);
  EXPECT_TRUE(other.status().persistent);
  EXPECT_EQ(warnings("set aside"), 1U);
}

TEST_F(Damage, AFileThatIsGoneIsMadeAgain) {
  Cache cache = Cache::open(file());
  cache.add(a_measurement(key, "lost", 1));
  fs::remove(file());
  cache.add(a_measurement(key, "kept", 2));
  EXPECT_EQ(Cache::open_existing(file()).measurements(key).at(0).config, "kept");
}

TEST_F(Damage, AVersionThatIsAnotherLosesNothing) {
  for (const int version : {schema_version + 1, schema_version + 16, 255, 1000, 1 << 24, -1, 0}) {
    SCOPED_TRACE(version);
    const fs::path damaged = folder() / fmt::format("version-{}.db", version);
    write_file(damaged, whole());
    sql(damaged, fmt::format("PRAGMA user_version = {}", version));
    const Cache cache = Cache::open(damaged);
    const Read all = read(cache);
    EXPECT_EQ(all.measurements, keys * configs);
    EXPECT_EQ(all.binaries, binaries);
    EXPECT_TRUE(cache.status().persistent);
    EXPECT_EQ(cache.status().schema_version, schema_version);
    EXPECT_EQ(warnings("set aside as " + damaged.string()), 1U);
  }
}

TEST_F(Damage, CommandsThatReadOnlyChangeNothing) {
  std::string bytes = whole();
  bytes.replace(100, 400, 400, '\x7f');
  write_file(file(), bytes);
  EXPECT_THROW(static_cast<void>(Cache::open_existing(file())), DatabaseError);
  EXPECT_EQ(contents(file()), bytes);
  EXPECT_TRUE(set_aside().empty());
}

/// A newer ce that meets the file while others work with it.
TEST_F(Damage, ASchemaThatIsNewerMeanwhileIsNone) {
  const int newer = schema_version + 1;
  const std::string update = fmt::format(
      "DROP INDEX measurements_by_config; CREATE INDEX by_another_name ON measurements (key_id, config);"
      "INSERT INTO schema_versions (version) VALUES ({}); PRAGMA user_version = {}",
      newer, newer);
  for (const bool has_written : {false, true}) {
    SCOPED_TRACE(has_written);
    const fs::path path = folder() / fmt::format("{}.db", has_written);
    write_file(path, whole());
    {
      Cache cache = Cache::open(path);
      if (has_written) cache.add(a_measurement(key_of(0), "before", 1));
      sql(path, update);
      const std::string digest = measurement_of(0, 0).template_digest;
      static_cast<void>(cache.has(key_of(0), std::array{digest}));  // asks the index that is gone
      cache.add(a_measurement(key_of(1), "after", 2));
      const auto known = cache.measurements(key_of(1));
      EXPECT_TRUE(
          std::any_of(known.begin(), known.end(), [](const Measurement& m) { return m.config == "after"; }));
    }
    EXPECT_TRUE(set_aside().empty());
    EXPECT_EQ(
        sql_value(path, "SELECT COUNT(*) FROM measurements WHERE config <> 'after' AND config <> 'before'"),
        fmt::format("{}", keys * configs));
  }
}

TEST_F(Damage, WhoWasToldToReadAFileIsToldOfWhatCannotBeRead) {
  write_file(file(), whole());
  sql(file(),
      "DROP TRIGGER measurements_refuse_update; UPDATE measurements SET median_us = 0.5 WHERE id = 1");
  const Cache cache = Cache::open_existing(file());
  EXPECT_THROW(static_cast<void>(cache.measurements(key_of(0))), DatabaseError);
  EXPECT_EQ(cache.measurements(key_of(1)).size(), configs);
  EXPECT_TRUE(set_aside().empty());
  EXPECT_EQ(warnings(""), 0U);
}

}  // namespace
}  // namespace ce::cache::test
