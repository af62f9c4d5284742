// Processes that share a database and are killed at random: nothing that was committed is lost, nothing is there twice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/cache/processes.hpp"
#include "tests/seed.hpp"

namespace ce::cache::test {
namespace {

int number_in(const char* variable, int otherwise) {
  const auto text = environment_variable(variable);
  return text ? std::stoi(*text) : otherwise;
}

using Kills = CacheTest;

/// CE_KILLS=10000 CE_KILL_PROCESSES=64 CE_KILL_PAUSE_MS=100 for all. The pause between two kills is random, up to that
/// many milliseconds.
TEST_F(Kills, LoseNothingThatWasCommitted) {
  const int kills = number_in("CE_KILLS", 60), processes = number_in("CE_KILL_PROCESSES", 6),
            pause_ms = number_in("CE_KILL_PAUSE_MS", 40);
  std::mt19937_64 random(ce::test::test_seed());
  std::set<std::string> committed, compiled;
  int started = 0, damaged = 0, busy = 0;
  const auto start = [&] {
    return std::make_unique<Process>(std::vector<std::string>{
        "--work", file().string(), std::to_string(started++), std::to_string(compiled.size())});
  };
  const auto take_lines = [&](Process& process) {
    while (const auto line = process.line()) {
      const std::string what = line->substr(0, line->find(' ')), name = line->substr(line->find(' ') + 1);
      if (what == "measured") committed.insert(name);
      // The process that compiles holds the tuning lock of the key until the binary is committed.
      if (what == "compiled" && !compiled.insert(name).second) ADD_FAILURE() << name << " was compiled twice";
      if (what == "problem") {
        // Where too many want to write at once for too few processors, a write gives up after some seconds, and its
        // process keeps the result.
        const bool is_busy = name.find("(database is locked)") != std::string::npos;
        ++(is_busy ? busy : damaged);
        if (!is_busy) std::cout << name << '\n';
      }
    }
  };
  const auto end = [&](Process& process) {
    take_lines(process);
    EXPECT_EQ(process.wait(), -SIGKILL) << "it ended by itself";
  };
  std::vector<std::unique_ptr<Process>> running;
  // A process takes a while to die, longest in the middle of a write; its successor does not wait for that.
  std::queue<std::unique_ptr<Process>> dying;
  for (int i = 0; i < processes; ++i) running.push_back(start());
  for (int kill = 0; kill < kills; ++kill) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % (pause_ms + 1)));
    auto& victim = running[random() % running.size()];
    victim->kill();
    dying.push(std::exchange(victim, start()));
    for (; dying.size() > 4; dying.pop()) end(*dying.front());
    if (kill % 1000 == 999)
      std::cout << kill + 1 << " kills, " << committed.size() << " measurements" << std::endl;
  }
  for (auto& process : running) {
    process->kill();
    dying.push(std::move(process));
  }
  for (; !dying.empty(); dying.pop()) end(*dying.front());
  EXPECT_EQ(damaged, 0);
  EXPECT_LE(busy, started / 200);
  EXPECT_EQ(sql_value(file(), "PRAGMA integrity_check"), "ok");
  const Cache cache = Cache::open_existing(file());
  std::set<std::string> kept;
  std::size_t rows = 0;
  for (const Key& one : cache.find(""))
    for (const Measurement& measurement : cache.measurements(one)) {
      kept.insert(measurement.config);
      ++rows;
    }
  EXPECT_EQ(kept.size(), rows) << "a measurement is there twice";
  std::size_t lost = 0;
  for (const std::string& config : committed) lost += kept.contains(config) ? 0 : 1;
  EXPECT_EQ(lost, 0U) << "of " << committed.size();
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) - COUNT(DISTINCT key) FROM winners"), "0");
  for (const std::string& name : compiled) EXPECT_TRUE(cache.binary(name)) << name;
  EXPECT_EQ(warnings(""), 0U) << warning("");
  EXPECT_GT(committed.size(), 0U);
  std::cout << kills << " kills of " << processes << " processes: " << committed.size()
            << " measurements and " << compiled.size() << " binaries committed, " << rows << " rows; " << busy
            << " waited in vain for their turn\n";
}

}  // namespace
}  // namespace ce::cache::test
