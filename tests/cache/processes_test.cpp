#include "tests/cache/processes.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

const Key shared{.problem = "shared", .device = "Some GPU"};

void set_mode(const fs::path& path, mode_t bits) { ASSERT_EQ(::chmod(path.c_str(), bits), 0) << path; }

class Processes : public CacheTest {
 protected:
  /// A file with two measurements that was closed in good order.
  void prepare() {
    Cache cache = Cache::open(file());
    cache.add(a_measurement(shared, "a", 1));
    cache.add(a_measurement(shared, "b", 2));
    ASSERT_TRUE(cache.status().persistent) << cache.status().problem;
  }

  static void expect_success(Process& process) {
    const std::string output = process.rest();
    EXPECT_EQ(process.wait(), 0) << output;
  }
};

TEST_F(Processes, WriteToOneNewFileAtOnce) {
  constexpr int writers = 4, count = 50;
  {
    std::vector<std::unique_ptr<Process>> running;
    for (int i = 0; i < writers; ++i)
      running.push_back(std::make_unique<Process>(std::vector<std::string>{
          "--write", file().string(), "writer" + std::to_string(i), std::to_string(count)}));
    for (auto& process : running) expect_success(*process);
  }
  EXPECT_EQ(sql_value(file(), "PRAGMA integrity_check"), "ok");
  std::set<std::string> configs;
  for (const Measurement& measurement : Cache::open_existing(file()).measurements(shared))
    configs.insert(measurement.config);
  EXPECT_EQ(configs.size(), writers * count);
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM measurements"), std::to_string(writers * count));
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM environments"), "1");
}

TEST_F(Processes, CreateOneNewFileAtOnceManyTimes) {
  for (int round = 0; round < 10; ++round) {
    const fs::path fresh = folder() / std::to_string(round) / "ce.db";
    Process first({"--write", fresh.string(), "first", "1"});
    Process second({"--write", fresh.string(), "second", "1"});
    expect_success(first);
    expect_success(second);
    EXPECT_EQ(Cache::open_existing(fresh).status().measurements, 2);
  }
}

TEST_F(Processes, KilledWriterLosesNoCommittedRow) {
  for (int round = 0; round < 5; ++round) {
    const fs::path fresh = folder() / ("killed-" + std::to_string(round));
    Process writer({"--write", fresh.string(), "row", "1000000"});
    std::size_t committed = 0;
    for (const std::size_t enough = 20 + 17 * static_cast<std::size_t>(round); committed < enough;
         ++committed)
      ASSERT_TRUE(writer.line().has_value());
    writer.kill();
    while (writer.line()) ++committed;
    EXPECT_EQ(writer.wait(), -SIGKILL);

    Cache cache = Cache::open_existing(fresh);
    const auto kept = cache.measurements(shared);
    // The last commit can have happened without its line.
    EXPECT_GE(kept.size(), committed);
    EXPECT_LE(kept.size(), committed + 1);
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i].config, "row-" + std::to_string(i));
    EXPECT_EQ(sql_value(fresh, "PRAGMA integrity_check"), "ok");
    cache.add(a_measurement(shared, "after", 59999));
    EXPECT_EQ(cache.measurements(shared).size(), kept.size() + 1);
    EXPECT_TRUE(cache.status().persistent) << cache.status().problem;
  }
}

TEST_F(Processes, ReadOnlyFileInReadOnlyFolder) {
  prepare();
  set_mode(file(), 0444);
  set_mode(folder(), 0555);
  const std::string before = contents(file());
  for (const char* more : {"", "/"}) {  // two slashes in front, as of a variable that ends with one
    Process reader({"--read-only", more + file().string(), "2"});
    expect_success(reader);
  }
  EXPECT_EQ(contents(file()), before);
}

TEST_F(Processes, ReadOnlyFileInWritableFolder) {
  prepare();
  set_mode(file(), 0444);
  set_mode(folder(), 0777);
  const std::string before = contents(file());
  Process reader({"--read-only", file().string(), "2"});
  expect_success(reader);
  EXPECT_EQ(contents(file()), before);
}

TEST_F(Processes, WritableFileInReadOnlyFolder) {
  prepare();
  set_mode(file(), 0666);
  set_mode(folder(), 0555);
  const std::string before = contents(file());
  Process reader({"--read-only", file().string(), "2"});
  expect_success(reader);
  EXPECT_EQ(contents(file()), before);
}

TEST_F(Processes, ReadOnlyFileWhoseWriterIsAtWork) {
  Cache writer = Cache::open(file());
  for (int i = 0; i < 3; ++i) writer.add(a_measurement(shared, "config", i));
  for (const char* suffix : {"", "-wal", "-shm"}) set_mode(file().string() + suffix, 0444);
  set_mode(folder(), 0555);
  Process reader({"--read-only", file().string(), "3"});
  expect_success(reader);
  EXPECT_EQ(writer.measurements(shared).size(), 3U);
}

TEST_F(Processes, FileThatOthersMayNotSee) {
  prepare();
  set_mode(folder(), 0);
  Process reader({"--no-access", file().string()});
  const std::string problem = reader.rest();
  EXPECT_EQ(reader.wait(), 0) << problem;
  EXPECT_NE(problem.find("ce.db"), std::string::npos) << problem;
}

TEST_F(Processes, FolderThatCannotBeWritten) {
  set_mode(folder(), 0555);
  Process reader({"--no-access", (folder() / "new" / "ce.db").string()});
  const std::string problem = reader.rest();
  EXPECT_EQ(reader.wait(), 0) << problem;
  EXPECT_NE(problem.find("cannot create the folder"), std::string::npos) << problem;
  EXPECT_FALSE(fs::exists(folder() / "new"));
}

TEST_F(Processes, FullDiskKeepsWhatWasCommittedAndWhatIsMeasured) {
  prepare();
  Process writer({"--fill-disk", file().string(), "40"});
  expect_success(writer);
  EXPECT_EQ(sql_value(file(), "PRAGMA integrity_check"), "ok");
  Cache cache = Cache::open_existing(file());
  EXPECT_EQ(cache.measurements(shared).size(), 2U);
  EXPECT_LT(cache.measurements({.problem = "full", .device = "Some GPU"}).size(), 40U);
}

}  // namespace
}  // namespace ce::cache::test
