// Databases below the user's: the site's, and the one that ships with the library.
#include "cache/layers.hpp"

#include <SQLiteCpp/Database.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cache/schema.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/cache/processes.hpp"
#include "tests/environment.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;
using ce::test::ScopedEnvironment;

class Layers : public CacheTest {
 protected:
  [[nodiscard]] fs::path site() const { return folder() / "site" / "ce.db"; }
  [[nodiscard]] fs::path user() const { return folder() / "user" / "ce.db"; }

  const ScopedEnvironment site_{"CE_SITE_DB", site().string()}, system_{"CE_SYSTEM_DB", "none"};
};

TEST_F(Layers, TheSiteIsReadAndTheUsersOwnIsWritten) {
  Cache::open(site()).add(a_measurement(key, "of the site"));
  const std::string before = contents(site());
  Cache cache = Cache::open_layered(user());
  ASSERT_EQ(cache.lower().size(), 1U);
  const Layer& layer = cache.lower().front();
  EXPECT_EQ(layer.name, "site");
  EXPECT_EQ(layer.path, site());
  EXPECT_EQ(layer.problem, "");
  EXPECT_EQ(layer.cache.measurements(key).at(0).config, "of the site");
  EXPECT_TRUE(cache.measurements(key).empty());
  cache.add(a_measurement(key, "of the user"));
  EXPECT_EQ(layer.cache.measurements(key).size(), 1U);
  EXPECT_EQ(Cache::open_existing(user()).measurements(key).size(), 1U);
  EXPECT_EQ(contents(site()), before);
  EXPECT_TRUE(Cache::open(user()).lower().empty());
  EXPECT_EQ(warnings(""), 0U) << warning("");
}

TEST_F(Layers, WhatIsAddedToTheSiteOrReplacesItIsSeen) {
  Cache::open(site()).add(a_measurement(key, "first", 1));
  const Cache cache = Cache::open_layered(user());
  const Cache& layer = cache.lower().front().cache;
  EXPECT_EQ(layer.measurements(key).size(), 1U);
  {
    Cache writer = Cache::open(site());
    writer.add(a_measurement(key, "second", 2));
    EXPECT_EQ(layer.measurements(key).size(), 2U);
  }
  EXPECT_EQ(layer.measurements(key).size(), 2U);
  const fs::path next = folder() / "next.db";
  Cache::open(next).add(a_measurement(key, "another", 3));
  for (const char* suffix : {"-wal", "-shm"}) fs::remove(site().string() + suffix);  // those of the old one
  fs::rename(next, site());
  EXPECT_EQ(layer.measurements(key).at(0).config, "another");
}

TEST_F(Layers, OneWithAnotherSchemaIsLeftOutAndAsItIs) {
  fs::create_directories(site().parent_path());
  Cache::open(site()).add(a_measurement(key, "of another version"));
  sql(site(), "PRAGMA user_version = 0; UPDATE schema_versions SET version = 0");
  const std::string before = contents(site());
  const Cache cache = Cache::open_layered(user());
  EXPECT_THAT(cache.lower().front().problem, testing::HasSubstr("older version of ce"));
  EXPECT_TRUE(cache.lower().front().cache.measurements(key).empty());
  EXPECT_EQ(contents(site()), before);
}

TEST_F(Layers, OneThatCannotBeReadIsLeftOutAndSaidOnce) {
  for (int times = 0; times < 2; ++times) {
    Cache cache = Cache::open_layered(user());
    EXPECT_NE(cache.lower().front().problem, "");
    EXPECT_TRUE(cache.lower().front().cache.measurements(key).empty());
    EXPECT_EQ(warnings("CE_SITE_DB"), 1U);
  }
  fs::create_directories(site().parent_path());
  write_file(site(), std::string(5000, 'x'));
  EXPECT_THAT(open_lower_layers().front().problem, testing::HasSubstr("name another file (CE_SITE_DB)"));
  EXPECT_EQ(contents(site()), std::string(5000, 'x'));
  fs::remove(site());
  sql(site(), "CREATE TABLE theirs (x)");
  EXPECT_THAT(open_lower_layers().front().problem, testing::HasSubstr("name another file (CE_SITE_DB)"));
}

TEST_F(Layers, TwoUsersReadOneSite) {
  {
    Cache cache = Cache::open(site());
    cache.add(a_measurement(key, "a", 1));
    cache.add(a_measurement(key, "b", 2));
  }
  for (const fs::path& path : {folder(), site().parent_path(), fs::path(site())})
    fs::permissions(path, fs::perms(fs::is_directory(path) ? 0755 : 0644));
  const fs::path others = folder() / "other user";
  fs::create_directory(others);
  fs::permissions(others, fs::perms(0777));
  const std::string before = contents(site());

  Process other({"--site", (others / "ce.db").string(), "2"});
  Cache own = Cache::open_layered(user());
  EXPECT_EQ(own.lower().front().cache.measurements(key).size(), 2U);
  own.add(a_measurement(key, "own"));
  const std::string output = other.rest();
  EXPECT_EQ(other.wait(), 0) << output;
  EXPECT_EQ(contents(site()), before);
}

TEST_F(Layers, WhatShipsIsAnExportOfFinishedSearches) {
  const ScopedEnvironment built_in("CE_SYSTEM_DB", nullptr), no_site("CE_SITE_DB", nullptr);
  const auto layers = open_lower_layers();
  ASSERT_EQ(layers.size(), 1U);
  EXPECT_EQ(layers.front().name, "system");
  EXPECT_EQ(layers.front().problem, "");
  EXPECT_LT(shipped_winners().size(), 1'100'000U);
  const std::vector<KeySummary> keys = layers.front().cache.keys();
  EXPECT_GT(keys.size(), 100U);
  for (const KeySummary& summary : keys) {
    EXPECT_EQ(summary.measurements, 1) << summary.key.problem;
    for (const Measurement& m : layers.front().cache.measurements(summary.key)) {
      EXPECT_GT(m.stage, 0);
      EXPECT_GT(m.median_us, 0);
      EXPECT_FALSE(m.environment.contains("uuid"));
      EXPECT_FALSE(m.environment.contains("host"));
      EXPECT_FALSE(m.key.device.starts_with("host:"));
    }
  }
}

TEST_F(Layers, TheSiteComesFirstAndARelativePathIsMadeAbsolute) {
  const ScopedEnvironment relative("CE_SITE_DB", "no-such-site.db"),
      system("CE_SYSTEM_DB", "no-such-system.db");
  const auto layers = open_lower_layers();
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].name, "site");
  EXPECT_EQ(layers[0].path, fs::current_path() / "no-such-site.db");
  EXPECT_EQ(layers[1].name, "system");
  EXPECT_EQ(layers[1].path, fs::current_path() / "no-such-system.db");
}

TEST_F(Layers, ARelativePathInAFolderThatIsGoneIsLeftOut) {
  const fs::path before = fs::current_path(), gone = folder() / "gone";
  fs::create_directory(gone);
  fs::current_path(gone);
  fs::remove(gone);
  const ScopedEnvironment relative("CE_SITE_DB", "site.db");
  const std::vector<Layer> layers = open_lower_layers();
  fs::current_path(before);
  ASSERT_FALSE(layers.empty());
  EXPECT_NE(layers.front().problem, "");
}

TEST_F(Layers, AnotherSystemDatabaseCanBeNamed) {
  Cache::open(site()).add(a_measurement(key, "config"));
  const ScopedEnvironment system("CE_SYSTEM_DB", site().string()), no_site("CE_SITE_DB", nullptr);
  const auto layers = open_lower_layers();
  ASSERT_EQ(layers.size(), 1U);
  EXPECT_EQ(layers.front().name, "system");
  EXPECT_EQ(layers.front().cache.measurements(key).size(), 1U);
}

}  // namespace
}  // namespace ce::cache::test
