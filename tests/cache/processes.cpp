#include "tests/cache/processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "cache/layers.hpp"
#include "cache/maintenance.hpp"
#include "ce/error.hpp"
#include "ce/log.hpp"
#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

/// What rename() does in this program, for tasks; returns as that does.
using Rename = std::function<int(const char* from, const char* to)>;
Rename& rename_here() {
  static Rename function = [](const char* from, const char* to) {
    return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
  };
  return function;
}

void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

void require_success(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
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

/// FILE NUMBER BINARIES: until it is killed, adds measurements, compiles what no process has compiled yet beyond the
/// first BINARIES, and prints each thing after its commit: "measured CONFIG", "compiled KEY", "problem WHY".
void work_until_killed(const std::vector<std::string>& arguments) {
  set_log_sink([](LogLevel level, std::string_view line) {
    if (level != LogLevel::warning) return;
    print(fmt::format("problem {}\n", line));
    for (;;) ::pause();  // what it would say from here on may not be committed
  });
  Cache cache = Cache::open(arguments.at(1));
  // Later processes have other problems: what is read back stays short however many there were.
  const int number = std::stoi(arguments.at(2)), first_problem = number / 128 * 7;
  int next = std::stoi(arguments.at(3));
  const auto binary_name = [&] { return fmt::format("binary {}", next); };
  for (int i = 0;; ++i) {
    const Key key{.problem = fmt::format("problem {}", first_problem + i % 7), .device = "Some GPU"};
    const std::string config = fmt::format("{}-{}", number, i);
    cache.add(a_measurement(key, config, i));
    print(fmt::format("measured {}\n", config));
    static_cast<void>(cache.measurements(key));

    while (cache.binary(binary_name())) ++next;
    const std::string name = binary_name();
    if (const auto lock = cache.try_tuning_lock({.problem = name, .device = "Some GPU"});
        lock && !cache.binary(name)) {
      cache.keep_binary(name, std::vector<std::byte>(1000, std::byte{7}), {});
      print(fmt::format("compiled {}\n", name));
    }
  }
}

/// FILE COUNT: another user, with a database FILE and the one in CE_SITE_DB, which holds COUNT measurements of one key.
void read_site(const std::vector<std::string>& arguments) {
  give_up_privileges();
  Cache cache = Cache::open_layered(arguments.at(1));
  require(cache.status().persistent, cache.status().problem);
  const Layer& site = cache.lower().front();
  require(site.problem.empty(), site.problem);
  const Key key = site.cache.find("").at(0);
  require(site.cache.measurements(key).size() == std::stoul(arguments.at(2)), "the site cannot be read");
  cache.add(a_measurement(key, "other"));
  require(cache.measurements(key).size() == 1, "the user's own cannot be written");
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

// Mounts are for one process alone: they go with it.

void write_text(const char* file, const std::string& text) {
  const int descriptor = ::open(file, O_WRONLY | O_CLOEXEC);
  require_success(descriptor, file);
  const ssize_t written = ::write(descriptor, text.data(), text.size());
  ::close(descriptor);
  require(written == static_cast<ssize_t>(text.size()), fmt::format("cannot write to {}", file));
}

void leave_for_own_mounts() {
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::unshare(CLONE_NEWNS) != 0) {
    require_success(::unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare");
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", fmt::format("{0} {0} 1", user));
    write_text("/proc/self/gid_map", fmt::format("{0} {0} 1", group));
  }
  require_success(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "mount");
}

/// A container may forbid mounts.
struct NotAllowed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void mount_small(const std::string& folder, const char* size) {
  try {
    leave_for_own_mounts();
    require_success(::mount("none", folder.c_str(), "tmpfs", 0, size), "mount");
  } catch (const std::exception& error) {
    throw NotAllowed(error.what());
  }
}

void mount_read_only(const std::string& folder) {
  try {
    leave_for_own_mounts();
    require_success(::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr), "mount");
    constexpr unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    require_success(::mount("none", folder.c_str(), nullptr, flags, nullptr), "remount");
  } catch (const std::exception& error) {
    throw NotAllowed(error.what());
  }
}

/// FOLDER: fills a file system with measurements, and opens another database when it is full.
void full_file_system(const std::vector<std::string>& arguments) {
  mount_small(arguments.at(1), "size=512k");
  const std::string file = arguments.at(1) + "/ce.db";
  const Key key{.problem = "full", .device = "Some GPU"};
  int count = 0;
  {
    Cache cache = Cache::open(file);
    require(cache.status().persistent, cache.status().problem);
    for (; cache.status().persistent && count < 1000; ++count)
      cache.add(a_measurement(key, fmt::format("config-{}", count), count));
    require(count > 1 && count < 1000, fmt::format("the file system is full after {}", count));
    require(cache.measurements(key).size() == static_cast<std::size_t>(count), "a measurement is lost");
    Cache other = Cache::open(arguments.at(1) + "/other.db");
    require(!other.status().persistent, "a database on a full file system is taken for one");
    require(other.status().problem.find("free some space") != std::string::npos, other.status().problem);
    other.add(a_measurement(key, "config"));
    require(other.measurements(key).size() == 1, "nothing can be measured on a full file system");
  }
  const Cache cache = Cache::open_existing(file);
  require(cache.measurements(key).size() == static_cast<std::size_t>(count) - 1,
          "a committed measurement is lost");
}

/// To the last page.
void fill_up(const std::string& folder) {
  const int descriptor = ::open((folder + "/filling").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  require_success(descriptor, "open");
  const std::string page(4096, 'x');
  while (::write(descriptor, page.data(), page.size()) > 0) {
  }
  const int error = errno;
  ::close(descriptor);
  require(error == ENOSPC, "the file system does not fill up");
}

/// FOLDER: a database that was closed in good order, and one whose last commits are in its log, are read when the file
/// system is full.
void read_on_full_file_system(const std::vector<std::string>& arguments) {
  mount_small(arguments.at(1), "size=2m");
  const std::string whole = arguments.at(1) + "/ce.db", unfinished = arguments.at(1) + "/log.db";
  const Key key{.problem = "full", .device = "Some GPU"};
  {
    Cache cache = Cache::open(whole);
    cache.add(a_measurement(key, "config"));
    for (const char* suffix : {"", "-wal"}) std::filesystem::copy_file(whole + suffix, unfinished + suffix);
  }
  require(!std::filesystem::exists(whole + "-shm"), "SQLite needs no file of its own");
  fill_up(arguments.at(1));
  for (const auto open : {Cache::open, Cache::open_existing, Cache::open_to_read})
    require(open(whole).measurements(key).size() == 1, "what is there cannot be read");
  require(Maintenance::copy(whole).damages().empty(), "what is whole is damaged");
  const Status status = Cache::open_existing(whole).status();
  require(!status.persistent && status.problem.find("free some space") != std::string::npos, status.problem);
  // The index of the log has no room, so it is in memory.
  require(Cache::open_to_read(unfinished).measurements(key).size() == 1, "commits in a log are left out");
}

/// FOLDER: ce.db in it holds two measurements of one key.
void read_only_file_system(const std::vector<std::string>& arguments) {
  mount_read_only(arguments.at(1));
  Cache cache = Cache::open(arguments.at(1) + "/ce.db");
  const Status status = cache.status();
  require(!status.persistent && status.problem.find("cannot be written") != std::string::npos,
          status.problem);
  const Key key = cache.find("").at(0);
  require(cache.measurements(key).size() == 2, "what is there cannot be read");
  cache.add(a_measurement(key, "new", 59000));
  require(cache.measurements(key).size() == 3, "what was measured cannot be read");
}

/// FOLDER: ce.db in it is damaged.
void damaged_read_only(const std::vector<std::string>& arguments) {
  mount_read_only(arguments.at(1));
  Cache cache = Cache::open(arguments.at(1) + "/ce.db");
  const Status status = cache.status();
  require(!status.persistent && status.problem.find("is damaged") != std::string::npos, status.problem);
  const Key key{.problem = "problem", .device = "Some GPU"};
  cache.add(a_measurement(key, "new"));
  require(cache.measurements(key).size() == 1, "what was measured cannot be read");
}

/// FILE HOW WHAT: opens a damaged FILE, and prints how many measurements of one key it has. HOW it is disturbed: kill or
/// stop: after as many renames as WHAT says; refuse: to rename the file WHAT.
void repair_with_trouble(const std::vector<std::string>& arguments) {
  const std::string& how = arguments.at(2);
  const std::string& what = arguments.at(3);
  const auto disturb = [&] { ::raise(how == "kill" ? SIGKILL : SIGSTOP); };
  const int last = how == "refuse" ? -1 : std::stoi(what);
  rename_here() = [&, count = 0, really = rename_here()](const char* from, const char* to) mutable {
    if (how == "refuse" && from == what) {
      errno = EBUSY;
      return -1;
    }
    if (count == 0 && last == 0) disturb();
    const int result = really(from, to), error = errno;
    if (++count == last) disturb();
    errno = error;
    return result;
  };
  const Cache cache = Cache::open(arguments.at(1));
  const std::size_t rows = cache.measurements({.problem = "shared", .device = "Some GPU"}).size();
  print(fmt::format("{} in {}\n", rows, cache.status().persistent ? "its file" : "memory"));
}

/// FILE PROBLEM DEVICE: takes the tuning lock of the key, says so, and waits for its end.
void hold_a_tuning_lock(const std::vector<std::string>& arguments) {
  const Cache cache = Cache::open(arguments.at(1));
  const auto lock = cache.try_tuning_lock({.problem = arguments.at(2), .device = arguments.at(3)});
  print(lock ? "locked\n" : "refused\n");
  for (;;) ::pause();
}

}  // namespace

/// In place of the C library's, also where the standard library calls it.
extern "C" int rename(const char* from, const char* to) noexcept { return rename_here()(from, to); }

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

bool Process::wait_for_stop() {
  siginfo_t how{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &how, WSTOPPED | WEXITED | WNOWAIT) != 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitid");
  return how.si_code == CLD_STOPPED;
}

void Process::go_on() { ::kill(pid_, SIGCONT); }

int Process::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::optional<int> run_task(const std::vector<std::string>& arguments) {
  using Task = void (*)(const std::vector<std::string>&);
  constexpr std::array<std::pair<std::string_view, Task>, 12> tasks{{
      {"--write", write_measurements},
      {"--read-only", read_only},
      {"--work", work_until_killed},
      {"--site", read_site},
      {"--no-access", no_access},
      {"--fill-disk", fill_disk},
      {"--lock", hold_a_tuning_lock},
      {"--full-file-system", full_file_system},
      {"--read-on-full-file-system", read_on_full_file_system},
      {"--read-only-file-system", read_only_file_system},
      {"--damaged-read-only", damaged_read_only},
      {"--repair", repair_with_trouble},
  }};
  for (const auto& [name, task] : tasks) {
    if (arguments.empty() || arguments.front() != name) continue;
    try {
      task(arguments);
      return 0;
    } catch (const NotAllowed& error) {
      print(fmt::format("not allowed: {}\n", error.what()));
      return 0;
    } catch (const std::exception& error) {
      print(std::string(error.what()) + '\n');
      return 1;
    }
  }
  return std::nullopt;
}

}  // namespace ce::cache::test
