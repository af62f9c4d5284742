#include "cli/output_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "cache/cache.hpp"
#include "ce/error.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

namespace fs = std::filesystem;

class OutputFile : public test::CommandTest {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return (folder() / name).string(); }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder()), fs::directory_iterator());
  }
  static void write(const std::string& path, const std::string& text, Readers readers = Readers::everyone) {
    write_output(
        "--plot", path, [&](std::ostream& file) { file << text; }, readers);
  }
};

TEST_F(OutputFile, TakesThePlaceOfWhatWasThere) {
  write(path("new"), "first");
  write(path("private"), "first", Readers::the_user);
  EXPECT_EQ(fs::status(path("private")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  constexpr fs::perms kept = fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read;
  fs::permissions(path("new"), kept);
  fs::create_symlink("new", path("link"));
  write(path("link"), "second", Readers::the_user);
  EXPECT_EQ(test::read_file(path("new")), "second");
  EXPECT_EQ(fs::status(path("new")).permissions(), kept);
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(files(), 3);
}

TEST_F(OutputFile, MayBeReadByEveryoneWhoseUmaskLetsThem) {
  const mode_t before = ::umask(022);
  write(path("new"), "text");
  ::umask(before);
  EXPECT_EQ(fs::status(path("new")).permissions(), fs::perms(0644));
}

TEST_F(OutputFile, ADraftThatAKilledProcessLeftIsNotInTheWay) {
  std::ofstream(path(".ce-tune.") + std::to_string(::getpid()) + ".draft") << "a part";
  write(path("new"), "text");
  EXPECT_EQ(test::read_file(path("new")), "text");
  EXPECT_EQ(files(), 1);
}

/// A program that is killed meanwhile leaves nothing behind.
TEST_F(OutputFile, HasNoNameUntilItIsWhole) {
  const int unnamed = ::open(folder().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (unnamed < 0) GTEST_SKIP() << "this file system keeps no file without a name";
  ::close(unnamed);
  write_output("--plot", path("new"), [&](std::ostream& file) {
    file << "text" << std::flush;
    EXPECT_EQ(files(), 0);
  });
  EXPECT_EQ(test::read_file(path("new")), "text");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, MayHaveAnyNameThatTheFileSystemTakes) {
  write(path(std::string(255, 'a')), "text");
  EXPECT_EQ(test::read_file(path(std::string(255, 'a'))), "text");
  for (const std::string& name : {std::string(256, 'a'), std::string(300, 'a') + "/new"}) {
    try {
      require_output("--plot", path(name), false);
      ADD_FAILURE() << "took " << name;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.expected().find("names have 255 bytes at most"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, WhosePlaceIsTakenMeanwhileIsAnError) {
  EXPECT_THROW(write_output("--plot", path("new"), [&](std::ostream&) { fs::create_directory(path("new")); }),
               std::system_error);
  EXPECT_TRUE(fs::is_directory(path("new")));
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, ThatMayNotBeWrittenIsNotReplaced) {
  if (::getuid() == 0) GTEST_SKIP() << "root may write anything";
  write(path("old"), "kept");
  fs::permissions(path("old"), fs::perms::owner_read);
  EXPECT_THROW(write(path("old"), "text"), InvalidArgument);
  EXPECT_EQ(test::read_file(path("old")), "kept");
}

TEST_F(OutputFile, ThatFailsLeavesWhatWasThere) {
  write(path("old"), "kept");
  require_output("--plot", path("old"), false);
  require_output("--plot", path("never written"), false);
  EXPECT_THROW(write_output("--plot", path("old"),
                            [](std::ostream& file) {
                              file << "a part" << std::flush;
                              throw std::runtime_error("of the writer");
                            }),
               std::runtime_error);
  EXPECT_THROW(write_output("--plot", path("old"),
                            [](std::ostream& file) {
                              file << "a part" << std::flush;
                              file.setstate(std::ios::badbit);  // as where the disk is full
                            }),
               std::system_error);
  EXPECT_EQ(test::read_file(path("old")), "kept");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, IsNoDatabaseAndNoFolder) {
  static_cast<void>(cache::Cache::open(database()));
  const std::string bytes = test::read_file(database());
  for (const std::string& wrong : {database(), folder().string(), path("no/such/folder")}) {
    SCOPED_TRACE(wrong);
    EXPECT_THROW(require_output("--plot", wrong, false), InvalidArgument);
    try {
      write(wrong, "text");
      ADD_FAILURE() << "written";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "--plot");
      EXPECT_EQ(error.value(), '"' + wrong + '"');
    }
  }
  EXPECT_EQ(test::read_file(database()), bytes);
  write(path("empty"), "");
  write(path("empty"), "text");
  EXPECT_EQ(test::read_file(path("empty")), "text");
}

/// They hold commits that the database's file lacks, or will.
TEST_F(OutputFile, IsNoFileOfSqliteBesideADatabase) {
  static_cast<void>(cache::Cache::open(database()));
  fs::create_symlink(database(), path("link.db"));
  for (const char* suffix : {"-wal", "-shm", "-journal"})
    for (const bool is_there : {false, true}) {
      const std::string beside = database() + suffix;
      SCOPED_TRACE(beside);
      fs::remove(beside);
      if (is_there) test::write_file(beside, "commits");
      for (const std::string& name : {beside, path(std::string("link.db") + suffix)}) {
        EXPECT_THROW(require_output("--plot", name, false), InvalidArgument) << name;
        EXPECT_THROW(write(name, "text"), InvalidArgument) << name;
        EXPECT_THROW(static_cast<void>(open_to_append("--plot", name, false)), InvalidArgument) << name;
      }
      EXPECT_EQ(fs::exists(beside), is_there);
      if (is_there) {
        EXPECT_EQ(test::read_file(beside), "commits");
      }
      fs::remove(beside);
    }
  write(path("text-wal"), "of no database");
  EXPECT_EQ(test::read_file(path("text-wal")), "of no database");
}

TEST_F(OutputFile, ThatIsAppendedToKeepsWhatItHas) {
  static_cast<void>(cache::Cache::open(database()));
  const std::string bytes = test::read_file(database());
  test::write_file(path("lines"), "first\n");
  open_to_append("--lines", path("lines"), true) << "second\n";
  EXPECT_EQ(test::read_file(path("lines")), "first\nsecond\n");
  for (const std::string& wrong : {database(), folder().string(), path("no/such/folder")})
    EXPECT_THROW(static_cast<void>(open_to_append("--lines", wrong, false)), InvalidArgument) << wrong;
  EXPECT_EQ(test::read_file(database()), bytes);
}

TEST_F(OutputFile, IsNotALinkToNothing) {
  fs::create_symlink("nowhere", path("link"));
  try {
    write(path("link"), "text");
    ADD_FAILURE() << "written";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("a symbolic link to nowhere, which does not exist"),
              std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(fs::is_symlink(path("link"))) << "as /dev/stdout of a process without one";
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, ThatWasDeletedIsWrittenAsItIs) {
  FILE* file = ::fopen(path("deleted").c_str(), "w+");
  ASSERT_NE(file, nullptr);
  fs::remove(path("deleted"));
  write("/proc/self/fd/" + std::to_string(::fileno(file)), "text");
  char text[8] = {};
  EXPECT_EQ(::fread(text, 1, sizeof text, file), 4);
  EXPECT_STREQ(text, "text");
  ::fclose(file);
  EXPECT_EQ(files(), 0);
}

TEST_F(OutputFile, OfADeviceIsWrittenAsItIs) {
  write("/dev/null", "text");
  EXPECT_FALSE(fs::is_regular_file("/dev/null"));
  EXPECT_THROW(write("/dev/full", "text"), std::system_error);
}

}  // namespace
}  // namespace ce::cli
