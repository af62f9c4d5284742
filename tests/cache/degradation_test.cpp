#include <SQLiteCpp/Database.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cache/maintenance.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

class Degradation : public CacheTest {
 protected:
  /// open() works in memory and says why, once; open_existing() throws.
  void expect_degraded(const fs::path& path, const std::string& reason) {
    for (int times = 0; times < 2; ++times) {
      Cache cache = Cache::open(path);
      const Status status = cache.status();
      EXPECT_FALSE(status.persistent);
      EXPECT_EQ(status.path, "");
      EXPECT_NE(status.problem.find(path.string()), std::string::npos) << status.problem;
      EXPECT_NE(status.problem.find(reason), std::string::npos) << status.problem;
      EXPECT_NE(status.problem.find("CE_DB"), std::string::npos) << status.problem;
      cache.add(a_measurement(key, "config"));
      cache.keep_binary("one", {}, {});
      EXPECT_EQ(cache.measurements(key).size(), 1U);
      EXPECT_TRUE(cache.binary("one").has_value());
      EXPECT_EQ(warnings(path.string()), 1U);
    }
    try {
      static_cast<void>(Cache::open_existing(path));
      ADD_FAILURE() << "open_existing() took " << path;
    } catch (const DatabaseError& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
};

TEST_F(Degradation, DatabaseOfAnotherProgram) {
  sql(file(), "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
  const std::string before = contents(file());
  expect_degraded(file(), "another program");
  EXPECT_EQ(contents(file()), before);
}

TEST_F(Degradation, DatabaseOfAnotherProgramWithAnIdOfItsOwn) {
  sql(file(), "PRAGMA application_id = 1234");
  const std::string before = contents(file());
  expect_degraded(file(), "another program");
  EXPECT_EQ(contents(file()), before);
}

TEST_F(Degradation, LogOfAnotherProgramIsNotCopiedIntoItsFile) {
  // The main file of a database whose tables are still in its log alone, as after a crash.
  const fs::path source = folder() / "source.db";
  {
    SQLite::Database theirs(source.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    theirs.exec("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
    fs::copy_file(source, file());
    fs::copy_file(source.string() + "-wal", file().string() + "-wal");
  }
  const std::string before = contents(file());
  const std::string log_before = contents(file().string() + "-wal");
  ASSERT_FALSE(log_before.empty());
  expect_degraded(file(), "another program");
  EXPECT_EQ(contents(file()), before);
  EXPECT_EQ(contents(file().string() + "-wal"), log_before);
}

TEST_F(Degradation, FileThatIsNoDatabase) {
  std::string garbage;
  for (int i = 0; i < 20000; ++i) garbage += static_cast<char>('a' + i * 7 % 26);
  for (const std::string& text : {garbage, std::string("a few words")}) {
    const fs::path path = folder() / std::to_string(text.size());
    write_file(path, text);
    expect_degraded(path, "not a tuning database");
    EXPECT_EQ(contents(path), text);
  }
}

TEST_F(Degradation, SymbolicLinkToNothing) {
  fs::create_symlink("nowhere", file());
  const std::string why =
      file().string() + " is a symbolic link to nowhere, which does not exist: create that file";
  EXPECT_TRUE(Cache::open(file()).status().problem.starts_with(why)) << Cache::open(file()).status().problem;
  write_file(folder() / "nowhere", "");
  EXPECT_TRUE(Cache::open(file()).status().persistent);
}

/// Where SQLite can create nothing beside the file no lock keeps writers away.
TEST_F(Degradation, AFileThatChangesWhileItIsCopiedIsRefused) {
  Cache::open(file()).add(a_measurement(key, "config"));
  const fs::path index = file().string() + "-shm";
  fs::create_symlink(index, index);  // cannot be opened, not even by root
  EXPECT_EQ(Maintenance::copy(file()).damages(), std::vector<std::string>());
  const AtEachOpen change(
      [&] { fs::last_write_time(file(), fs::last_write_time(file()) + std::chrono::seconds(1)); });
  try {
    static_cast<void>(Maintenance::copy(file()));
    ADD_FAILURE() << "what was copied may be half of one commit and half of another";
  } catch (const DatabaseError& error) {
    EXPECT_NE(std::string(error.what()).find("changed while it was read"), std::string::npos) << error.what();
  }
}

/// Commits that wait in it would be missed.
TEST_F(Degradation, AFileIsNotCopiedWithoutALogThatCannotBeOpened) {
  const fs::path copy = folder() / "copy.db";
  {
    Cache writer = Cache::open(file());
    writer.add(a_measurement(key, "config"));
    writer.flush(std::chrono::seconds(10));
    for (const char* suffix : {"", "-wal"}) fs::copy_file(file().string() + suffix, copy.string() + suffix);
  }
  ASSERT_GT(fs::file_size(copy.string() + "-wal"), 0U);
  fs::create_symlink(copy.string() + "-shm", copy.string() + "-shm");  // cannot be opened, not even by root
  try {
    static_cast<void>(Maintenance::copy(copy));
    ADD_FAILURE() << "the log has what was measured last";
  } catch (const DatabaseError& error) {
    EXPECT_NE(std::string(error.what()).find("its -wal file contains commits"), std::string::npos)
        << error.what();
  }
}

/// What is ours and damaged is set aside, as it is, and what can be read goes on; see damage_test.cpp.
class Repaired : public CacheTest {
 protected:
  void expect_set_aside(const std::string& bytes) {
    std::vector<fs::path> aside;
    for (const auto& entry : fs::directory_iterator(folder()))
      if (entry.path().string().starts_with(file().string() + ".corrupt-")) aside.push_back(entry.path());
    ASSERT_EQ(aside.size(), 1U);
    EXPECT_EQ(contents(aside.front()), bytes);
    EXPECT_EQ(mode(file()), 0600U);
    EXPECT_EQ(warnings(aside.front().string()), 1U);
  }
};

TEST_F(Repaired, TablesThatAreNotOurs) {
  Cache::open(file()).add(a_measurement(key, "config"));
  sql(file(), "ALTER TABLE problems RENAME COLUMN text TO other");
  const std::string before = contents(file());
  Cache cache = Cache::open(file());
  EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  EXPECT_EQ(cache.status().measurements, 0);
  expect_set_aside(before);
}

TEST_F(Repaired, DamagedSchemaPage) {
  Cache::open(file()).add(a_measurement(key, "config"));
  std::string text = contents(file());
  text.replace(100, 400, 400, '\x7f');
  write_file(file(), text);
  Cache cache = Cache::open(file());
  EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  expect_set_aside(text);
}

TEST_F(Repaired, DamageFoundLater) {
  Cache::open(file()).add(a_measurement(key, "config"));
  const std::size_t page_size = std::stoul(sql_value(file(), "PRAGMA page_size"));
  const std::size_t page =
      std::stoul(sql_value(file(), "SELECT rootpage FROM sqlite_master WHERE name = 'measurements'"));
  std::string text = contents(file());
  text.replace((page - 1) * page_size, page_size, page_size, '\x7f');
  write_file(file(), text);
  Cache cache = Cache::open(file());
  EXPECT_EQ(cache.status().problem, "");
  EXPECT_TRUE(cache.measurements(key).empty());
  cache.add(a_measurement(key, "new"));
  EXPECT_EQ(cache.measurements(key).size(), 1U);
  EXPECT_TRUE(cache.status().persistent);
  expect_set_aside(text);
}

TEST_F(Degradation, FolderBelowARegularFile) {
  write_file(folder() / "file", "text");
  const fs::path path = folder() / "file" / "sub" / "ce.db";
  const Cache cache = Cache::open(path);
  EXPECT_FALSE(cache.status().persistent);
  EXPECT_NE(cache.status().problem.find("cannot create the folder"), std::string::npos)
      << cache.status().problem;
  EXPECT_EQ(contents(folder() / "file"), "text");
  EXPECT_THROW(static_cast<void>(Cache::open_existing(path)), NotFound);
}

/// Permissions have nothing to do with it, and nothing is left of the attempt.
TEST_F(Degradation, NamesThatAreTooLong) {
  const std::string long_name(252, 'a'), part(90, 'b');
  fs::path deep = folder();
  while (deep.string().size() < 500) deep /= part;
  for (const auto& [path, reason] :
       {std::pair{folder() / long_name, "its name has 252 bytes, but 213 at most are possible"},
        {folder() / std::string(300, 'a'), "its name has 300 bytes"},
        {folder() / std::string(300, 'a') / "ce.db", "the name of one of its folders has 300 bytes"},
        {deep / "ce.db", "because SQLite's paths"}}) {
    const std::string problem = Cache::open(path).status().problem;
    EXPECT_NE(problem.find(reason), std::string::npos) << problem;
    EXPECT_EQ(problem.find("permission"), std::string::npos) << problem;
    EXPECT_TRUE(fs::is_empty(folder())) << path;
  }
}

/// One that was made under a shorter name.
TEST_F(Degradation, NameThatIsTooLongForWhoWrites) {
  { Cache::open(file()).add(a_measurement(key, "config")); }
  const fs::path renamed = folder() / std::string(252, 'a');
  fs::rename(file(), renamed);
  const Cache cache = Cache::open(renamed);
  EXPECT_EQ(cache.measurements(key).size(), 1U);
  const std::string problem = cache.status().problem;
  EXPECT_NE(
      problem.find("can be read but cannot be written: its name has 252 bytes, but 247 at most are possible"),
      std::string::npos)
      << problem;
}

TEST_F(Degradation, FolderInPlaceOfTheFile) {
  fs::create_directory(file());
  expect_degraded(file(), "not a regular file");
  // The cache does not know which of them named it.
  EXPECT_NE(Cache::open(file()).status().problem.find("(CE_DB, --db or ContextOptions::database)"),
            std::string::npos);
}

TEST_F(Degradation, PipeInPlaceOfTheFileDoesNotBlock) {
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  expect_degraded(file(), "not a regular file");
}

TEST_F(Degradation, NoPathAtAll) {
  const Cache cache = Cache::open("");
  EXPECT_FALSE(cache.status().persistent);
  EXPECT_NE(cache.status().problem.find("CE_DB"), std::string::npos);
}

/// Who only reads it makes no database of it.
class NoDatabaseYet : public Degradation {
 protected:
  void expect_refused(const std::string& why) const {
    const std::string before = contents(file());
    const auto refuses = [&](auto open) {
      try {
        static_cast<void>(open(file()));
        ADD_FAILURE() << "it was opened";
      } catch (const NotFound& error) {
        EXPECT_EQ(std::string(error.what()),
                  "there is no tuning database in " + file().string() + ": the file " + why);
      }
    };
    refuses(Cache::open_to_read);
    refuses(Maintenance::copy);
    refuses(Cache::open_existing);
    refuses(Maintenance::open);
    EXPECT_EQ(contents(file()), before);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()), 1);
    Cache::open(file()).add(a_measurement(key, "config"));
    EXPECT_EQ(Cache::open_existing(file()).measurements(key).size(), 1U);
  }
};

TEST_F(NoDatabaseYet, AFileThatIsEmpty) {
  write_file(file(), "");
  expect_refused("is empty");
}

/// As a process leaves it that is killed between its first two commits.
TEST_F(NoDatabaseYet, AFileThatHasNoTables) {
  sql(file(), "PRAGMA journal_mode = WAL");
  ASSERT_GT(fs::file_size(file()), 0U);
  expect_refused("has no tables");
}

TEST_F(NoDatabaseYet, AFileThatTookThePlaceOfOneThatIsOpen) {
  Cache::open(file()).add(a_measurement(key, "config"));
  Cache open = Cache::open_existing(file());
  Cache reader = Cache::open_to_read(file());
  for (const char* log : {"-wal", "-shm"}) fs::remove(file().string() + log);
  fs::rename(file(), folder() / "old.db");
  write_file(file(), "");
  EXPECT_EQ(open.measurements(key).size(), 1U) << "of the old one";
  EXPECT_EQ(reader.measurements(key).size(), 1U) << "of the old one";
  EXPECT_EQ(contents(file()), "");
}

TEST_F(Degradation, OpenExistingCreatesNothing) {
  EXPECT_THROW(static_cast<void>(Cache::open_existing(folder() / "no" / "ce.db")), NotFound);
  EXPECT_THROW(static_cast<void>(Cache::open_existing(file())), NotFound);
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(Degradation, LockedFile) {
  Cache::open(file()).add(a_measurement(key, "kept"));
  {
    SQLite::Database other(file().string(), SQLite::OPEN_READWRITE);
    other.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; CREATE TABLE scratch (x); ROLLBACK");
    Cache cache = Cache::open(file());
    EXPECT_FALSE(cache.status().persistent);
    EXPECT_NE(cache.status().problem.find("locked"), std::string::npos) << cache.status().problem;
    cache.add(a_measurement(key, "in memory"));
    EXPECT_EQ(cache.measurements(key).size(), 1U);
  }
  EXPECT_EQ(Cache::open_existing(file()).measurements(key).at(0).config, "kept");
}

TEST_F(Degradation, RefusedWritesStayUsableAndReachTheFileLater) {
  const Key other{.problem = "other", .device = "Another GPU"};
  const auto refuse =
      "CREATE TRIGGER refuse BEFORE INSERT ON measurements BEGIN SELECT RAISE(ABORT, 'refused'); END";
  {
    Cache cache = Cache::open(file());
    cache.add(a_measurement(key, "a", 1));
    cache.add(a_measurement(key, "b", 4));
    sql(file(), refuse);
    cache.add(a_measurement(key, "a", 3));
    cache.add(a_measurement(key, "c", 2));
    cache.add(a_measurement(other, "a", 5));
    cache.keep_binary("late one", {}, {});
    EXPECT_EQ(warnings("refused"), 1U);

    std::string order;
    for (const Measurement& measurement : cache.measurements(key)) order += measurement.config;
    EXPECT_EQ(order, "acab");
    const auto keys = cache.keys();
    ASSERT_EQ(keys.size(), 2U);
    EXPECT_EQ(keys[0].key, other);
    EXPECT_EQ(keys[1].measurements, 4);
    EXPECT_EQ(keys[1].configs, 3);
    EXPECT_EQ(keys[1].first_at, a_measurement(key, "", 1).created_at);
    EXPECT_EQ(keys[1].last_at, a_measurement(key, "", 4).created_at);
    EXPECT_EQ(cache.find("").size(), 2U);
    EXPECT_TRUE(cache.binary("late one").has_value());
    const Status status = cache.status();
    EXPECT_FALSE(status.persistent);
    EXPECT_NE(status.problem, "");
    EXPECT_EQ(status.measurements, 5);
    EXPECT_EQ(status.keys, 2);
    EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM measurements"), "2");
    sql(file(), "DROP TRIGGER refuse");
  }
  const Cache cache = Cache::open_existing(file());
  EXPECT_TRUE(cache.status().persistent);
  EXPECT_EQ(cache.status().measurements, 5);
  EXPECT_EQ(cache.measurements(key).size(), 4U);
  EXPECT_TRUE(cache.binary("late one").has_value());
}

TEST_F(Degradation, WhatWasRefusedIsWrittenWhenTheFileIsNoLongerLocked) {
  const auto rows = [&] { return sql_value(file(), "SELECT COUNT(*) FROM measurements"); };
  Cache cache = Cache::open(file());
  cache.flush(std::chrono::seconds(0));
  sql(file(),
      "CREATE TRIGGER refuse BEFORE INSERT ON measurements BEGIN SELECT RAISE(ABORT, 'refused'); END");
  cache.add(a_measurement(key, "a"));
  cache.flush(std::chrono::hours(1));  // waits for locks alone
  EXPECT_FALSE(cache.status().persistent);
  sql(file(), "DROP TRIGGER refuse");

  SQLite::Database other(file().string(), SQLite::OPEN_READWRITE);
  other.exec("BEGIN IMMEDIATE");
  cache.flush(std::chrono::seconds(0));
  EXPECT_FALSE(cache.status().persistent);
  EXPECT_EQ(rows(), "0");
  const auto waiting = std::async(std::launch::async, [&] { cache.flush(std::chrono::hours(1)); });
  while (warnings("is locked by another process: ce waits for up to 3600 s") == 0)
    ASSERT_EQ(waiting.wait_for(std::chrono::milliseconds(10)), std::future_status::timeout) << "gave up";
  EXPECT_EQ(rows(), "0");
  other.exec("ROLLBACK");
  waiting.wait();
  EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  EXPECT_EQ(rows(), "1");
  EXPECT_EQ(warnings("waits for up to"), 1U) << warning("waiting");
}

TEST_F(Degradation, WhatWasRefusedIsAskedBesideWhatTheFileHas) {
  Cache cache = Cache::open(file());
  cache.keep_binary("kept", as_bytes("image"), {});
  const std::string refuse =
      "CREATE TRIGGER refuse BEFORE INSERT ON measurements BEGIN SELECT RAISE(ABORT, 'refused'); END";
  sql(file(), refuse);
  cache.add(a_measurement(key, "a"));
  ASSERT_FALSE(cache.status().persistent);
  const std::vector<std::string> digests{a_measurement(key, "a").template_digest};
  const auto first = [](std::vector<Finalist>& list) { return list.empty() ? nullptr : &list.front(); };
  EXPECT_TRUE(cache.has(key, digests));
  EXPECT_FALSE(cache.final_of(key, digests, first)) << "measurements() knows more";
  EXPECT_EQ(cache.measurements(key).size(), 1U);
  EXPECT_TRUE(cache.binary("kept"));
  sql(file(), "DROP TRIGGER refuse");
}

/// The signal of that limit ends a process that does nothing about it.
TEST_F(Degradation, ALimitOnFilesRefusesWritesAndEndsNothing) {
  { const Cache filled = Cache::open(file()); }
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{64 << 10, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    constexpr std::size_t count = 100;
    bool kept = false;
    {
      Cache cache = Cache::open(file());
      for (std::size_t i = 0; i < count; ++i) cache.add(a_measurement(key, "config " + std::to_string(i)));
      kept = cache.measurements(key).size() == count;
    }
    ::_exit(kept && warnings("(files may have 65536 bytes at most: ulimit -f)") > 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Degradation, LossAtTheEndIsSaid) {
  {
    Cache cache = Cache::open(file());
    sql(file(),
        "CREATE TRIGGER refuse BEFORE INSERT ON measurements BEGIN SELECT RAISE(ABORT, 'never'); END");
    cache.add(a_measurement(key, "a"));
  }
  EXPECT_EQ(warnings("1 measurements could not be written"), 1U);
}

}  // namespace
}  // namespace ce::cache::test
