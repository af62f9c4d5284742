// Sources on disk: where they are, what is kept, and what does not stay.
#include "runtime/source_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ce/error.hpp"
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
  /// What a process that was killed leaves: no process removes the folder that a child of fork() makes and ends with.
  [[nodiscard]] fs::path abandoned_folder() const {
    std::set<fs::path> before;
    for (const auto& entry : fs::directory_iterator(place_)) before.insert(entry.path());
    const pid_t child = ::fork();
    if (child == 0) {
      const SourceFolder folder({"f", "text", {{"below/part.cuh", "header"}}, {}});
      ::_exit(0);
    }
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    for (const auto& entry : fs::directory_iterator(place_))
      if (!before.contains(entry.path())) return entry.path();
    ADD_FAILURE() << "it has left nothing";
    return {};
  }
  [[nodiscard]] static fs::path kept_folder() {
    return fs::path(SourceFolder({"f", "text", {}, {}}).keep()).parent_path();
  }
  /// As if ce had kept it so many hours ago.
  static void age(const fs::path& folder, int hours) {
    fs::last_write_time(folder / ".ce-folder", fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  /// As soon as the file system's clock tells it from what was there before.
  static void append(const fs::path& file, const std::string& text) {
    struct stat kept {};
    struct stat changed {};
    const auto time = [](const struct stat& of) { return std::pair(of.st_ctim.tv_sec, of.st_ctim.tv_nsec); };
    std::ofstream(file, std::ios::app) << text;
    do {
      fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
      ASSERT_EQ(::stat((file.parent_path() / ".ce-folder").c_str(), &kept), 0);
      ASSERT_EQ(::stat(file.c_str(), &changed), 0);
    } while (time(changed) <= time(kept));
  }
  /// What a user may have there, which looks like a folder of ce.
  fs::path users_folder(const std::string& name) {
    const fs::path path = place_ / name;
    fs::create_directories(path);
    fs::permissions(path, fs::perms::owner_all);
    std::ofstream(path / "thesis.tex") << "text";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(48));
    known_.insert(path);
    return path;
  }
  static void clean_up() { ce::runtime::remove_abandoned_sources(); }

  std::set<fs::path> known_;
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
  const fs::path abandoned = abandoned_folder();
  ASSERT_TRUE(fs::exists(abandoned / "below/part.cuh"));
  std::ofstream(abandoned / "kernel.so") << "what the compiler had written";
  const int descriptor = ::open(abandoned.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  ASSERT_EQ(::flock(descriptor, LOCK_EX | LOCK_NB), 0);
  clean_up();
  EXPECT_TRUE(fs::exists(abandoned / "kernel.so")) << "while a process holds it";
  ::close(descriptor);
  clean_up();
  EXPECT_EQ(folders(), 0);
}

/// Only what ce has made is removed, whatever a folder is called and however old it is.
TEST_F(SourceFolders, OfTheUserStay) {
  const fs::path renamed = place_ / "ce-source-renamed";
  fs::rename(abandoned_folder(), renamed);
  const fs::path abandoned = abandoned_folder();
  for (const char* name : {"ce-source-0.1.0", "ce-source-thesis", "ce-compile-thesis", "ce-source-"}) {
    const fs::path own = users_folder(name);
    if (std::string_view(name) != "ce-source-0.1.0")  // as a copy, of which the marker is another folder's
      fs::copy_file(abandoned / ".ce-folder", own / ".ce-folder");
  }
  const fs::path linked = users_folder("elsewhere");
  fs::create_directory_symlink(linked, place_ / "ce-source-linked");
  fs::create_directory_symlink(linked, abandoned / "link");
  clean_up();
  for (const fs::path& own : known_) EXPECT_EQ(text_of(own / "thesis.tex"), "text") << own;
  EXPECT_TRUE(fs::is_symlink(place_ / "ce-source-linked"));
  EXPECT_TRUE(fs::exists(renamed));
  EXPECT_FALSE(fs::exists(abandoned)) << "the link in it was removed, and not what it leads to";
}

TEST_F(SourceFolders, ThatWereKeptAreRemovedAfterADay) {
  const fs::path fresh = kept_folder(), old = kept_folder(), of_use = kept_folder(), edited = kept_folder();
  age(fresh, 23);
  for (const fs::path& folder : {old, of_use, edited}) age(folder, 25);
  append(of_use / "notes", "why it does not compile");
  append(edited / "f.cu", ", and a user's line");
  clean_up();
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(of_use / "notes")) << "nothing of the user's is removed";
  EXPECT_EQ(text_of(edited / "f.cu"), "text, and a user's line");
}

TEST_F(SourceFolders, ThatAreKeptAreNotMoreThan64) {
  const fs::path first = kept_folder();
  age(first, 1);
  for (int i = 0; i < 64; ++i) static_cast<void>(kept_folder());
  EXPECT_EQ(folders(), 64);
  EXPECT_FALSE(fs::exists(first)) << "the oldest goes";
}

/// As long as its process uses it.
TEST_F(SourceFolders, ThatAreInUseAreNotRemoved) {
  const SourceFolder folder({"f", "text", {}, {}});
  clean_up();
  EXPECT_EQ(text_of(folder.path() / folder.file()), "text");
}

/// A child of fork() has a copy of the object, and not the folder. A folder of its own has the same descriptor.
TEST_F(SourceFolders, OfAParentStay) {
  auto folder = std::make_unique<SourceFolder>(CompileRequest{"f", "text", {}, {}});
  const fs::path path = folder->path();
  const pid_t child = ::fork();
  if (child == 0) {
    const SourceFolder own({"g", "own text", {}, {}});
    folder.reset();
    ::_exit(text_of(own.path() / own.file()) == "own text" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child's own folder is gone";
  EXPECT_EQ(text_of(path / folder->file()), "text");
}

/// As if it were not set, which it is to a shell.
TEST_F(SourceFolders, LieInTmpWhereTMPDIRIsEmpty) {
  const ce::test::ScopedEnvironment empty("TMPDIR", "");
  EXPECT_EQ(ce::runtime::temporary_folder(), "/tmp");
}

/// A limit on the size of files is an error, and does not end the process.
TEST_F(SourceFolders, BeyondTheLimitOfAFileAreAnError) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1000, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
    try {
      const SourceFolder folder({"f", std::string(10'000, 'x'), {}, {}});
      ::_exit(1);
    } catch (const ce::Error& error) {
      ::_exit(std::string_view(error.what()).find("File too large") != std::string_view::npos ? 0 : 2);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folders(), 0);
}

}  // namespace
