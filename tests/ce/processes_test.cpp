// Many processes that meet the same new problem at once.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <thread>

#include "ce/chooser.hpp"
#include "runtime/host/device.hpp"
#include "tests/run_tests.hpp"
#include "tests/tuner/fixture.hpp"
#include "tests/until.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::test {
namespace {

/// Exit status of a child: how its kernel was chosen.
enum Status : int { tuned = 10, from_database = 11, wrong = 12 };

/// This program, with a database in place of its tests.
class Child {
 public:
  explicit Child(std::string file) {
    std::string name = "ce_chooser_test", task = "--choose";
    std::array<char*, 4> arguments{name.data(), task.data(), file.data(), nullptr};
    const int error = ::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
    if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Child() {
    if (pid_ < 0) return;
    kill();
    static_cast<void>(wait());
  }

  void kill() const { ::kill(pid_, SIGKILL); }
  /// The exit status; minus the signal when one ended it.
  [[nodiscard]] int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0)
      if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

/// What a child does: four threads that want the same kernel.
int choose_with(const char* file) {
  constexpr std::size_t count = 4;
  try {
    const auto device = runtime::open_host_device();
    cache::Cache database = cache::Cache::open(file);
    Chooser chooser(*device, database, quick_settings(), Policy::tune);
    std::barrier start(count);
    std::atomic<int> right = 0, by_tuning = 0;
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
          start.arrive_and_wait();
          const PlanTable::Entry& chosen = chooser.choose(small_problem(), nullptr);
          if (chosen.choice.origin == Origin::tuned) ++by_tuning;
          if (!chosen.choice.provisional &&
              !tuner::Verifier(*device, small_problem(), i).mismatch(chosen.kernel))
            ++right;
        });
    }
    if (right != count || !database.status().persistent) return wrong;
    if (by_tuning == count) return tuned;
    return by_tuning == 0 && chooser.compiled() == 0 ? from_database : wrong;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return wrong;
  }
}

class ManyProcesses : public TunerTest {
 protected:
  [[nodiscard]] std::vector<cache::Measurement> measurements() const {
    const auto device = runtime::open_host_device();
    cache::Cache database = open();
    return database.measurements(tuner::Tuner(*device, database, quick_settings()).key(small_problem()));
  }

  [[nodiscard]] bool is_being_tuned() const {
    const std::filesystem::directory_iterator files(std::filesystem::path(file()).parent_path());
    return std::any_of(begin(files), end(files), [](const auto& entry) {
      return entry.path().string().find("-tuning-lock-") != std::string::npos;
    });
  }

  /// How often each config was looked at: once, however many processes met it.
  void expect_one_tuning() const {
    std::map<std::string, int> screened, timed;
    for (const cache::Measurement& measurement : measurements())
      ++(is_of_screening(measurement) ? screened : timed)[measurement.config];
    EXPECT_EQ(screened.size(), 4U);
    EXPECT_FALSE(timed.empty());
    for (const auto& [config, times] : screened) EXPECT_EQ(times, 1) << config;
    for (const auto& [config, times] : timed) EXPECT_EQ(times, 1) << config;
  }
};

TEST_F(ManyProcesses, TuneAProblemOnce) {
  constexpr int count = 16;
  std::vector<Child> children;
  for (int i = 0; i < count; ++i) children.emplace_back(file());
  std::map<int, int> statuses;
  for (Child& child : children) ++statuses[child.wait()];
  EXPECT_EQ(statuses, (std::map<int, int>{{tuned, 1}, {from_database, count - 1}}));
  expect_one_tuning();
}

TEST_F(ManyProcesses, GoOnWhereOneIsKilled) {
  Child first(file());
  ASSERT_TRUE(until([&] { return is_being_tuned(); }));
  std::vector<Child> others;
  for (int i = 0; i < 3; ++i) others.emplace_back(file());
  first.kill();
  EXPECT_EQ(first.wait(), -SIGKILL) << "it had come to its end";
  std::map<int, int> statuses;
  for (Child& child : others) ++statuses[child.wait()];
  EXPECT_EQ(statuses, (std::map<int, int>{{tuned, 1}, {from_database, 2}}));
  expect_one_tuning();
}

}  // namespace
}  // namespace ce::test

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--choose") return ce::test::choose_with(argv[2]);
  return ce::test::run_tests(argc, argv);
}
