// Sources on disk: where they are, what is kept, and what does not stay.
#include "runtime/source_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ce/base/error.hpp"
#include "tests/environment.hpp"

namespace {

namespace fs = std::filesystem;
using ce::runtime::CompileRequest;
using ce::runtime::SourceFolder;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// With a folder for temporary files of its own.
class SourceFolders : public testing::Test {
 protected:
  SourceFolders() {
    fs::remove_all(place_);
    fs::create_directories(place_);
  }
  ~SourceFolders() override { fs::remove_all(place_); }

  [[nodiscard]] auto folders() const {
    return std::distance(fs::directory_iterator(place_), fs::directory_iterator());
  }
  /// As old as one that a process left yesterday.
  [[nodiscard]] fs::path old_folder(const std::string& name) const {
    const fs::path path = place_ / name;
    fs::create_directories(path);
    std::ofstream(path / "kernel.cu") << "text";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(24));
    return path;
  }

  const fs::path place_ = fs::temp_directory_path() / ("ce-test-" + std::to_string(::getpid()));
  const ce::test::ScopedEnvironment environment_{"TMPDIR", place_.c_str()};
};

TEST_F(SourceFolders, HaveTheSourceAndItsHeadersAndAreGoneAfterwards) {
  fs::path path;
  {
    const SourceFolder folder(
        {"softmax/block", "text", {{"part.cuh", "header"}, {"below/other.cuh", "other"}}, {}});
    path = folder.path();
    EXPECT_EQ(folder.file(), "softmax-block.cu");
    EXPECT_EQ(text_of(path / folder.file()), "text");
    EXPECT_EQ(text_of(path / "part.cuh"), "header");
    EXPECT_EQ(text_of(path / "below/other.cuh"), "other");
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(folders(), 0);
}

TEST_F(SourceFolders, AreKeptUnderAnotherName) {
  fs::path source;
  {
    SourceFolder folder({"f", "text", {{"part.cuh", "header"}}, {}});
    source = folder.keep();
  }
  EXPECT_EQ(text_of(source), "text");
  EXPECT_EQ(text_of(source.parent_path() / "part.cuh"), "header");
  EXPECT_TRUE(source.parent_path().filename().string().starts_with("ce-compile-")) << source;
  EXPECT_EQ(fs::status(source.parent_path()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(folders(), 1);
}

/// Where there is no room elsewhere the compiler's messages are told all the same.
TEST_F(SourceFolders, ThatCannotBeKeptSayWhy) {
  SourceFolder folder({"f", "text", {}, {}});
  fs::remove_all(place_);
  EXPECT_TRUE(folder.keep().starts_with("nowhere: ")) << "neither is there";
}

TEST_F(SourceFolders, TakeNamesLongerThanAFileMayHave) {
  SourceFolder folder({std::string(300, 'x'), "text", {}, {}});
  EXPECT_EQ(text_of(folder.keep()), "text");
}

TEST_F(SourceFolders, LeaveNothingWhereTheyCannotBeWritten) {
  EXPECT_THROW(SourceFolder({"f", "", {{"../escape.cuh", ""}}, {}}), ce::InvalidArgument);
  EXPECT_THROW(SourceFolder({"f", "", {{std::string(300, 'x'), ""}}, {}}), ce::Error);
  EXPECT_EQ(folders(), 0);
  const ce::test::ScopedEnvironment nowhere("TMPDIR", "/no/such/folder");
  try {
    const SourceFolder folder({"f", "", {}, {}});
    ADD_FAILURE() << folder.path();
  } catch (const ce::Error& error) {
    EXPECT_EQ(error.kind(), ce::ErrorKind::compile);
    EXPECT_NE(std::string(error.what()).find("TMPDIR"), std::string::npos) << error.what();
  }
}

TEST_F(SourceFolders, OfProcessesThatWereKilledAreRemoved) {
  const fs::path abandoned = old_folder("ce-source-abcdef"), kept = old_folder("ce-compile-abcdef"),
                 of_others = old_folder("other-abcdef"), held = old_folder("ce-source-held00"),
                 fresh = place_ / "ce-source-fresh0";
  fs::create_directories(fresh);
  const int descriptor = ::open(held.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  ASSERT_EQ(::flock(descriptor, LOCK_EX | LOCK_NB), 0);
  ce::runtime::remove_abandoned_sources();
  EXPECT_FALSE(fs::exists(abandoned));
  for (const fs::path& other : {kept, of_others, held, fresh}) EXPECT_TRUE(fs::exists(other)) << other;
  ::close(descriptor);
  ce::runtime::remove_abandoned_sources();
  EXPECT_FALSE(fs::exists(held));
}

/// As long as its process uses it, however old it is.
TEST_F(SourceFolders, ThatAreInUseAreNotRemoved) {
  const SourceFolder folder({"f", "text", {}, {}});
  fs::last_write_time(folder.path(), fs::file_time_type::clock::now() - std::chrono::hours(24));
  ce::runtime::remove_abandoned_sources();
  EXPECT_EQ(text_of(folder.path() / folder.file()), "text");
}

}  // namespace
