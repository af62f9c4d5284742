// Two processes that tune the same problem into one database at once.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/run_tests.hpp"
#include "tests/tuner/fixture.hpp"

namespace ce::test {
namespace {

/// This program, with a database to tune into in place of its tests.
pid_t start_tuning(std::string file) {
  std::string name = "tuner_test", task = "--tune";
  std::array<char*, 4> arguments{name.data(), task.data(), file.data(), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
  if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
  return status;
}

TEST_F(TunerTest, TwoProcessesAtOnce) {
  const std::array children{start_tuning(file()), start_tuning(file())};
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);

  cache::Cache database = cache::Cache::open_existing(file());
  EXPECT_TRUE(database.status().persistent) << database.status().problem;
  const auto device = runtime::open_host_device();
  tuner::Tuner tuner(*device, database, quick_settings());
  std::map<std::string, int> screened;
  const auto written = database.measurements(tuner.key(small_problem()));
  for (const cache::Measurement& measurement : written) {
    EXPECT_EQ(measurement.outcome, cache::Outcome::measured);
    EXPECT_FALSE(measurement.samples_us.empty());
    if (is_of_screening(measurement)) ++screened[measurement.config];
  }
  EXPECT_EQ(screened.size(), 4);
  for (const auto& [config, times] : screened) EXPECT_LE(times, 2) << config;

  const tuner::Report report = tuner.tune(small_problem());
  EXPECT_EQ(report.known, report.tried);
  EXPECT_EQ(report.compiled, 0);
  EXPECT_EQ(database.measurements(report.key).size(), written.size());
}

/// What a child of this program does.
int tune_into(const char* file) {
  try {
    cache::Cache database = cache::Cache::open(file);
    if (!database.status().persistent) throw std::runtime_error(database.status().problem);
    const auto device = runtime::open_host_device();
    const auto report = tuner::Tuner(*device, database, quick_settings()).tune(small_problem());
    if (!database.status().persistent) throw std::runtime_error(database.status().problem);
    return report.winner.variant.empty() ? 1 : 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace ce::test

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--tune") return ce::test::tune_into(argv[2]);
  return ce::test::run_tests(argc, argv);
}
