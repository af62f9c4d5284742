// Whose files they are: code of others is not loaded, files of others are not written through, and who only reads leaves
// nothing behind.
#include "cache/ownership.hpp"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cache/file_system.hpp"
#include "cache/layers.hpp"
#include "cache/maintenance.hpp"
#include "cache/recognize.hpp"
#include "cache/tuning_lock.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/environment.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;
using ce::test::ScopedEnvironment;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uid_t nobody = 65534;

class Ownership : public CacheTest {
 protected:
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder())) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  void write_database() const {
    Cache cache = Cache::open(file());
    cache.add(a_measurement(key, "config"));
    cache.keep_binary("kernel", as_bytes("code"), {});
  }
  [[nodiscard]] static bool has_code(const fs::path& path) {
    return Cache::open_layered(path).binary("kernel").has_value();
  }
  static void give_to_nobody(const fs::path& path) {
    ASSERT_EQ(::lchown(path.c_str(), nobody, nobody), 0) << path;
  }
};

/// With a second account, which only root has.
class OtherAccount : public Ownership {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
    fs::permissions(folder(), fs::perms(01777));
  }
  /// \returns what went wrong, as text
  [[nodiscard]] static std::string as_nobody(const std::function<void()>& action) {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      std::string problem;
      try {
        if (::setgroups(0, nullptr) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0)
          problem = "cannot become nobody";
        else
          action();
      } catch (const std::exception& error) {
        problem = error.what();
      }
      static_cast<void>(!::write(ends[1], problem.data(), problem.size()));
      ::_exit(0);
    }
    ::close(ends[1]);
    std::string text;
    char buffer[1024];
    for (ssize_t bytes; (bytes = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(bytes));
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    return text;
  }
};

TEST_F(Ownership, FilesOfSqliteBelongToTheDatabaseBesideWhichTheyLie) {
  write_database();
  fs::create_symlink(file(), folder() / "link.db");
  for (const std::string suffix : {"-wal", "-shm", "-journal"}) {
    EXPECT_TRUE(belongs_to_database(file().string() + suffix)) << suffix;
    EXPECT_TRUE(belongs_to_database((folder() / "link.db").string() + suffix)) << suffix;
    EXPECT_FALSE(belongs_to_database(folder() / ("nothing" + suffix))) << suffix;
  }
  EXPECT_FALSE(belongs_to_database(file()));
  EXPECT_FALSE(belongs_to_database(file().string() + "-lines"));
}

TEST_F(Ownership, CodeComesFromFilesThatOthersCannotWrite) {
  write_database();
  EXPECT_TRUE(has_code(file()));
  fs::permissions(folder(), fs::perms(01777));
  EXPECT_TRUE(has_code(file())) << "of one's own in a folder with the sticky bit";
  fs::permissions(folder(), fs::perms(0777));
  EXPECT_FALSE(has_code(file())) << "others can replace the file";
  fs::permissions(folder(), fs::perms(0755));
  fs::permissions(file(), fs::perms(0666));
  EXPECT_FALSE(has_code(file()));
  EXPECT_THAT(other_writer_of(file()), HasSubstr("other users can write "));
  fs::permissions(file(), fs::perms(0644));
  EXPECT_TRUE(has_code(file()));
}

TEST_F(Ownership, WhereCodeIsNotTakenItIsKeptForTheProcess) {
  write_database();
  fs::permissions(file(), fs::perms(0666));
  Cache cache = Cache::open(file());
  EXPECT_FALSE(cache.binary("kernel"));
  cache.keep_binary("kernel", as_bytes("own"), {});
  EXPECT_EQ(cache.binary("kernel"), as_bytes("own"));
  EXPECT_FALSE(has_code(file()));
  EXPECT_EQ(cache.measurements(key).size(), 1U) << "measurements are not code";
  EXPECT_EQ(lines("does not use the compiled kernels"), 1U);
}

TEST_F(Ownership, CodeOfTheSiteIsTakenAsOnesOwnIs) {
  fs::create_directory(folder() / "site");
  const fs::path site = folder() / "site" / "ce.db";
  Cache::open(site).keep_binary("kernel", as_bytes("code"), {});
  const ScopedEnvironment of_site("CE_SITE_DB", site.string()), system("CE_SYSTEM_DB", "none");
  EXPECT_TRUE(has_code(file()));
  EXPECT_FALSE(Cache::open(file()).binary("kernel")) << "without layers";
  fs::permissions(site, fs::perms(0666));
  EXPECT_FALSE(has_code(file()));
}

TEST_F(OtherAccount, CodeOfOthersIsNotTaken) {
  write_database();
  give_to_nobody(file());
  EXPECT_FALSE(has_code(file()));
  EXPECT_EQ(other_writer_of(file()), file().string() + " belongs to user 65534");
  Maintenance other = Maintenance::copy(file());
  EXPECT_THROW(other.expect_own_binaries(), DatabaseError) << "for db merge --binaries";
}

TEST_F(OtherAccount, CodeIsNotTakenThroughALinkOrAFolderOfOthers) {
  const fs::path inner = folder() / "inner";
  fs::create_directory(inner);
  Cache::open(inner / "ce.db").keep_binary("kernel", as_bytes("code"), {});
  fs::create_symlink(inner / "ce.db", folder() / "link.db");
  EXPECT_TRUE(has_code(folder() / "link.db"));
  give_to_nobody(folder() / "link.db");
  EXPECT_FALSE(has_code(folder() / "link.db"));
  give_to_nobody(inner);
  EXPECT_FALSE(has_code(inner / "ce.db"));
}

TEST_F(OtherAccount, ALogOfOthersIsNotTakenForOnesOwn) {
  write_database();
  const fs::path forged = folder() / "forged.db";
  {
    Cache other = Cache::open(forged);
    other.keep_binary("kernel 2", as_bytes("bad"), {});
    fs::copy_file(forged.string() + "-wal", file().string() + "-wal");
  }
  give_to_nobody(file().string() + "-wal");
  Cache cache = Cache::open(file());
  EXPECT_FALSE(cache.status().persistent);
  EXPECT_THAT(cache.status().problem, HasSubstr("ce.db-wal belongs to user 65534"));
  EXPECT_EQ(cache.measurements(key).size(), 1U);
  EXPECT_FALSE(cache.binary("kernel 2"));
  EXPECT_EQ(Cache::open_to_read(file()).measurements(key).size(), 1U);
  EXPECT_EQ(Maintenance::copy(file()).damages(), std::vector<std::string>());
}

TEST_F(OtherAccount, AForgedInterruptedRepairIsNotGoneOnWith) {
  write_database();
  const std::string aside = file().string() + ".corrupt-20300131T120000Z";
  fs::rename(file(), aside);
  write_file(aside + "-draft", "");
  give_to_nobody(aside);
  give_to_nobody(aside + "-draft");
  const Cache cache = Cache::open(file());
  EXPECT_FALSE(cache.binary("kernel"));
  EXPECT_THAT(cache.status().problem, HasSubstr("the repair of"));
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(OtherAccount, NoCodeIsSalvagedFromAFileOfOthers) {
  write_database();
  sql(file(), "DROP INDEX quarantines");
  give_to_nobody(file());
  const Cache cache = Cache::open(file());
  EXPECT_EQ(cache.measurements(key).size(), 1U);
  EXPECT_FALSE(cache.binary("kernel"));
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM binaries"), "0");
  struct stat status {};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, nobody) << "what root mends stays the owner's";
}

TEST_F(Ownership, RepairDoesNotWriteThroughAPlantedLink) {
  write_database();
  const fs::path victim = folder() / "victim";
  write_file(victim, "dear");
  for (int second = 0; second < 30; ++second) {
    const std::time_t at = std::time(nullptr) + second;
    std::tm utc{};
    ::gmtime_r(&at, &utc);
    char date[32];
    std::strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &utc);
    fs::create_symlink(victim, file().string() + ".corrupt-" + date + "-draft");
  }
  fs::create_symlink(victim, file().string() + "-examined");
  sql(file(), "DROP INDEX quarantines");
  EXPECT_EQ(Cache::open(file()).measurements(key).size(), 1U);
  EXPECT_EQ(warnings("set aside as"), 1U) << warning("");
  EXPECT_EQ(contents(victim), "dear");
}

TEST_F(Ownership, ADatabaseBehindALinkIsSetAsideWhereItLies) {
  const fs::path real = folder() / "real", link = folder() / "ce.db";
  fs::create_directory(real);
  fs::create_symlink("real/other.db", link);
  write_file(real / "other.db", "");
  write_database();
  sql(real / "other.db", "DROP INDEX quarantines");
  EXPECT_EQ(Cache::open(link).measurements(key).size(), 1U);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(Cache::open_existing(real / "other.db").measurements(key).size(), 1U);
  EXPECT_THAT(names(), ElementsAre("ce.db", "real"));
}

TEST_F(OtherAccount, ReadersLeaveNothing) {
  write_database();
  fs::permissions(file(), fs::perms(0644));
  const auto read_all = [&](std::size_t expected) {
    for (const auto open : {Cache::open_existing, Cache::open_to_read}) {
      const std::size_t found = open(file()).measurements(key).size();
      if (found != expected) throw DatabaseError(std::to_string(found) + " measurements");
    }
  };
  EXPECT_EQ(as_nobody([&] { read_all(1); }), "");
  EXPECT_THAT(names(), ElementsAre("ce.db"));
  {
    Cache owner = Cache::open(file());
    EXPECT_TRUE(owner.status().persistent) << owner.status().problem;
    owner.add(a_measurement(key, "second", 1));
    EXPECT_EQ(as_nobody([&] { read_all(2); }), "") << "what is in the log";
  }
  EXPECT_THAT(names(), ElementsAre("ce.db"));
  EXPECT_EQ(as_nobody([&] { read_all(2); }), "");
  // Root, of a file that is another's.
  give_to_nobody(file());
  read_all(2);
  EXPECT_THAT(names(), ElementsAre("ce.db"));
  EXPECT_EQ(as_nobody([&] {
              Cache owner = Cache::open(file());
              owner.add(a_measurement(key, "third", 2));
              if (!owner.status().persistent) throw DatabaseError(owner.status().problem);
            }),
            "");
}

TEST_F(Ownership, AGroupSharesWhatIsInItsFolder) {
  fs::permissions(folder(), fs::perms(02770));
  const mode_t before = ::umask(0002);
  {
    Cache cache = Cache::open(file());
    cache.add(a_measurement(key, "config"));
    EXPECT_EQ(mode(file()), 0660U);
    EXPECT_EQ(mode(file().string() + "-wal"), 0660U);
    const auto lock = cache.try_tuning_lock(key);
    EXPECT_EQ(mode(tuning_lock_file(file(), key.id())), 0660U);
  }
  sql(file(), "DROP INDEX quarantines");
  EXPECT_EQ(Cache::open(file()).measurements(key).size(), 1U);
  EXPECT_EQ(mode(file()), 0660U) << "after a repair";
  ::umask(0027);
  static_cast<void>(Cache::open(folder() / "read.db"));
  EXPECT_EQ(mode(folder() / "read.db"), 0640U);
  ::umask(before);
}

TEST_F(Ownership, TuningLocksOfKilledProcessesAreRemovedAndNothingElse) {
  const std::string name = file().string() + "-tuning-lock-";
  write_file(name + "0123456789ab", "");
  write_file(name + "0123456789ac", "not of ce");
  write_file(name + "thesis", "");
  write_file(name + "0123456789abc", "");
  write_file(folder() / "aim", "");
  fs::create_symlink("aim", name + "0123456789ad");
  Cache cache = Cache::open(file()), other = Cache::open(file());
  const Key held{.problem = "held", .device = "Some GPU"};
  const auto lock = cache.try_tuning_lock(held);
  ASSERT_TRUE(other.try_tuning_lock(key));
  EXPECT_FALSE(fs::exists(name + "0123456789ab"));
  for (const char* kept : {"0123456789ac", "thesis", "0123456789abc", "0123456789ad"})
    EXPECT_TRUE(fs::exists(name + kept)) << kept;
  EXPECT_TRUE(fs::exists(folder() / "aim"));
  EXPECT_FALSE(other.try_tuning_lock(held));
}

}  // namespace
}  // namespace ce::cache::test
