#include "tests/cache/processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

void require_success(int result, const char* call) {
  if (result != 0) throw std::system_error(errno, std::generic_category(), call);
}

void print(const std::string& line) {
  require(::write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
          "cannot print");
}

/// Permission bits do not bind root, so a root process becomes the user that owns nothing.
void give_up_privileges() {
  constexpr unsigned nobody = 65534;
  if (::geteuid() != 0) return;
  require_success(::setgroups(0, nullptr), "setgroups");
  require_success(::setgid(nobody), "setgid");
  require_success(::setuid(nobody), "setuid");
}

/// FILE TAG COUNT: adds measurements with the configs TAG-0, TAG-1, ... and prints each after its commit.
void write_measurements(const std::vector<std::string>& arguments) {
  Cache cache = Cache::open(arguments.at(1));
  require(cache.status().persistent, cache.status().problem);
  const Key key{.problem = "shared", .device = "Some GPU"};
  const int count = std::stoi(arguments.at(3));
  for (int i = 0; i < count; ++i) {
    cache.add(a_measurement(key, fmt::format("{}-{}", arguments.at(2), i), i));
    print(fmt::format("{}\n", i));
  }
  require(cache.status().persistent, cache.status().problem);
}

/// FILE COUNT: reads a file that it may not write, which holds COUNT measurements of one key.
void read_only(const std::vector<std::string>& arguments) {
  give_up_privileges();
  require(::access(arguments.at(1).c_str(), R_OK) == 0, "the test's folder cannot be read by others");
  Cache cache = Cache::open(arguments.at(1));
  const Status status = cache.status();
  require(!status.persistent, "a read-only file is taken for a writable one");
  require(status.problem.find("cannot be written") != std::string::npos, status.problem);
  const std::vector<Key> keys = cache.find("");
  require(keys.size() == 1, fmt::format("{} keys", keys.size()));
  const std::size_t count = std::stoul(arguments.at(2));
  const auto stored = cache.measurements(keys.front());
  require(stored.size() == count, fmt::format("{} measurements; {}", stored.size(), status.problem));
  cache.add(a_measurement(keys.front(), "new", 59000));
  const auto now = cache.measurements(keys.front());
  require(now.size() == count + 1 && now.back().config == "new", "what was measured now cannot be read");
  require(Cache::open_existing(arguments.at(1)).measurements(keys.front()).size() == count,
          "the file changed, or open_existing() cannot read it");
}

/// FILE: a file, or a folder for one, that it may neither read nor write.
void no_access(const std::vector<std::string>& arguments) {
  give_up_privileges();
  Cache cache = Cache::open(arguments.at(1));
  require(!cache.status().persistent && cache.status().path.empty(), "a file without access was opened");
  print(cache.status().problem);
}

/// FILE COUNT: adds COUNT measurements to a file that may hardly grow.
void fill_disk(const std::vector<std::string>& arguments) {
  Cache cache = Cache::open(arguments.at(1));
  require(cache.status().persistent, cache.status().problem);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlim_t bytes = 64 << 10;
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  require_success(::setrlimit(RLIMIT_FSIZE, &limit), "setrlimit");
  const Key key{.problem = "full", .device = "Some GPU"};
  const int count = std::stoi(arguments.at(2));
  for (int i = 0; i < count; ++i) {
    Measurement measurement = a_measurement(key, fmt::format("config-{}", i), i);
    measurement.samples_us.assign(2000, 1.0F);
    cache.add(measurement);
  }
  require(!cache.status().persistent, "the disk did not fill up");
  const auto list = cache.measurements(key);
  require(list.size() == static_cast<std::size_t>(count),
          fmt::format("{} measurements are left", list.size()));
  for (int i = 0; i < count; ++i)
    require(list.at(static_cast<std::size_t>(i)).config == fmt::format("config-{}", i), "the order is lost");
}

/// FILE PROBLEM DEVICE: claims the key, says so, and waits for its end.
void hold_a_claim(const std::vector<std::string>& arguments) {
  const Cache cache = Cache::open(arguments.at(1));
  const auto claim = cache.claim({.problem = arguments.at(2), .device = arguments.at(3)});
  print(claim ? "claimed\n" : "refused\n");
  for (;;) ::pause();
}

}  // namespace

Process::Process(std::vector<std::string> arguments) {
  std::array<int, 2> ends{};
  require_success(::pipe2(ends.data(), O_CLOEXEC), "pipe2");
  arguments.insert(arguments.begin(), "cache_test");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  output_ = ends[0];
  if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
}

Process::~Process() {
  if (pid_ > 0) {
    kill();
    static_cast<void>(wait());
  }
  ::close(output_);
}

std::optional<std::string> Process::line() {
  for (;;) {
    if (const auto end = pending_.find('\n'); end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    std::array<char, 4096> buffer{};
    const ssize_t bytes = ::read(output_, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return std::nullopt;
    pending_.append(buffer.data(), static_cast<std::size_t>(bytes));
  }
}

std::string Process::rest() {
  std::string text;
  while (const auto next = line()) text += *next + '\n';
  return text + std::exchange(pending_, {});
}

void Process::kill() { ::kill(pid_, SIGKILL); }

int Process::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::optional<int> run_task(const std::vector<std::string>& arguments) {
  using Task = void (*)(const std::vector<std::string>&);
  constexpr std::array<std::pair<std::string_view, Task>, 5> tasks{{
      {"--write", write_measurements},
      {"--read-only", read_only},
      {"--no-access", no_access},
      {"--fill-disk", fill_disk},
      {"--claim", hold_a_claim},
  }};
  for (const auto& [name, task] : tasks) {
    if (arguments.empty() || arguments.front() != name) continue;
    try {
      task(arguments);
      return 0;
    } catch (const std::exception& error) {
      print(std::string(error.what()) + '\n');
      return 1;
    }
  }
  return std::nullopt;
}

}  // namespace ce::cache::test
