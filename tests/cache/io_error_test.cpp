// Disks that do not hand over what is on them.
#include <SQLiteCpp/Database.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/maintenance.hpp"
#include "cache/open.hpp"
#include "cache/store.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Which reads of SQLite's fail. Nothing else does.
struct Faults {
  std::optional<int> at_read;            ///< the reads before this one do not
  bool lasting = false;                  ///< nor do those behind it
  std::optional<sqlite3_int64> at_byte;  ///< reads of it fail, of any file
  int reads = 0;

  bool fail(int bytes, sqlite3_int64 from) {
    const int read = reads++;
    if (at_byte && from <= *at_byte && *at_byte < from + bytes) return true;
    return at_read && (lasting ? read >= *at_read : read == *at_read);
  }
};

Faults& faults() {
  static Faults instance;
  return instance;
}

sqlite3_vfs* real_vfs() {
  static sqlite3_vfs* const real = sqlite3_vfs_find("unix");
  return real;
}

/// By those that call faults() first.
std::map<const sqlite3_io_methods*, const sqlite3_io_methods*>& real_methods() {
  static std::map<const sqlite3_io_methods*, const sqlite3_io_methods*> all;
  return all;
}

int read_or_fail(sqlite3_file* file, void* to, int bytes, sqlite3_int64 from) {
  if (faults().fail(bytes, from)) return SQLITE_IOERR_READ;
  return real_methods().at(file->pMethods)->xRead(file, to, bytes, from);
}

int open_with_faults(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* flags_out) {
  const int result = real_vfs()->xOpen(real_vfs(), path, file, flags, flags_out);
  if (result != SQLITE_OK || file->pMethods == nullptr) return result;
  static std::map<const sqlite3_io_methods*, sqlite3_io_methods> copies;
  const auto [copy, added] = copies.try_emplace(file->pMethods, *file->pMethods);
  if (added) {
    copy->second.xRead = read_or_fail;
    real_methods()[&copy->second] = file->pMethods;
  }
  file->pMethods = &copy->second;
  return result;
}

class IoErrors : public CacheTest {
 protected:
  static void SetUpTestSuite() {
    static sqlite3_vfs vfs = *real_vfs();
    vfs.zName = "ce-test-faults";
    vfs.xOpen = open_with_faults;
    sqlite3_vfs_register(&vfs, 1);
  }
  static void TearDownTestSuite() { sqlite3_vfs_register(real_vfs(), 1); }

  IoErrors() {
    Cache cache = Cache::open(file());
    std::vector<Measurement> list;
    for (int number = 0; number < 40; ++number)
      list.push_back(a_measurement(key, "config " + std::to_string(number), number));
    cache.add(list);
    cache.keep_binary("large", std::vector<std::byte>(40'000), {.compiler = "nvrtc", .name = "softmax"});
    cache.keep_binary("gone", std::vector<std::byte>(40'000), {.compiler = "nvrtc", .name = "softmax"});
  }
  ~IoErrors() override { faults() = {}; }
  IoErrors(const IoErrors&) = delete;
  IoErrors& operator=(const IoErrors&) = delete;

  [[nodiscard]] std::vector<std::string> set_aside() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder()))
      if (entry.path().string().find(".corrupt-") != std::string::npos)
        found.push_back(entry.path().string());
    return found;
  }
  void expect_whole() {
    faults() = {};
    EXPECT_EQ(set_aside(), std::vector<std::string>());
    EXPECT_EQ(Maintenance::copy(file()).damages(), std::vector<std::string>());
    EXPECT_GE(Cache::open_existing(file()).measurements(key).size(), 40U);
  }
  /// What a program does that tunes.
  void tune(int number) const {
    Cache cache = Cache::open(file());
    cache.add(a_measurement(key, "new", number));
    static_cast<void>(cache.measurements(key));
    static_cast<void>(cache.binary("large"));
  }
  /// One read of what a program does, or it and all behind it: each in turn.
  void fail_each_read() const {
    faults() = {};
    tune(100);
    const int reads = faults().reads;
    ASSERT_GT(reads, 20);
    for (const bool lasting : {false, true})
      for (int read = 0; read < reads; ++read) {
        SCOPED_TRACE("read " + std::to_string(read) + (lasting ? " and all behind it" : ""));
        faults() = {.at_read = read, .lasting = lasting, .at_byte = {}};
        tune(200 + read);
        faults() = {};
        ASSERT_EQ(set_aside(), std::vector<std::string>());
      }
  }
};

TEST_F(IoErrors, OfAnyOneReadSetNoDatabaseAside) {
  // Free pages are only listed.
  sql(file(), "DELETE FROM binaries WHERE compile_key = 'gone'");
  fail_each_read();
  expect_whole();
}

TEST_F(IoErrors, OfOnePlaceSetNoDatabaseAside) {
  sql(file(), "DELETE FROM binaries WHERE compile_key = 'gone'");
  const auto bytes = static_cast<sqlite3_int64>(fs::file_size(file()));
  constexpr sqlite3_int64 page = 4096;
  ASSERT_GT(bytes, 10 * page);
  for (sqlite3_int64 at = 0; at < bytes; at += page) {
    SCOPED_TRACE("page " + std::to_string(at / page + 1));
    faults() = {.at_read = {}, .lasting = false, .at_byte = at + 50};
    tune(static_cast<int>(1000 + at / page));
    faults() = {};
    ASSERT_EQ(set_aside(), std::vector<std::string>());
  }
  expect_whole();
}

TEST_F(IoErrors, OfALogSetNoDatabaseAside) {
  // As long as it is open the log stays.
  Cache other = Cache::open(file());
  other.add(a_measurement(key, "in the log", 50));
  ASSERT_GT(fs::file_size(file().string() + "-wal"), 0U);
  fail_each_read();
  expect_whole();
}

TEST_F(IoErrors, AreSaidToBeThatAndNoDamage) {
  const auto expect_said = [&](const auto& action) {
    faults() = {.at_read = {}, .lasting = false, .at_byte = 3 * 4096 + 50};
    try {
      action();
      ADD_FAILURE() << "nothing was said";
    } catch (const Damaged& error) {
      ADD_FAILURE() << error.what();
    } catch (const DatabaseError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot read or write " + file().string()));
    }
    faults() = {};
  };
  expect_said([&] { static_cast<void>(Maintenance::damages_of(file())); });
  expect_said([&] { static_cast<void>(Maintenance::mend(file())); });
  expect_said([&] { static_cast<void>(Maintenance::open(file())); });
  expect_said([&] { static_cast<void>(Maintenance::copy(file())); });
  expect_whole();
}

}  // namespace
}  // namespace ce::cache::test
