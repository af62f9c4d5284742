// Databases that a merge or an import fills, and what stays where that is cut short.
#include <SQLiteCpp/Database.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "cache/codec.hpp"
#include "cache/export.hpp"
#include "cache/maintenance.hpp"
#include "cache/open.hpp"
#include "cache/store.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

class Filling : public CacheTest {
 protected:
  static constexpr int keys = 40, of_a_key = 3;

  [[nodiscard]] fs::path other() const { return folder() / "other.db"; }
  static std::vector<Measurement> many() {
    std::vector<Measurement> list;
    for (int i = 0; i < keys; ++i)
      for (int j = 0; j < of_a_key; ++j)
        list.push_back(a_measurement({.problem = fmt::format("problem {:02}", i), .device = "gpu"},
                                     fmt::format("config {}", j), of_a_key * i + j));
    return list;
  }
  static std::string lines_of(const fs::path& path) {
    std::ostringstream out;
    Maintenance::copy(path).write_lines(out);
    return out.str();
  }
  std::int64_t merge() {
    const Maintenance source = Maintenance::read(other());
    return Maintenance::create_to_fill(file()).merge({&source, 1}, false).front().measurements;
  }
  /// Only the digest of one measurement, of a key far behind the first, tells.
  void damage_other() const {
    sql(other(),
        "DROP TRIGGER measurements_refuse_update; UPDATE measurements SET reason = 'another' "
        "WHERE id = (SELECT MAX(id) - 10 FROM measurements)");
  }
  [[nodiscard]] std::vector<std::string> files_of_target() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder()))
      if (entry.path().filename().string().starts_with(file().filename().string()))
        names.push_back(entry.path().filename().string());
    return names;
  }
  [[nodiscard]] std::ptrdiff_t drafts() const {
    return std::count_if(fs::directory_iterator(folder()), fs::directory_iterator(), [](const auto& entry) {
      return entry.path().filename().string().starts_with(".ce-tune.") && entry.path().extension() == ".new";
    });
  }
  /// More than the pages that SQLite keeps in memory, so that it writes into the file before the end.
  void add_large(const Store::AddOne& add, int count) const {
    constexpr std::size_t samples = 200'000;
    Measurement measurement = a_measurement(key, "large");
    measurement.samples_us.assign(samples, 2.5F);
    const EncodedMeasurement encoded(measurement);
    for (int i = 0; i < count; ++i) add(encoded.view(), fmt::format("{:032x}", i + 1));
  }
  /// What a child process does of itself. \returns its status
  static int in_a_child(const std::function<int()>& action) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(action());
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
};

TEST_F(Filling, ANewDatabaseIsOneThatOthersOpen) {
  {
    Cache cache = Cache::open(other());
    cache.add(many());
  }
  EXPECT_EQ(merge(), keys * of_a_key);
  EXPECT_EQ(files_of_target(), std::vector{file().filename().string()}) << "no journal stays";
  EXPECT_EQ(sql_value(file(), "PRAGMA journal_mode"), "wal");
  EXPECT_EQ(lines_of(file()), lines_of(other()));
  EXPECT_EQ(Maintenance::copy(file()).damages(), std::vector<std::string>());
  Cache::open(file()).add(a_measurement(key, "later"));
  EXPECT_EQ(Cache::open(file()).status().measurements, keys * of_a_key + 1);
}

TEST_F(Filling, DamageFarBehindLeavesNoNewDatabase) {
  Cache::open(other()).add(many());
  damage_other();
  EXPECT_THROW(merge(), Damaged);
  EXPECT_EQ(files_of_target(), std::vector<std::string>());
}

TEST_F(Filling, DamageFarBehindLeavesADatabaseAsItWas) {
  Cache::open(other()).add(many());
  damage_other();
  static_cast<void>(Cache::open(file()));
  EXPECT_THROW(merge(), Damaged);
  EXPECT_EQ(Maintenance::copy(file()).damages(), std::vector<std::string>())
      << "an empty one has its indexes";
  EXPECT_EQ(Cache::open(file()).status().measurements, 0);

  Cache::open(file()).add(a_measurement(key, "own"));
  const std::string before = lines_of(file());
  EXPECT_THROW(merge(), Damaged);
  EXPECT_EQ(lines_of(file()), before);
  EXPECT_EQ(Maintenance::copy(file()).damages(), std::vector<std::string>());
}

TEST_F(Filling, AnExportWithoutItsEndLeavesNoNewDatabase) {
  std::ostringstream out;
  write_export(out, many());
  const std::string lines = out.str();
  std::istringstream whole(lines), cut(lines.substr(0, lines.rfind("{\"digest\"")));
  EXPECT_EQ(announced_measurements(whole), static_cast<std::size_t>(keys * of_a_key));
  EXPECT_EQ(announced_measurements(cut), 0U);
  const auto import = [&](std::istringstream& in) {
    in.seekg(0);
    return Maintenance::create_to_fill(file()).add(
        [&](const auto& add) { visit_export(in, "export.jsonl", add); });
  };
  EXPECT_THROW(import(cut), InvalidArgument);
  EXPECT_EQ(files_of_target(), std::vector<std::string>());
  EXPECT_EQ(import(whole), keys * of_a_key);
  EXPECT_EQ(lines_of(file()), lines);
}

TEST_F(Filling, NobodySeesANewDatabaseBeforeItsEnd) {
  Maintenance database = Maintenance::create_to_fill(file());
  EXPECT_EQ(files_of_target(), std::vector<std::string>());
  EXPECT_EQ(database.add([&](const auto& add) {
    add_large(add, 2);
    EXPECT_EQ(files_of_target(), std::vector<std::string>());
  }),
            2);
  EXPECT_EQ(Cache::open(file()).status().measurements, 2);
  EXPECT_EQ(drafts(), 0);
}

TEST_F(Filling, WhatComesIntoItsPlaceMeanwhileStaysAndGetsTheRest) {
  Cache::open(other()).add(many());
  const Maintenance source = Maintenance::read(other());
  Maintenance database = Maintenance::create_to_fill(file());
  Cache::open(file()).add(a_measurement(key, "of another process"));
  EXPECT_EQ(database.merge({&source, 1}, false).front().measurements, keys * of_a_key);
  EXPECT_EQ(Cache::open(file()).status().measurements, keys * of_a_key + 1);
  EXPECT_EQ(Maintenance::copy(file()).damages(), std::vector<std::string>());
  EXPECT_EQ(drafts(), 0);
}

TEST_F(Filling, WhatComesIntoItsPlaceMeanwhileStaysWhereItFails) {
  Maintenance database = Maintenance::create_to_fill(file());
  Cache::open(file()).add(a_measurement(key, "of another process"));
  EXPECT_THROW(database.add([](const auto&) { throw InvalidArgument("line", "cut", "whole"); }),
               InvalidArgument);
  EXPECT_EQ(Cache::open(file()).status().measurements, 1);
}

/// SQLite would take what it says for the new one's.
TEST_F(Filling, AJournalThatWaitsThereIsNotMetByANewDatabase) {
  std::ofstream(file().string() + "-journal") << "of a database that is gone";
  EXPECT_EQ(Maintenance::create_to_fill(file()).add([&](const auto& add) { add_large(add, 1); }), 1);
  EXPECT_EQ(Cache::open(file()).status().measurements, 1);
}

TEST_F(Filling, AKilledProcessLeavesNothingInItsPlace) {
  const int status = in_a_child([&] {
    Maintenance::create_to_fill(file()).add([&](const auto& add) {
      add_large(add, 120);
      ::kill(::getpid(), SIGKILL);
    });
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(drafts(), 1) << "nothing was written yet, so nothing is tested";
  EXPECT_EQ(files_of_target(), std::vector<std::string>());
  EXPECT_EQ(Maintenance::create_to_fill(file()).add([&](const auto& add) { add_large(add, 1); }), 1);
  EXPECT_EQ(Cache::open(file()).status().measurements, 1);
}

TEST_F(Filling, AFullDiskLeavesNoNewDatabase) {
  const int status = in_a_child([&] {
    const rlimit limit{.rlim_cur = 8 << 20, .rlim_max = 8 << 20};
    std::signal(SIGXFSZ, SIG_IGN);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    try {
      Maintenance::create_to_fill(file()).add([&](const auto& add) { add_large(add, 120); });
      return 2;
    } catch (const DatabaseError&) {
      return 0;
    }
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(files_of_target(), std::vector<std::string>());
}

/// What points to another row than it did, or to none.
TEST_F(Filling, WhatIsOutOfReachIsDamage) {
  for (const char* damage :
       {"DELETE FROM key_counts", "DELETE FROM key_counts WHERE key_id = 2", "DELETE FROM keys WHERE id = 3",
        "DELETE FROM problems", "DELETE FROM device_models",
        "DROP TRIGGER environments_refuse_delete; DELETE FROM environments",
        "DROP TRIGGER measurements_refuse_update; UPDATE measurements SET environment_id = 99 WHERE id = "
        "7"}) {
    SCOPED_TRACE(damage);
    fs::remove(other());
    { Cache::open(other()).add(many()); }
    sql(other(), fmt::format("PRAGMA foreign_keys = OFF; {}", damage));
    EXPECT_THROW(merge(), Damaged);
    EXPECT_THROW(static_cast<void>(lines_of(other())), Damaged);
    EXPECT_EQ(files_of_target(), std::vector<std::string>());
  }
}

TEST_F(Filling, AFileThatWasThereStays) {
  std::ofstream(file()).close();
  EXPECT_THROW(Maintenance::create_to_fill(file()).add(
                   [](const auto&) { throw InvalidArgument("line", "cut", "whole"); }),
               InvalidArgument);
  EXPECT_TRUE(fs::exists(file()));
}

}  // namespace
}  // namespace ce::cache::test
