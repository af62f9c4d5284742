// Where the database lies: file systems that are full, read-only or on another machine.
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <filesystem>
#include <ios>
#include <string>

#include "cache/cache.hpp"
#include "cache/file_system.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/cache/processes.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

using Mounts = CacheTest;

/// \param task  mounts something at a folder for itself alone; prints why where it may not
void run_in_mount(const std::string& task, const fs::path& folder) {
  Process process({task, folder.string()});
  const std::string output = process.rest();
  const int code = process.wait();
  if (code == 0 && output.starts_with("not allowed")) GTEST_SKIP() << output;
  EXPECT_EQ(code, 0) << output;
}

TEST_F(Mounts, FullFileSystem) { run_in_mount("--full-file-system", folder()); }

TEST_F(Mounts, AWholeDatabaseOnAFullFileSystemIsRead) {
  run_in_mount("--read-on-full-file-system", folder());
}

TEST_F(Mounts, ReadOnlyFileSystem) {
  {
    Cache cache = Cache::open(file());
    cache.add(a_measurement(key, "a", 1));
    cache.add(a_measurement(key, "b", 2));
  }
  const std::string before = contents(file());
  run_in_mount("--read-only-file-system", folder());
  EXPECT_EQ(contents(file()), before);
}

TEST_F(Mounts, DamagedFileOnAReadOnlyFileSystem) {
  Cache::open(file()).add(a_measurement(key, "config"));
  std::string bytes = contents(file());
  bytes.replace(100, 400, 400, '\x7f');
  write_file(file(), bytes);
  run_in_mount("--damaged-read-only", folder());
  EXPECT_EQ(contents(file()), bytes);
}

class NetworkFileSystem : public CacheTest {
 protected:
  ~NetworkFileSystem() override { set_file_system_type(nullptr); }
  static long nfs(const fs::path&) noexcept { return 0x6969; }
};

TEST_F(NetworkFileSystem, IsKnownByItsType) {
  EXPECT_EQ(network_file_system(folder()), "");
  EXPECT_EQ(network_file_system(folder() / "missing"), "");
  set_file_system_type(nfs);
  EXPECT_EQ(network_file_system(folder()), "NFS");
  set_file_system_type([](const fs::path&) noexcept { return static_cast<long>(0xFF534D42); });
  EXPECT_EQ(network_file_system(folder()), "CIFS");
}

TEST_F(NetworkFileSystem, IsNotALocalOne) {
  static long type;  // a plain function tells it
  set_file_system_type([](const fs::path&) noexcept { return type; });
  for (const long network :
       {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, AFS_SUPER_MAGIC, AFS_FS_MAGIC, CODA_SUPER_MAGIC, NCP_SUPER_MAGIC,
        CEPH_SUPER_MAGIC, V9FS_MAGIC, FUSE_SUPER_MAGIC, 0x0BD00BD0 /* Lustre */, 0x47504653 /* GPFS */}) {
    type = network;
    EXPECT_NE(network_file_system(folder()), "") << std::hex << network;
  }
  for (const long local : {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC}) {
    type = local;
    EXPECT_EQ(network_file_system(folder()), "") << std::hex << local;
  }
}

TEST_F(NetworkFileSystem, HasARollbackJournal) {
  set_file_system_type(nfs);
  for (int times = 0; times < 2; ++times) {
    Cache one = Cache::open(file()), two = Cache::open(file());
    EXPECT_EQ(one.status().journal_mode, "delete");
    EXPECT_TRUE(one.status().persistent) << one.status().problem;
    one.add(a_measurement(key, "one", 2 * times));
    two.add(a_measurement(key, "two", 2 * times + 1));
    EXPECT_EQ(one.measurements(key).size(), 2U * (times + 1));
    for (const char* suffix : {"-wal", "-shm", "-journal"})
      EXPECT_FALSE(fs::exists(file().string() + suffix));
  }
  EXPECT_EQ(warnings(""), 0U) << warning("");
  EXPECT_EQ(lines("NFS"), 1U);
}

TEST_F(NetworkFileSystem, TakesOverAFileWithALog) {
  const fs::path source = folder() / "source.db";
  {
    Cache cache = Cache::open(source);
    cache.add(a_measurement(key, "in the log"));
    fs::copy_file(source, file());
    fs::copy_file(source.string() + "-wal", file().string() + "-wal");
  }
  set_file_system_type(nfs);
  Cache cache = Cache::open(file());
  EXPECT_EQ(cache.status().journal_mode, "delete");
  EXPECT_EQ(cache.measurements(key).size(), 1U);
  cache.add(a_measurement(key, "new"));
  EXPECT_FALSE(fs::exists(file().string() + "-wal"));
  EXPECT_FALSE(fs::exists(file().string() + "-shm"));
  set_file_system_type(nullptr);
  EXPECT_EQ(Cache::open(file()).status().journal_mode, "wal");
}

}  // namespace
}  // namespace ce::cache::test
