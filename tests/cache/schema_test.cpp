#include "cache/schema.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cache/codec.hpp"
#include "cache/maintenance.hpp"
#include "cache/open.hpp"
#include "cache/read_files.hpp"
#include "cache/recognize.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

std::string value(SQLite::Database& database, const char* query) {
  return database.execAndGet(query).getString();
}

class Schema : public CacheTest {
 protected:
  SQLite::Database open() { return {file().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, 5000}; }
};

TEST_F(Schema, TakesAnEmptyFileForItsOwn) {
  write_file(file(), "");
  Cache::open(file()).add(a_measurement(key, "config"));
  EXPECT_EQ(Cache::open_existing(file()).measurements(key).size(), 1U);
  EXPECT_EQ(sql_value(file(), "PRAGMA application_id"), std::to_string(application_id));
  EXPECT_EQ(sql_value(file(), "PRAGMA user_version"), "1");
  EXPECT_EQ(
      sql_value(file(),
                "SELECT GROUP_CONCAT(version) FROM schema_versions WHERE created_at LIKE '20__-__-__T%Z'"),
      "1");
}

TEST_F(Schema, IsCreatedOnce) {
  SQLite::Database database = open();
  create_tables(database);
  database.exec("INSERT INTO problems (text) VALUES ('kept')");
  create_tables(database);
  EXPECT_EQ(schema_of(database), schema_version);
  EXPECT_EQ(value(database, "SELECT COUNT(*) FROM problems"), "1");
}

TEST_F(Schema, IsCreatedWholeOrNotAtAll) {
  SQLite::Database database = open();
  database.exec("CREATE VIEW regressions AS SELECT 1");  // in the way of what is created last
  EXPECT_THROW(create_tables(database), SQLite::Exception);
  EXPECT_EQ(schema_of(database), 0);
  EXPECT_EQ(value(database, "SELECT GROUP_CONCAT(name) FROM sqlite_master"), "regressions");
  database.exec("DROP VIEW regressions");
  create_tables(database);
  EXPECT_EQ(schema_of(database), schema_version);
}

TEST_F(Schema, IsCreatedInAFileThatNamesOursAndHasNoTables) {
  sql(file(), "PRAGMA application_id = " + std::to_string(application_id));
  const Cache cache = Cache::open(file());
  EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  EXPECT_EQ(cache.status().schema_version, schema_version);
}

/// Of a ce that this one does not know.
class SchemaOfVersion : public Schema, public testing::WithParamInterface<int> {
 protected:
  SchemaOfVersion() {
    Cache::open(file()).add(a_measurement(key, "config"));
    sql(file(),
        fmt::format("PRAGMA user_version = {0}; UPDATE schema_versions SET version = {0}", GetParam()));
  }
  [[nodiscard]] static std::string advice() {
    return GetParam() > schema_version ? "upgrade ce" : "older version of ce";
  }
  template <class Action>
  void expect_refused(const Action& action) {
    try {
      action();
      ADD_FAILURE() << "it was taken";
    } catch (const Damaged& error) {
      ADD_FAILURE() << error.what();
    } catch (const DatabaseError& error) {
      const std::string said = error.what();
      for (const std::string& part : {file().string(), fmt::format("schema {}", GetParam()), advice()})
        EXPECT_NE(said.find(part), std::string::npos) << said;
    }
  }
};

TEST_P(SchemaOfVersion, IsRefusedAndLeftAlone) {
  const std::string before = contents(file());
  {
    Cache cache = Cache::open(file());
    EXPECT_FALSE(cache.status().persistent);
    EXPECT_NE(cache.status().problem.find(advice()), std::string::npos) << cache.status().problem;
    cache.add(a_measurement(key, "other"));
    EXPECT_EQ(cache.measurements(key).size(), 1U) << "in memory";
  }
  expect_refused([&] { static_cast<void>(Cache::open_existing(file())); });
  expect_refused([&] { static_cast<void>(Cache::open_to_read(file())); });
  expect_refused([&] { static_cast<void>(Maintenance::open(file())); });
  expect_refused([&] { static_cast<void>(Maintenance::create(file())); });
  expect_refused([&] { static_cast<void>(Maintenance::copy(file())); });
  expect_refused([&] { static_cast<void>(Maintenance::mend(file())); });
  EXPECT_EQ(contents(file()), before);
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    EXPECT_EQ(entry.path().string().find("corrupt"), std::string::npos) << "it was set aside";
}

INSTANTIATE_TEST_SUITE_P(OlderAndNewer, SchemaOfVersion, testing::Values(-1, 0, schema_version + 1, 1000));

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

TEST_F(Schema, CountsThatAreWrongAreDamage) {
  Cache::open(file()).add(a_measurement(key, "config"));
  sql(file(), "UPDATE key_counts SET configs = 7");
  EXPECT_EQ(
      Maintenance::copy(file()).damages(),
      std::vector<std::string>{"counts: the counts of key " + key.id() + " do not match its measurements"});
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
