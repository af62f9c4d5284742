#include "cache/schema.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "cache/codec.hpp"
#include "cache/maintenance.hpp"
#include "cache/open.hpp"
#include "cache/repair/read_files.hpp"
#include "ce/error.hpp"
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
  sql(file(), "PRAGMA user_version = 1000; INSERT INTO schema_versions (version) VALUES (1000)");
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

TEST_F(Schema, EveryVersionIsInItsTable) {
  SQLite::Database database = open();
  for (std::size_t version = 4; version <= migrations().size(); ++version) {
    migrate(database, migrations().first(version));
    EXPECT_EQ(value(database, "SELECT MAX(version) FROM schema_versions"), std::to_string(version));
  }
  EXPECT_EQ(value(database, "SELECT COUNT(*) FROM schema_versions WHERE created_at LIKE '20__-__-__T%Z'"),
            std::to_string(migrations().size() - 3));
}

TEST_F(Schema, MeasurementsAreAppendOnly) {
  Cache cache = Cache::open(file());
  cache.add(a_measurement(key, "config"));
  for (const char* statement :
       {"UPDATE measurements SET median_us = 0.1", "UPDATE measurements SET id = 7",
        "DELETE FROM measurements", "INSERT OR REPLACE INTO measurements SELECT * FROM measurements",
        "REPLACE INTO measurements SELECT * FROM measurements", "UPDATE environments SET json = '{}'",
        "DELETE FROM environments",
        "INSERT OR REPLACE INTO environments SELECT id, digest, '{}' FROM environments",
        "INSERT OR REPLACE INTO environments (digest, json) SELECT digest, '{}' FROM environments",
        "PRAGMA foreign_keys = ON; DELETE FROM keys"})
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
  add("fast", 1, 9.5);
  EXPECT_EQ(sql_value(file(), "SELECT config FROM winners"), "slow") << "what was measured last counts";
}

/// Those whose measurements have the columns of today.
class SchemaOfVersion : public Schema, public testing::WithParamInterface<int> {
 protected:
  SchemaOfVersion() {
    for (int i = 0; i < 5; ++i) list.push_back(a_measurement(key, "config " + std::to_string(i % 3), i));
    list.back().outcome = Outcome::quarantined;
    SQLite::Database database = open();
    migrate(database, migrations().first(static_cast<std::size_t>(GetParam())));
    database.exec("INSERT INTO device_models VALUES (1, '" + key.device +
                  "'); INSERT INTO problems VALUES (1, '" + key.problem +
                  "'); INSERT INTO keys VALUES (1, '" + key.id() + "', 1, 1)");
    SQLite::Statement environment(database, "INSERT INTO environments VALUES (1, ?1, ?2)");
    const std::string json = encode_environment(list.front().environment);
    environment.bind(1, digest({json}));
    environment.bind(2, json);
    environment.exec();
    for (std::size_t i = 0; i < list.size(); ++i) insert(database, static_cast<int>(i) + 1, list[i]);
  }
  static void insert(SQLite::Database& database, int id, const Measurement& measurement) {
    SQLite::Statement row(database, R"sql(
      INSERT INTO measurements
      SELECT ?1, 1, ?2, 'templates', ?3, ?4, '', 1, 1024, 1048576, x'0000c03f0000204000006040', 2.5, 0.25, 32, 0, 1, ?5, ?6)sql");
    row.bind(1, id);
    row.bind(2, measurement.config);
    row.bind(3, measurement.compile_key);
    row.bind(4, std::string(name(measurement.outcome)));
    row.bind(5, measurement.created_at);
    row.bind(6, identity_of(measurement));
    row.exec();
  }

  std::vector<Measurement> list;
};

TEST_P(SchemaOfVersion, IsReadAsItIsUntilTheFirstWrite) {
  const std::string before = contents(file());
  Cache cache = Cache::open_existing(file());
  const auto expect_known = [&](std::size_t count) {
    EXPECT_EQ(cache.measurements(key).size(), count);
    EXPECT_EQ(cache.keys().at(0).measurements, static_cast<std::int64_t>(count));
  };
  expect_known(5);
  EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  EXPECT_EQ(cache.status().schema_version, GetParam());
  EXPECT_EQ(contents(file()), before);
  cache.add(a_measurement(key, "new", 9));
  expect_known(6);
  EXPECT_EQ(cache.status().schema_version, static_cast<int>(migrations().size()));
  EXPECT_EQ(sql_value(file(), "PRAGMA user_version"), std::to_string(migrations().size()));
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM measurements"), "6");
}

TEST_P(SchemaOfVersion, IsBroughtUpToDateAndLosesNothing) {
  const auto columns = [&] {
    return sql_value(file(), "SELECT GROUP_CONCAT(name) FROM pragma_table_info('key_counts')");
  };
  const std::string image = "image of ";
  const auto add_binary = [&](const char* name, const std::string& checked) {
    sql(file(), fmt::format("INSERT INTO binaries VALUES ('{0}', CAST('{1}{0}' AS BLOB), '{2}', '', '', '')",
                            name, image, checked));
  };
  if (GetParam() < 7) {  // digests were those of the images alone, and wrong ones go on the way
    add_binary("one", digest({image + "one"}));
    add_binary("damaged", digest({image + "one"}));
  } else {
    add_binary("one", digest({"one", image + "one"}));
  }
  EXPECT_EQ(columns().empty(), GetParam() < 3);
  EXPECT_EQ(sql_value(file(), "PRAGMA user_version"), std::to_string(GetParam()));
  Cache cache = Cache::open(file());
  EXPECT_NE(columns(), "");
  EXPECT_EQ(sql_value(file(), "PRAGMA user_version"), std::to_string(migrations().size()));
  const auto migrated = cache.measurements(key);
  EXPECT_EQ(cache.binary("one"), as_bytes(image + "one"));
  EXPECT_EQ(cache.status().binaries, 1) << "one was damaged";
  ASSERT_EQ(migrated.size(), list.size());
  for (std::size_t i = 0; i < list.size(); ++i) expect_same(migrated[i], list[i]);
  EXPECT_TRUE(Maintenance::copy(file()).damages().empty());
  const auto expect_counts = [&](int measurements, int configs, int quarantined) {
    const KeySummary summary = cache.keys().at(0);
    EXPECT_EQ(summary.measurements, measurements);
    EXPECT_EQ(summary.configs, configs);
    EXPECT_EQ(summary.quarantined, quarantined);
    EXPECT_EQ(summary.first_at, list.front().created_at);
    EXPECT_EQ(summary.last_at, cache.measurements(key).back().created_at);
  };
  expect_counts(5, 3, 1);
  cache.add(a_measurement(key, "new", 9));
  cache.add(a_measurement(key, "new", 9));  // known
  expect_counts(6, 4, 1);
  list[4].created_at = "2031-01-01T00:00:00.000Z";
  cache.add(list[4]);
  expect_counts(7, 4, 1);
}

INSTANTIATE_TEST_SUITE_P(Earlier, SchemaOfVersion, testing::Range(2, static_cast<int>(migrations().size())));

TEST_F(Schema, CountsThatAreWrongAreDamage) {
  Cache::open(file()).add(a_measurement(key, "config"));
  sql(file(), "UPDATE key_counts SET configs = 7");
  EXPECT_EQ(
      Maintenance::copy(file()).damages(),
      std::vector<std::string>{"counts: those of key " + key.id() + " are not what its measurements say"});
  Cache cache = Cache::open(file());
  cache.add(a_measurement(key, "other", 1));
  EXPECT_EQ(warnings("set aside"), 1U);
  EXPECT_EQ(cache.keys().at(0).configs, 2);
}

TEST_F(Schema, RegressionsAreSlowerMediansOfTheNextPopulation) {
  Cache cache = Cache::open(file());
  int number = 0;
  const auto add = [&](const char* config, const char* driver, double median_us,
                       int stage = stage_of_finals) {
    Measurement measurement = a_measurement(key, config, ++number);
    measurement.median_us = median_us;
    measurement.stage = stage;
    measurement.environment = {{"driver", driver}, {"nvrtc", "13.0"}, {"ce", "0.1.0"}};
    cache.add(measurement);
  };
  add("slower", "550", 10);
  add("faster", "550", 10);
  add("slower", "550", 11);
  add("slower", "550", 99, stage_of_screenings);
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM regressions"), "0");
  add("faster", "560", 9);
  add("slower", "560", 12);
  add("slower", "560", 13.2, stage_of_checks);
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM regressions"), "1");
  EXPECT_EQ(sql_value(file(), R"sql(
              SELECT key || ' ' || config || ' ' || ratio || ' ' || median_before_us || ' ' || median_us || ' ' ||
                     runs_before || ' ' || runs || ' ' || changed FROM regressions)sql"),
            key.id() + " slower 1.2 10.5 12.6 2 2 driver 550 -> 560");
}

TEST(Codec, EnvironmentIsReadToItsEnd) {
  const std::string text = encode_environment({{"driver", "550.1"}, {"note", "\"quoted\""}});
  EXPECT_EQ(encode_environment(decode_environment(text)), text);
  EXPECT_EQ(decode_environment("{\"driver\":\"550.1\"}").size(), 1U);
  EXPECT_ANY_THROW(decode_environment("{\"driver\":\"550.1\"} and more"));
  EXPECT_ANY_THROW(decode_environment("{\"driver\":\"550.1\""));
}

TEST(ImmutableUri, KeepsWhatHasAMeaningInOne) {
  EXPECT_EQ(immutable_uri("/a folder/what?#100%.db"), "file:///a folder/what%3f%23100%25.db?immutable=1");
  EXPECT_EQ(immutable_uri("//two/ce.db"), "file:////two/ce.db?immutable=1");
  EXPECT_EQ(immutable_uri("ce.db"), "file:ce.db?immutable=1");
}

}  // namespace
}  // namespace ce::cache::test
