#include "cache/schema.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "ce/base/error.hpp"
#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

constexpr const char* first = "CREATE TABLE a (x); INSERT INTO a VALUES (1)";
constexpr const char* second = "CREATE TABLE b (x); INSERT INTO b SELECT x + 1 FROM a";
constexpr const char* broken = "INSERT INTO a VALUES (2); CREATE TABLE a (y)";

std::string value(SQLite::Database& database, const char* query) {
  return database.execAndGet(query).getString();
}

class Schema : public CacheTest {
 protected:
  SQLite::Database open() { return {file().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, 5000}; }
};

TEST_F(Schema, MigrationsRunInOrderEachOnce) {
  SQLite::Database database = open();
  migrate(database, std::array{first});
  EXPECT_EQ(value(database, "PRAGMA user_version"), "1");
  migrate(database, std::array{first, second});
  migrate(database, std::array{first, second});
  EXPECT_EQ(value(database, "PRAGMA user_version"), "2");
  EXPECT_EQ(value(database, "PRAGMA application_id"), std::to_string(application_id));
  EXPECT_EQ(value(database, "SELECT COUNT(*) || ' ' || SUM(x) FROM a"), "1 1");
  EXPECT_EQ(value(database, "SELECT COUNT(*) || ' ' || SUM(x) FROM b"), "1 2");
}

TEST_F(Schema, FailedMigrationLeavesNothingBehind) {
  SQLite::Database database = open();
  EXPECT_THROW(migrate(database, std::array{first, broken}), SQLite::Exception);
  EXPECT_EQ(value(database, "PRAGMA user_version"), "1");
  EXPECT_EQ(value(database, "SELECT COUNT(*) FROM a"), "1");
  migrate(database, std::array{first, second});
  EXPECT_EQ(value(database, "PRAGMA user_version"), "2");
}

TEST_F(Schema, TakesAnEmptyFileForItsOwn) {
  write_file(file(), "");
  Cache::open(file()).add(a_measurement(key, "config"));
  EXPECT_EQ(Cache::open_existing(file()).measurements(key).size(), 1U);
  EXPECT_EQ(sql_value(file(), "PRAGMA application_id"), std::to_string(application_id));
  EXPECT_EQ(sql_value(file(), "PRAGMA user_version"), std::to_string(migrations().size()));
}

TEST_F(Schema, StartsFromVersionZero) {
  sql(file(), "PRAGMA application_id = " + std::to_string(application_id) + "; PRAGMA user_version = 0");
  Cache cache = Cache::open(file());
  EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  EXPECT_EQ(cache.status().schema_version, static_cast<int>(migrations().size()));
}

TEST_F(Schema, NewerOneIsLeftAlone) {
  Cache::open(file()).add(a_measurement(key, "config"));
  sql(file(), "PRAGMA user_version = 1000");
  const std::string before = contents(file());
  {
    Cache cache = Cache::open(file());
    EXPECT_FALSE(cache.status().persistent);
    EXPECT_NE(cache.status().problem.find("upgrade ce"), std::string::npos) << cache.status().problem;
    cache.add(a_measurement(key, "other"));
    EXPECT_EQ(cache.measurements(key).size(), 1U);
  }
  EXPECT_THROW(static_cast<void>(Cache::open_existing(file())), DatabaseError);
  EXPECT_EQ(contents(file()), before);
}

TEST_F(Schema, MeasurementsAreAppendOnly) {
  Cache cache = Cache::open(file());
  cache.add(a_measurement(key, "config"));
  for (const char* statement :
       {"UPDATE measurements SET median_us = 0.1", "UPDATE measurements SET id = 7",
        "DELETE FROM measurements", "INSERT OR REPLACE INTO measurements SELECT * FROM measurements",
        "REPLACE INTO measurements SELECT * FROM measurements", "UPDATE evidence SET json = '{}'",
        "PRAGMA foreign_keys = ON; DELETE FROM keys", "PRAGMA foreign_keys = ON; DELETE FROM evidence"})
    EXPECT_THROW(sql(file(), statement), SQLite::Exception) << statement;
  const auto list = cache.measurements(key);
  ASSERT_EQ(list.size(), 1U);
  expect_same(list.front(), a_measurement(key, "config"));
}

TEST_F(Schema, WinnersIsTheFastestOfTheHighestStage) {
  Cache cache = Cache::open(file());
  const auto add = [&](const char* config, int stage, double median_us, Outcome outcome = Outcome::measured) {
    Measurement measurement = a_measurement(key, config);
    measurement.stage = stage;
    measurement.median_us = median_us;
    measurement.outcome = outcome;
    cache.add(measurement);
  };
  add("screened", 0, 1.0);
  EXPECT_EQ(sql_value(file(), "SELECT config FROM winners"), "screened");
  add("slow", 1, 9.0);
  add("fast", 1, 8.0);
  add("wrong", 1, 2.0);
  EXPECT_EQ(sql_value(file(), "SELECT config FROM winners"), "wrong");
  add("wrong", 1, 0.0, Outcome::quarantined);
  EXPECT_EQ(sql_value(file(), "SELECT config || ' ' || key FROM winners"), "fast " + key.id());
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM winners"), "1");
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM history WHERE samples = 3"), "5");
}

}  // namespace
}  // namespace ce::cache::test
