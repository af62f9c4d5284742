#include "cache/maintenance.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cache/codec.hpp"
#include "cache/export.hpp"
#include "cache/open.hpp"
#include "cache/schema.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

class MaintenanceTest : public CacheTest {
 protected:
  [[nodiscard]] fs::path other() const { return folder() / "other.db"; }

  static void fill(const fs::path& path, const std::vector<Measurement>& list) {
    Cache cache = Cache::open(path);
    for (const Measurement& measurement : list) cache.add(measurement);
  }
  static std::string lines_of(const fs::path& path) {
    std::ostringstream out;
    Maintenance::copy(path).write_lines(out);
    return out.str();
  }
  static void add_one(const Store::AddOne& add, const Measurement& measurement) {
    add(EncodedMeasurement(measurement).view(), identity_of(measurement));
  }
  /// \returns how many were added
  static std::int64_t import(const fs::path& path, const std::string& lines) {
    std::istringstream in(lines);
    return Maintenance::create_to_fill(path).add(
        [&](const auto& add_one) { visit_export(in, "export.jsonl", add_one); });
  }
};

TEST_F(MaintenanceTest, EveryTimeOfAClockIsExportedAndImported) {
  constexpr std::time_t least = std::numeric_limits<std::time_t>::min(), most = -(least + 1);
  const std::vector<std::pair<std::timespec, std::string>> times{
      {{.tv_sec = least, .tv_nsec = 0}, "0000-01-01T00:00:00.000Z"},
      {{.tv_sec = -1, .tv_nsec = 999'000'000}, "1969-12-31T23:59:59.999Z"},
      {{.tv_sec = 0, .tv_nsec = 1'000'000}, "1970-01-01T00:00:00.001Z"},
      {{.tv_sec = 253'402'300'799, .tv_nsec = 5'000'000}, "9999-12-31T23:59:59.005Z"},
      {{.tv_sec = most, .tv_nsec = 7'000'000}, "9999-12-31T23:59:59.000Z"}};
  std::vector<Measurement> list;
  for (const auto& [clock, text] : times) {
    EXPECT_EQ(utc_text(clock), text);
    list.push_back(a_measurement(key, "config"));
    list.back().created_at = utc_text(clock);
  }
  fill(file(), list);
  EXPECT_EQ(import(other(), lines_of(file())), 5);
  EXPECT_EQ(lines_of(other()), lines_of(file()));
}

/// Of a version that did not look at the clock, or of another program.
TEST_F(MaintenanceTest, WhatNoImportTakesIsLeftOutOfAnExport) {
  Measurement good = a_measurement(key, "good"), late = a_measurement(key, "late"), early = late;
  late.created_at = "12000-01-01T00:00:00.000Z";
  early.created_at = "1969-12-31T23:59:59.-01Z";
  fill(file(), {good, late, early});
  std::ostringstream out;
  const Maintenance::Written written = Maintenance::copy(file()).write_lines(out);
  EXPECT_EQ(written.measurements, 1);
  EXPECT_EQ(written.left_out, 2);
  EXPECT_EQ(written.because,
            "created_at is \"12000-01-01T00:00:00.000Z\"; expected a time such as 2026-11-21T12:13:58.797Z");
  EXPECT_EQ(import(other(), out.str()), 1);
}

TEST_F(MaintenanceTest, AnIdentityIsOfEveryMember) {
  const Measurement one = a_measurement(key, "config");
  EXPECT_EQ(identity_of(one), identity_of(a_measurement(key, "config")));
  std::vector<Measurement> others(16, one);
  others[0].key.problem += "x";
  others[1].key.device += "x";
  others[2].config += "x";
  others[3].template_digest += "x";
  others[4].compile_key += "x";
  others[5].outcome = Outcome::quarantined;
  others[6].reason += "x";
  others[7].stage = 0;
  others[8].rows += 1;
  others[9].bytes += 1;
  others[10].samples_us[1] = std::nextafterf(others[10].samples_us[1], 100);
  others[11].median_us = std::nextafter(one.median_us, 100);
  others[12].spread = std::numeric_limits<double>::quiet_NaN();
  others[13].registers += 1;
  others[14].local_bytes += 1;
  others[15].environment["driver"] = "550.2";
  others.push_back(one);
  others.back().created_at = "2031";
  others.push_back(one);
  std::sort(others.begin(), others.end(),
            [](const auto& a, const auto& b) { return identity_of(a) < identity_of(b); });
  for (std::size_t i = 1; i < others.size(); ++i)
    EXPECT_NE(identity_of(others[i - 1]), identity_of(others[i]));
}

TEST_F(MaintenanceTest, JsonKeepsEverything) {
  Measurement m = a_measurement(key, "block/warps=4,vec=8");
  m.outcome = Outcome::quarantined;
  m.reason = "does not compile:\n\"quotes\" and µs";
  m.samples_us = {0.1F, std::numeric_limits<float>::denorm_min(), 16777217.0F};
  m.spread = std::numeric_limits<double>::quiet_NaN();
  m.rows = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(to_json(m).find('\n'), std::string::npos);
  expect_same(from_json(to_json(m)), m);
  EXPECT_EQ(nlohmann::json::parse(to_json(m)).dump(), to_json(m)) << "the text that identities are made of";
  m.reason = "\xff";  // no UTF-8
  EXPECT_EQ(identity_of(from_json(to_json(m))), identity_of(m));
}

/// A space before it makes the JSON library read it.
TEST_F(MaintenanceTest, AJsonThatWasWrittenHereIsReadAsTheJsonLibraryReadsIt) {
  std::mt19937_64 random(ce::test::test_seed());
  for (int i = 0; i < 300; ++i) {
    Measurement m = a_measurement(key, "config", i);
    m.samples_us.clear();
    for (int s = 0; s < i % 20; ++s)
      m.samples_us.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    m.median_us = std::bit_cast<double>(random());
    m.bytes = static_cast<std::int64_t>(random());
    m.environment = Environment();
    for (int name = 0; name < i % 4; ++name)
      m.environment[fmt::to_string(random())] = i % 7 == 0 ? "a \"text\"" : "a text";
    const std::string line = to_json(m);
    EXPECT_EQ(to_json(from_json(line)), to_json(from_json(" " + line))) << line;
  }
  const std::string line = to_json(a_measurement(key, "config"));
  const auto expect_alike = [&](const std::string& before, const std::string& after) {
    std::string changed = line;
    const std::size_t at = changed.find(before);
    ASSERT_NE(at, std::string::npos) << before;
    changed.replace(at, before.size(), after);
    const auto read = [](const std::string& text) -> std::string {
      try {
        return to_json(from_json(text));
      } catch (const std::exception&) {
        return "refused";
      }
    };
    EXPECT_EQ(read(changed), read(" " + changed)) << changed;
  };
  for (const char* number : {"01",
                             "-0",
                             "-",
                             "+2",
                             ".5",
                             "2.",
                             "2e",
                             "2e+1",
                             "2E-1",
                             "1e999",
                             "1e-999",
                             "nan",
                             "inf",
                             "0x2",
                             "2 ",
                             "\"2\"",
                             "null",
                             "2.50",
                             "18446744073709551616",
                             ""}) {
    expect_alike("\"median_us\":2.5", std::string("\"median_us\":") + number);
    expect_alike("\"registers\":32", std::string("\"registers\":") + number);
    expect_alike("\"samples_us\":[", std::string("\"samples_us\":[") + number + ",");
  }
  expect_alike("}", "} ");
  const std::string end = line.substr(line.size() - 12);
  expect_alike(end, end + "}");
  expect_alike(end, end + "\n");
  expect_alike("\"measured\"", "\"quarantined\"");
  expect_alike("\"measured\"", "\"fast\"");
  expect_alike("\"environment\":{", "\"environment\":{\"z\":\"first\",\"a\":\"last\",\"a\":\"again\",");
}

TEST_F(MaintenanceTest, WhatComesIntoAnEmptyDatabaseIsIndexedAtTheEndEachOnce) {
  const std::unique_ptr<Store> store = Store::in_memory();
  const auto add_all = [&](int first, int last) {
    return store->add([&](const auto& add) {
      for (int i = first; i < last; ++i) {
        const Measurement m = a_measurement(key, fmt::format("config {}", i % 7), i);
        add_one(add, m);
        add_one(add, m);
      }
    });
  };
  EXPECT_EQ(add_all(0, 30), 30);
  EXPECT_EQ(store->first_damage(Store::Depth::full), "");
  EXPECT_EQ(add_all(20, 40), 10) << "the indexes tell what is there";
  EXPECT_EQ(store->damages(), std::vector<std::string>());
  EXPECT_EQ(store->counts().measurements, 40);
}

TEST_F(MaintenanceTest, WhereNothingComesIntoAnEmptyDatabaseItsIndexesStay) {
  const std::unique_ptr<Store> store = Store::in_memory();
  EXPECT_THROW(store->add([&](const auto& add) {
    const Measurement m = a_measurement(key, "one", 0);
    add_one(add, m);
    throw std::runtime_error("cut short");
  }),
               std::runtime_error);
  EXPECT_EQ(store->counts().measurements, 0);
  EXPECT_EQ(store->first_damage(Store::Depth::full), "");
}

TEST_F(MaintenanceTest, WhatIsAddedWithoutTriggersIsCountedAndTheyAreOnAgain) {
  const std::unique_ptr<Store> store = Store::in_memory();
  store->add(std::vector{a_measurement(key, "one", 0), a_measurement(key, "two", 1)});
  Measurement rejected = a_measurement(key, "three", 2);
  rejected.outcome = Outcome::quarantined;
  EXPECT_EQ(store->add([&](const auto& add) {
    for (const Measurement& m : {rejected, a_measurement(key, "two", 1), a_measurement(key, "two", 3)})
      add_one(add, m);
  }),
            2);
  store->add(std::vector{a_measurement(key, "four", 4)});
  ASSERT_EQ(store->keys().size(), 1U);
  const KeySummary summary = store->keys().front();
  EXPECT_EQ(summary.measurements, 5);
  EXPECT_EQ(summary.configs, 4);
  EXPECT_EQ(summary.quarantined, 1);
  EXPECT_EQ(summary.first_at, a_measurement(key, "one", 0).created_at);
  EXPECT_EQ(summary.last_at, a_measurement(key, "four", 4).created_at);
  EXPECT_EQ(store->damages(), std::vector<std::string>());
}

TEST_F(MaintenanceTest, NothingIsAddedToAnEnvironmentThatWasChanged) {
  fill(other(), {a_measurement(key, "one")});
  fill(file(), {a_measurement(key, "two")});
  const std::string trigger =
      sql_value(file(), "SELECT sql FROM sqlite_master WHERE name = 'environments_refuse_update'");
  sql(file(), "DROP TRIGGER environments_refuse_update; UPDATE environments SET json = '{}';" + trigger);
  EXPECT_THROW(import(file(), lines_of(other())), DatabaseError);
}

TEST_F(MaintenanceTest, ADamagedFileIsExaminedBeforeItIsChanged) {
  static_cast<void>(Cache::open(file()));
  sql(file(), "DROP TRIGGER environments_refuse_update");
  const std::string before = contents(file());
  EXPECT_THROW(static_cast<void>(Maintenance::open(file())), Damaged);
  EXPECT_THROW(static_cast<void>(Maintenance::create(file())), Damaged);
  EXPECT_EQ(contents(file()), before);
}

TEST_F(MaintenanceTest, AnEnvironmentThatCannotBeReadIsDamageOfItsMeasurements) {
  Cache::open(file()).add(a_measurement(key, "config"));
  sql(file(), "DROP TRIGGER environments_refuse_update; UPDATE environments SET json = 'no JSON'");
  const std::vector<std::string> damages = Maintenance::copy(file()).damages();
  EXPECT_EQ(damages, (std::vector<std::string>{
                         "tables: its environments_refuse_update has changed since it was created",
                         "environments: the digest of row 1 does not match its text",
                         "measurements: row 1 of key " + key.id() + " has changed since it was written"}));
}

TEST_F(MaintenanceTest, MergingIsCommutativeIdempotentAndChangesTheOtherFileNot) {
  std::mt19937_64 random(ce::test::test_seed());
  std::vector<Measurement> here, there;
  for (int i = 0; i < 60; ++i) {
    const Key one{.problem = fmt::format("problem {}", random() % 3), .device = "gpu"};
    const Measurement measurement = a_measurement(one, fmt::format("config {}", random() % 4), i);
    if (i % 3 != 0) here.push_back(measurement);
    if (i % 3 != 1) there.push_back(measurement);
  }
  std::shuffle(there.begin(), there.end(), random);
  fill(file(), here);
  fill(other(), there);
  const std::string before = contents(other());
  fs::copy_file(file(), folder() / "first.db");
  fs::copy_file(other(), folder() / "second.db");

  const auto merge = [](const fs::path& into, const fs::path& from) {
    const Maintenance source = Maintenance::copy(from);
    return Maintenance::open(into).merge({&source, 1}, false).front();
  };
  EXPECT_EQ(merge(file(), other()).measurements, 20);
  EXPECT_EQ(contents(other()), before);
  EXPECT_EQ(merge(file(), other()).measurements, 0);
  EXPECT_EQ(merge(folder() / "second.db", folder() / "first.db").measurements, 20);
  EXPECT_EQ(lines_of(file()), lines_of(folder() / "second.db"));
  EXPECT_TRUE(Maintenance::copy(file()).damages().empty());
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM measurements"), "60");
}

TEST_F(MaintenanceTest, BinariesComeOnlyWhenAskedForAndWhole) {
  {
    Cache cache = Cache::open(other());
    cache.add(a_measurement(key, "config"));
    cache.keep_binary("whole", as_bytes("good"), {.compiler = "nvrtc", .name = "softmax"});
    cache.keep_binary("damaged", as_bytes("good"), {});
  }
  sql(other(), "UPDATE binaries SET image = CAST('goOd' AS BLOB) WHERE compile_key = 'damaged'");
  const Maintenance source = Maintenance::copy(other());
  EXPECT_EQ(Maintenance::create(file()).merge({&source, 1}, false).front().binaries, 0);
  EXPECT_EQ(Cache::open(file()).status().binaries, 0);
  EXPECT_EQ(Maintenance::open(file()).merge({&source, 1}, true).front().binaries, 1);
  EXPECT_EQ(Cache::open(file()).binary("whole"), as_bytes("good"));
  EXPECT_EQ(Maintenance::open(file()).merge({&source, 1}, true).front().binaries, 0);
}

TEST_F(MaintenanceTest, SeveralAreMergedAllOrNone) {
  fill(file(), {a_measurement(key, "own")});
  fill(other(), {a_measurement(key, "one"), a_measurement(key, "two")});
  const fs::path damaged = folder() / "damaged.db";
  fill(damaged, {a_measurement(key, "two"), a_measurement(key, "three")});
  fs::copy_file(damaged, folder() / "whole.db");
  sql(damaged,
      "DROP TRIGGER measurements_refuse_update; UPDATE measurements SET samples_us = x'00' WHERE config = "
      "'three'");

  std::vector<Maintenance> sources;
  sources.push_back(Maintenance::copy(other()));
  sources.push_back(Maintenance::copy(damaged));
  try {
    Maintenance::open(file()).merge(sources, false);
    ADD_FAILURE() << "a damaged measurement was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("damaged.db"), std::string::npos) << error.what();
  }
  EXPECT_EQ(Cache::open(file()).status().measurements, 1);

  sources.pop_back();
  sources.push_back(Maintenance::copy(folder() / "whole.db"));
  const std::vector<Store::Copied> added = Maintenance::open(file()).merge(sources, false);
  ASSERT_EQ(added.size(), 2U);
  EXPECT_EQ(added[0].measurements, 2);
  EXPECT_EQ(added[1].measurements, 1) << "the first has the other one, too";
  EXPECT_EQ(Cache::open(file()).status().measurements, 4);
}

TEST_F(MaintenanceTest, AnExportComesBackWhole) {
  std::vector<Measurement> list;
  for (int i = 0; i < 20; ++i) list.push_back(a_measurement(key, "config " + std::to_string(i % 7), i));
  fill(other(), list);
  const std::string lines = lines_of(other());
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 22);
  EXPECT_EQ(import(file(), lines), 20);
  EXPECT_EQ(lines_of(file()), lines);
  EXPECT_EQ(import(file(), lines), 0);
  const auto back = Cache::open(file()).measurements(key);
  ASSERT_EQ(back.size(), list.size());
  for (std::size_t i = 0; i < back.size(); ++i) expect_same(back[i], list[i]);
}

TEST_F(MaintenanceTest, AnExportOfNothingIsAnExport) {
  fill(other(), {});
  EXPECT_EQ(import(file(), lines_of(other())), 0);
}

TEST_F(MaintenanceTest, AChangedExportIsRefusedWithItsLine) {
  fill(other(), {a_measurement(key, "one", 1), a_measurement(key, "two", 2)});
  const std::string lines = lines_of(other());
  const auto expect_refused = [&](const std::string& changed, const std::string& message) {
    try {
      import(file(), changed);
      ADD_FAILURE() << "taken: " << changed;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
    EXPECT_EQ(Cache::open(file()).status().measurements, 0);
  };
  const auto with = [&](const std::string& text, const std::string& other_text) {
    std::string changed = lines;
    const std::size_t at = changed.find(text);
    EXPECT_NE(at, std::string::npos) << text;
    return changed.replace(at, text.size(), other_text);
  };
  expect_refused("", "export.jsonl is empty; expected an export");
  expect_refused("{}\n", "line 1 of export.jsonl is not the first line");
  expect_refused(lines.substr(lines.find('\n') + 1), "line 1 of export.jsonl is not the first line");
  expect_refused(with("\"version\":1", "\"version\":2"), "line 1 of export.jsonl is not the first line");
  const std::string other_end =
      "line 4 of export.jsonl is an end that does not match the lines before it: a line was changed";
  expect_refused(with("\"median_us\":2.5", "\"median_us\":1.5"), other_end);
  expect_refused(with("\"median_us\":2.5", "\"median_us\":1.5") + lines, other_end);
  expect_refused(with("\"measurements\":2", "\"measurements\":3"), other_end);
  expect_refused(with("\"stage\":1,", ""), "line 2 of export.jsonl: stage is missing");
  expect_refused(with("\"measured\"", "\"fast\""), "expected measured or quarantined");
  expect_refused(with("\"stage\":1,", "\"stage\":1.5,"),
                 "line 2 of export.jsonl: stage is 1.5; expected a whole number of 32 bits");
  expect_refused(with("\"stage\":1,", "\"stage\":4294967297,"),
                 "stage is 4294967297; expected a whole number");
  expect_refused(with("\"median_us\":2.5", "\"median_us\":true"),
                 "line 2 of export.jsonl: median_us is true; expected a number of 64 bits");
  expect_refused(with("\"samples_us\":[", "\"samples_us\":[1e39,"),
                 "line 2 of export.jsonl: samples_us is 1e+39; expected a number of 32 bits");
  expect_refused(with("\"created_at\":\"", "\"created_at\":\"at "), "created_at is \"at ");
  expect_refused(with("T00:00:", " 00:00:"), "created_at is \"2030-01-01 00:00:");
  const std::string no_end = " of export.jsonl is the last line, but not the end of an export";
  expect_refused(lines.substr(0, lines.find('\n') + 1), "line 1" + no_end);
  expect_refused(lines.substr(0, lines.rfind('{')), "line 3" + no_end);
  expect_refused(lines.substr(0, lines.rfind('{') - 9), "line 3" + no_end);
  expect_refused(lines.substr(0, lines.rfind('{') + 4), "line 4" + no_end);
  const std::string behind =
      "line 5 of export.jsonl is after the end of the export; expected nothing after line 4";
  for (const std::string& more : {lines, std::string("{}\n"), std::string("\n"), std::string("no newline")})
    expect_refused(lines + more, behind);
}

TEST_F(MaintenanceTest, PruningKeepsWhatDecidesAndWhatIsLatest) {
  const auto measured = [&](const char* config, const char* templates, int stage, double median_us,
                            int number) {
    Measurement m = a_measurement(key, config, number);
    m.template_digest = templates;
    m.compile_key = fmt::format("{}-{} shared", config, templates);
    m.stage = stage;
    m.median_us = median_us;
    return m;
  };
  Measurement wrong = measured("block/4", "old", 0, 0, 4);
  wrong.outcome = Outcome::quarantined;
  wrong.reason = "wrong";
  fill(file(), {measured("block/1", "old", 0, 5, 1), measured("block/2", "old", 0, 6, 2),
                measured("block/1", "old", 1, 5, 3), wrong, measured("two_pass/1", "older", 0, 9, 5),
                measured("two_pass/2", "older", 0, 8, 6), measured("block/1", "new", 0, 4, 7),
                measured("block/2", "new", 0, 3, 8), measured("two_pass/1", "newer", 0, 2, 9)});
  {
    Cache cache = Cache::open(file());
    for (const char* name : {"block/1-old", "block/1-new", "shared", "of no measurement"})
      cache.keep_binary(name, as_bytes(name), {});
  }
  Maintenance maintenance = Maintenance::open(file());
  EXPECT_EQ(maintenance.prune(100, false).measurements, 0);
  const Store::Pruned rehearsed = maintenance.prune(3, true);
  EXPECT_EQ(Cache::open(file()).measurements(key).size(), 9U);
  const Store::Pruned pruned = maintenance.prune(3, false);
  EXPECT_EQ(pruned.measurements, rehearsed.measurements);
  EXPECT_EQ(pruned.measurements, 4);
  std::string kept;
  for (const Measurement& m : Cache::open(file()).measurements(key))
    kept += fmt::format("{} {} {}; ", m.config, m.template_digest, m.stage);
  EXPECT_EQ(kept, "block/1 old 1; two_pass/2 older 0; block/1 new 0; block/2 new 0; two_pass/1 newer 0; ");
  EXPECT_EQ(maintenance.prune(0, false).measurements, 0) << "what decides stays, whatever its age";
  for (const char* statement : {"DELETE FROM measurements", "DELETE FROM environments"})
    EXPECT_THROW(sql(file(), statement), SQLite::Exception) << "append-only again";
  EXPECT_TRUE(maintenance.damages().empty());
}

/// Verdicts count finals and checks, so these are what is kept of replaced templates.
TEST_F(MaintenanceTest, PruningKeepsTheLastChecksAndThenScreenings) {
  std::vector<Measurement> list;
  const auto add = [&](const char* templates, int stage, int count) {
    for (int i = 0; i < count; ++i) {
      Measurement m = a_measurement(key, "block/1", static_cast<int>(list.size()));
      m.template_digest = templates;
      m.stage = stage;
      list.push_back(m);
    }
  };
  add("old", stage_of_finals, 1);
  add("old", stage_of_checks, 6);
  add("old", stage_of_screenings, 5);
  add("new", stage_of_checks, 8);
  fill(file(), list);
  const auto kept = [&](int stage) {
    const std::vector<Measurement> all = Cache::open(file()).measurements(key);
    return std::count_if(all.begin(), all.end(), [&](const Measurement& m) {
      return m.template_digest == "old" && m.stage == stage;
    });
  };
  Maintenance maintenance = Maintenance::open(file());
  EXPECT_EQ(maintenance.prune(18, false).measurements, 2)
      << "15 finals and checks leave room for three screenings";
  EXPECT_EQ(kept(stage_of_screenings), 3);
  EXPECT_EQ(maintenance.prune(4, false).measurements, 5);
  EXPECT_EQ(kept(stage_of_screenings), 0);
  EXPECT_EQ(kept(stage_of_checks), 4) << "however many there are of today";
  EXPECT_EQ(maintenance.prune(0, false).measurements, 4);
  EXPECT_EQ(kept(stage_of_finals), 1);
  EXPECT_TRUE(maintenance.damages().empty());
}

/// As the winner: of the most rows.
TEST_F(MaintenanceTest, PruningKeepsTheFastestOnTheMostRows) {
  Measurement few = a_measurement(key, "block/1", 1), many = a_measurement(key, "block/2", 2);
  for (Measurement* m : {&few, &many}) {
    m->template_digest = "old";
    m->stage = stage_of_screenings;
  }
  few.rows = 1;
  few.median_us = 0.1;
  fill(file(), {few, many, a_measurement(key, "block/1", 3)});
  EXPECT_EQ(Maintenance::open(file()).prune(0, false).measurements, 1);
  EXPECT_EQ(Cache::open(file()).measurements(key).at(0).config, "block/2");
}

TEST_F(MaintenanceTest, PruningTakesBinariesThatOnlyReplacedMeasurementsName) {
  Measurement old = a_measurement(key, "block/1", 1), latest = a_measurement(key, "block/1", 2);
  old.template_digest = "old";
  old.compile_key = "old shared";
  latest.compile_key = "latest shared";
  fill(file(), {old, latest});
  {
    Cache cache = Cache::open(file());
    for (const char* name : {"old", "latest", "shared", "share"}) cache.keep_binary(name, as_bytes(name), {});
  }
  EXPECT_EQ(Cache::open(file()).unnamed_binaries(), std::vector<std::string>{"share"});
  EXPECT_EQ(Maintenance::open(file()).prune(10, false).binaries, 1);
  EXPECT_EQ(sql_value(file(), "SELECT GROUP_CONCAT(compile_key) FROM (SELECT * FROM binaries ORDER BY 1)"),
            "latest,share,shared")
      << "what no measurement names may be of a linear layer, or of a race";
}

TEST_F(MaintenanceTest, PruningKeepsEachBinaryThatALatestMeasurementNames) {
  const auto named = [&](const char* config, const char* templates, const char* compile_key, int number) {
    Measurement m = a_measurement(key, config, number);
    m.template_digest = templates;
    m.compile_key = compile_key;
    return m;
  };
  fill(file(), {named("block/1", "old", "old-1 both second", 1), named("block/2", "old", "old-2", 2),
                named("block/1", "new", "first both", 3), named("block/2", "new", "alone", 4),
                named("block/3", "new", "one second third", 5), named("block/4", "new", "first both", 6),
                named("block/5", "new", "", 7)});
  {
    Cache cache = Cache::open(file());
    for (const char* name : {"old-1", "old-2", "first", "both", "alone", "one", "second", "third", "thir",
                             "hird", "second third", "first both"})
      cache.keep_binary(name, as_bytes(name), {});
  }
  Maintenance maintenance = Maintenance::open(file());
  EXPECT_EQ(maintenance.prune(100, true).binaries, 2);
  EXPECT_EQ(maintenance.prune(100, false).binaries, 2);
  EXPECT_EQ(sql_value(file(), "SELECT GROUP_CONCAT(compile_key) FROM (SELECT * FROM binaries ORDER BY 1)"),
            "alone,both,first,first both,hird,one,second,second third,thir,third");
}

TEST_F(MaintenanceTest, PruningKeepsAnEnvironmentThatIsSharedWithWhatStays) {
  std::vector<Measurement> list;
  const auto add = [&](const char* templates, const char* driver) {
    Measurement m = a_measurement(key, "block/1", static_cast<int>(list.size()));
    m.template_digest = templates;
    m.stage = stage_of_screenings;
    m.environment = {{"driver", driver}};
    list.push_back(m);
  };
  for (const char* driver : {"the fastest's", "shared", "gone", "shared", "gone, too"}) add("old", driver);
  list.front().median_us = 1;
  add("new", "shared");
  fill(file(), list);
  Maintenance maintenance = Maintenance::open(file());
  EXPECT_EQ(maintenance.prune(0, false).measurements, 4);
  EXPECT_EQ(sql_value(file(), "SELECT GROUP_CONCAT(json) FROM (SELECT json FROM environments ORDER BY id)"),
            R"({"driver":"the fastest's"},{"driver":"shared"})");
  EXPECT_TRUE(maintenance.damages().empty());
  const auto all = [&](const Store::AddOne& add_one) {
    for (const Measurement& one : list) add_one(EncodedMeasurement(one).view(), identity_of(one));
  };
  EXPECT_EQ(maintenance.add(all), 4) << "and measurements are taken as ever";
  EXPECT_EQ(maintenance.prune(0, false).measurements, 4);
}

TEST_F(MaintenanceTest, ARehearsalWaitsForNoWriter) {
  Measurement old = a_measurement(key, "block/1", 1);
  old.template_digest = "old";
  old.stage = stage_of_screenings;
  Measurement best = old;
  best.median_us = 1;
  fill(file(), {old, best, a_measurement(key, "block/1", 2)});
  Maintenance maintenance = Maintenance::open(file());
  SQLite::Database writer(file().string(), SQLite::OPEN_READWRITE);
  writer.exec("BEGIN IMMEDIATE");
  EXPECT_EQ(maintenance.prune(0, true).measurements, 1);
}

TEST_F(MaintenanceTest, PruningDropsWhatNothingRefersTo) {
  Measurement gone = a_measurement(key, "block/1", 1);
  gone.template_digest = "old";
  gone.stage = 0;
  gone.median_us = 9;
  gone.environment = {{"driver", "of yore"}};
  Measurement best = gone;
  best.median_us = 1;
  best.environment = {{"driver", "still"}};
  fill(file(), {gone, best, a_measurement(key, "block/1", 2)});
  EXPECT_EQ(Maintenance::open(file()).prune(0, false).measurements, 1);
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM environments"), "2");
  EXPECT_EQ(sql_value(file(), "SELECT measurements FROM key_counts"), "2");
  EXPECT_TRUE(Maintenance::copy(file()).damages().empty());
}

TEST_F(MaintenanceTest, DamageIsNamed) {
  fill(file(), {a_measurement(key, "one", 1), a_measurement(key, "two", 2)});
  {
    Cache cache = Cache::open(file());
    cache.keep_binary("binary", as_bytes("good"), {});
  }
  EXPECT_TRUE(Maintenance::copy(file()).damages().empty());
  sql(file(),
      "UPDATE binaries SET image = CAST('goOd' AS BLOB); DROP TRIGGER measurements_refuse_update;"
      "UPDATE measurements SET median_us = 0.5 WHERE config = 'two'; DROP TRIGGER environments_refuse_update;"
      "PRAGMA foreign_keys = OFF; UPDATE measurements SET key_id = 77 WHERE config = 'one'");
  EXPECT_EQ(Maintenance::copy(file()).damages(),
            (std::vector<std::string>{
                "tables: its environments_refuse_update has changed since it was created",
                "references: row 1 of measurements refers to nothing in keys",
                "binaries: the digest of binary does not match its bytes",
                "measurements: row 2 of key " + key.id() + " has changed since it was written",
                "counts: the counts of key " + key.id() + " do not match its measurements"}));
}

TEST_F(MaintenanceTest, VacuumGivesRoomBack) {
  {
    Cache cache = Cache::open(file());
    cache.keep_binary("large", std::vector<std::byte>(1 << 20, std::byte{7}), {});
  }
  sql(file(), "DELETE FROM binaries");
  const auto [before, after] = Maintenance::open(file()).vacuum();
  EXPECT_LT(after, before / 4);
  EXPECT_LT(fs::file_size(file()), 1 << 18);
}

TEST_F(MaintenanceTest, FilesThatAreNoneAreErrors) {
  EXPECT_THROW(static_cast<void>(Maintenance::open(file())), NotFound);
  EXPECT_THROW(static_cast<void>(Maintenance::copy(file())), NotFound);
  write_file(file(), std::string(5000, 'x'));
  EXPECT_THROW(static_cast<void>(Maintenance::open(file())), DatabaseError);
  EXPECT_THROW(static_cast<void>(Maintenance::create(file())), DatabaseError);
  EXPECT_THROW(static_cast<void>(Maintenance::copy(file())), DatabaseError);
  EXPECT_EQ(contents(file()), std::string(5000, 'x'));
}

TEST_F(MaintenanceTest, WhatSqliteRefusesIsADatabaseErrorThatNamesTheFile) {
  fill(file(), {a_measurement(key, "one", 1)});
  Maintenance maintenance = Maintenance::open(file());
  sql(file(), "DROP TABLE binaries");
  try {
    maintenance.prune(0, false);
    ADD_FAILURE() << "no error";
  } catch (const DatabaseError& error) {
    EXPECT_NE(std::string(error.what()).find(file().string()), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ce::cache::test
