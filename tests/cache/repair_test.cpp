// A damaged database gives way to a new one while others work with it, whatever becomes of who does so.
#include "cache/repair/repair.hpp"

#include <SQLiteCpp/Database.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "cache/schema.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/cache/processes.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;
using std::future_status;

const Key kept{.problem = "shared", .device = "Some GPU"};

/// Its tables can be read, but are not all that there should be.
constexpr const char* damage = "DROP INDEX quarantines";

/// Long enough for who does not wait.
constexpr std::chrono::milliseconds a_while{300};

class RepairTest : public CacheTest {
 protected:
  static constexpr int in_file = 30, in_log = 20;

  static void add(Cache& cache, const std::string& tag, int count) {
    for (int i = 0; i < count; ++i) cache.add(a_measurement(kept, fmt::format("{}-{}", tag, i), i));
  }
  static std::size_t rows(const Cache& cache, const std::string& tag = "") {
    const auto list = cache.measurements(kept);
    return static_cast<std::size_t>(std::count_if(
        list.begin(), list.end(), [&](const Measurement& m) { return m.config.starts_with(tag); }));
  }
  /// \returns who has the damaged file open, so that its last commits stay in the log
  [[nodiscard]] static Cache damaged(const fs::path& path) {
    {
      Cache cache = Cache::open(path);
      add(cache, "file", in_file);
    }
    Cache cache = Cache::open(path);
    add(cache, "log", in_log);
    sql(path, damage);
    return cache;
  }
  [[nodiscard]] std::vector<fs::path> set_aside(const fs::path& path) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder()))
      if (const std::string name = entry.path();
          name.starts_with(path.string() + ".corrupt-") && name.ends_with('Z'))
        found.push_back(entry.path());
    return found;
  }
  [[nodiscard]] std::size_t files_with(const std::string& part) const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder()))
      count += entry.path().filename().string().find(part) != std::string::npos ? 1 : 0;
    return count;
  }
};

TEST_F(RepairTest, KilledAtAnyStepIsDoneByTheNext) {
  int step = 0;
  for (bool killed = true; killed; ++step) {
    SCOPED_TRACE(fmt::format("killed after {} renames", step));
    const fs::path path = folder() / fmt::format("{}.db", step);
    Cache other = damaged(path);
    Process first({"--repair", path.string(), "kill", std::to_string(step)});
    static_cast<void>(first.rest());
    const int code = first.wait();
    killed = code == -SIGKILL;
    EXPECT_TRUE(killed || code == 0) << code;
    Cache next = Cache::open(path);
    EXPECT_TRUE(next.status().persistent) << next.status().problem;
    EXPECT_EQ(rows(next, "file"), in_file);
    EXPECT_EQ(rows(next, "log"), in_log);
    add(next, "next", 1);
    add(other, "other", 1);
    EXPECT_EQ(rows(Cache::open_existing(path)), in_file + in_log + 2);
    EXPECT_EQ(rows(other), in_file + in_log + 2);
    EXPECT_EQ(files_with("-draft"), 0U);
    std::size_t whole = 0;
    for (const fs::path& aside : set_aside(path))
      whole += sql_value(aside, "SELECT COUNT(*) FROM measurements") == fmt::format("{}", in_file + in_log);
    EXPECT_EQ(whole, 1U) << "of what is set aside";
  }
  EXPECT_GE(step, 3);
}

TEST_F(RepairTest, WhoOnlyReadsLearnsOfAnInterruptedOne) {
  {
    const Cache other = damaged(file());
    Process first({"--repair", file().string(), "kill", "2"});
    EXPECT_EQ(first.wait(), -SIGKILL);
  }
  const std::string draft = set_aside(file()).at(0).string() + "-draft", before = contents(draft);
  for (const auto open : {Cache::open_existing, Cache::open_to_read}) {
    try {
      static_cast<void>(open(file()));
      ADD_FAILURE() << "it was opened";
    } catch (const NotFound& error) {
      ADD_FAILURE() << error.what();
    } catch (const DatabaseError& error) {
      EXPECT_TRUE(
          std::string(error.what()).starts_with("the repair of " + file().string() + " is unfinished"))
          << error.what();
    }
  }
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(contents(draft), before);
  EXPECT_EQ(rows(Cache::open(file())), in_file + in_log);
  EXPECT_EQ(warnings("set aside as"), 1U) << warning("");
}

TEST_F(RepairTest, OthersWaitForTheNewFileAndLoseNothing) {
  Cache other = damaged(file());
  Process repairer({"--repair", file().string(), "stop", "3"});
  ASSERT_TRUE(repairer.wait_for_stop());
  const auto writing = std::async(std::launch::async, [&] { add(other, "meanwhile", 20); });
  auto reading = std::async(std::launch::async, [&] { return rows(Cache::open_existing(file())); });
  auto opening = std::async(std::launch::async, [&] { return rows(Cache::open(file()), "log"); });
  EXPECT_EQ(writing.wait_for(a_while), future_status::timeout) << "into which file?";
  EXPECT_EQ(reading.wait_for(a_while), future_status::timeout) << "of which file?";
  EXPECT_EQ(opening.wait_for(a_while), future_status::timeout) << "which file?";
  repairer.go_on();
  writing.wait();
  EXPECT_GE(reading.get(), static_cast<std::size_t>(in_file + in_log));
  EXPECT_EQ(opening.get(), static_cast<std::size_t>(in_log));
  EXPECT_EQ(repairer.wait(), 0);
  EXPECT_TRUE(other.status().persistent) << other.status().problem;
  EXPECT_EQ(rows(Cache::open(file())), in_file + in_log + 20);
}

TEST_F(RepairTest, WhatIsCommittedDuringItIsInTheNewFileToo) {
  Cache other = damaged(file());
  Process repairer({"--repair", file().string(), "stop", "0"});
  ASSERT_TRUE(repairer.wait_for_stop());
  add(other, "meanwhile", 20);
  other.keep_binary("meanwhile", as_bytes("image"), {});
  repairer.go_on();
  const std::string output = repairer.rest();
  EXPECT_EQ(repairer.wait(), 0) << output;
  const Cache third = Cache::open_existing(file());
  EXPECT_EQ(rows(third), in_file + in_log + 20);
  EXPECT_TRUE(third.binary("meanwhile"));
  EXPECT_EQ(rows(other), in_file + in_log + 20);
}

TEST_F(RepairTest, WhoIsJustOpeningTheOldFileDoesNotWriteIntoTheLogOfTheNewOne) {
  const fs::path whole = folder() / "whole.db";
  {
    SQLite::Database empty(file().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    empty.exec("PRAGMA journal_mode = WAL");
    Cache cache = Cache::open(whole);
    add(cache, "whole", 10);
  }
  {
    const AtEachOpen replace([&] {
      if (!fs::exists(whole)) return;
      fs::rename(file(), folder() / "old.db");
      fs::rename(whole, file());
    });
    const Cache cache = Cache::open(file());
    EXPECT_EQ(rows(cache), 10U);
    EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  }
  EXPECT_FALSE(fs::exists(whole));
  EXPECT_EQ(sql_value(file(), "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(rows(Cache::open_existing(file())), 10U);
  EXPECT_EQ(warnings(""), 0U) << warning("");
}

/// Who saw the damage before another one repaired it.
TEST_F(RepairTest, WhoComesSecondLeavesTheNewFileWhereItIs) {
  const Cache other = damaged(file());
  const FileId seen = FileId::of(file());
  Cache first = Cache::open(file());
  add(first, "first", 1);
  ASSERT_EQ(set_aside(file()).size(), 1U);
  const Repair second = repair(file(), seen, "damage that was seen before");
  EXPECT_EQ(second.report, "");
  EXPECT_EQ(second.memory, nullptr);
  EXPECT_EQ(set_aside(file()).size(), 1U);
  EXPECT_EQ(rows(Cache::open_existing(file())), in_file + in_log + 1);
}

/// Whatever was set aside in the same second, or is called so.
TEST_F(RepairTest, WhatHasTheNameAlreadyStays) {
  const Cache other = damaged(file());
  std::vector<fs::path> taken;
  for (int second = 0; second < 60; ++second)
    taken.push_back(fmt::format("{}.corrupt-{:%Y%m%dT%H%M%SZ}", file().string(),
                                fmt::gmtime(std::time(nullptr) + second)));
  for (const fs::path& path : taken) write_file(path, "of before");
  EXPECT_EQ(rows(Cache::open(file())), in_file + in_log);
  for (const fs::path& path : taken) ASSERT_EQ(contents(path), "of before");
}

/// SQLite began it for who had the damaged file open.
TEST_F(RepairTest, ALogOfTheOldFileIsNotReadWithTheNewOne) {
  const Cache other = damaged(file());
  const fs::path log = file().string() + "-wal";
  const std::string old = contents(log);
  Process repairer({"--repair", file().string(), "stop", "3"});
  ASSERT_TRUE(repairer.wait_for_stop());
  ASSERT_FALSE(fs::exists(file()));
  write_file(log, old);
  repairer.go_on();
  const std::string output = repairer.rest();
  EXPECT_EQ(repairer.wait(), 0) << output;
  EXPECT_EQ(sql_value(file(), "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM sqlite_master WHERE name = 'quarantines'"), "1");
}

/// As of a mount point, or of a log that belongs to another user.
TEST_F(RepairTest, WhereAFileCannotBeMovedAllStayWhereTheyAre) {
  for (const std::string suffix : {"", "-wal", "-shm"}) {
    SCOPED_TRACE(suffix);
    const fs::path path = folder() / fmt::format("of{}.db", suffix);
    Cache other = damaged(path);
    Process repairer({"--repair", path.string(), "refuse", path.string() + suffix});
    EXPECT_EQ(repairer.rest(), fmt::format("{} in memory\n", in_file + in_log));
    EXPECT_EQ(repairer.wait(), 0);
    EXPECT_EQ(files_with(".corrupt-"), 0U);
    add(other, "after", 1);
    EXPECT_EQ(sql_value(path, "SELECT COUNT(*) FROM measurements"), fmt::format("{}", in_file + in_log + 1));
  }
}

TEST_F(RepairTest, ADraftThatNobodyNeedsIsRemoved) {
  const std::string draft = file().string() + ".corrupt-20300131T120000Z-draft";
  const auto leave_draft = [&] {
    for (const char* suffix : {"", "-wal", "-shm"}) write_file(draft + suffix, "half of it");
  };
  leave_draft();
  EXPECT_EQ(rows(Cache::open(file())), 0U) << "of a repair that had not set anything aside";
  EXPECT_EQ(files_with("-draft"), 0U);
  fs::remove(file());
  const Cache other = damaged(file());
  leave_draft();
  EXPECT_EQ(rows(Cache::open(file())), in_file + in_log);
  EXPECT_EQ(files_with("-draft"), 0U);
}

/// All that is in it is in its log, while the process that created it has it open.
TEST_F(RepairTest, AYoungDatabaseIsKnownByItsLog) {
  Cache other = Cache::open(file());
  add(other, "log", in_log);
  sql(file(), damage);
  Cache cache = Cache::open(file());
  EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  EXPECT_EQ(rows(cache), in_log);
  EXPECT_EQ(warnings("set aside as"), 1U) << warning("");
  add(other, "after", 1);
  EXPECT_EQ(rows(cache), in_log + 1);
}

}  // namespace
}  // namespace ce::cache::test
