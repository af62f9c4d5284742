#include "ce/stats_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/file_size_signal.hpp"
#include "base/log.hpp"
#include "ce/version.hpp"

namespace ce {
namespace {

constexpr std::chrono::seconds between_writes{5};

struct Metric {
  std::string_view name;
  std::uint64_t Stats::*value;
  std::string_view help;
};
constexpr std::array<Metric, 7> metrics{{
    {"calls", &Stats::calls, "Calls of run(), Plan::run() and prepare()."},
    {"known_calls", &Stats::known, "Calls that were launched without choosing a kernel."},
    {"tuned_problems", &Stats::tuned, "Problems that were tuned."},
    {"fallbacks", &Stats::fallback, "Problems without a winner that got an untuned kernel."},
    {"compiled_kernels", &Stats::compiled, "Kernels that were compiled."},
    {"waits", &Stats::waited, "Calls that waited for another thread or process that tuned their problem."},
    {"errors", &Stats::errors, "Calls that failed."},
}};

std::string file_of(std::string name) {
  for (std::size_t at = name.find("%p"); at != std::string::npos; at = name.find("%p", at)) {
    const std::string process = fmt::to_string(::getpid());
    name.replace(at, 2, process);
    at += process.size();
  }
  return name;
}

/// \throws std::system_error
void write_whole(const std::string& path, std::string_view text) {
  const FileSizeSignalBlock limited;
  const std::string draft = fmt::format("{}.{}.draft", path, ::getpid());
  const auto fail = [&](const char* what) {
    throw std::system_error(errno, std::generic_category(), fmt::format("cannot {} {}", what, draft));
  };
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail("create");
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      ::close(file);
      ::unlink(draft.c_str());
      errno = error;
      fail("write");
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  ::close(file);
  if (::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(draft.c_str());
    errno = error;
    fail("rename");
  }
}

/// Never destroyed: the end of the program does not wait for its thread.
struct StatsFile {
  std::mutex mutex;  ///< one thread writes at a time
  std::string path;
  std::string latest;  ///< the text written last

  void write() noexcept {
    try {
      const std::lock_guard lock(mutex);
      if (path.empty()) return;
      std::string text = prometheus_text(stats(), ::getpid());
      if (text == latest) return;
      write_whole(path, text);
      latest = std::move(text);
    } catch (const std::exception& error) {
      try {
        log_once(LogLevel::warning, fmt::format("CE_STATS: {}", error.what()));
      } catch (const std::exception&) {  // memory is short
      }
    }
  }
};

StatsFile& stats_file() {
  static StatsFile& instance = *new StatsFile;
  return instance;
}

std::atomic_flag started;

/// A child of fork() has no such thread; its first Context starts one.
[[maybe_unused]] const int watching_forks_of_stats =
    ::pthread_atfork([] { stats_file().mutex.lock(); }, [] { stats_file().mutex.unlock(); },
                     [] {
                       stats_file().path.clear();
                       stats_file().latest.clear();
                       stats_file().mutex.unlock();
                       started.clear();
                     });

/// Signals are left to the program's threads.
void start_thread() {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([] {
      for (;;) {
        std::this_thread::sleep_for(between_writes);
        stats_file().write();
      }
    }).detach();
  } catch (const std::system_error&) {  // the file is only written at the end
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

std::string prometheus_text(const Stats& stats, int process) {
  std::string text;
  for (const Metric& metric : metrics)
    text += fmt::format(
        "# HELP ce_{0}_total {1}\n# TYPE ce_{0}_total counter\nce_{0}_total{{process=\"{2}\"}} {3}\n",
        metric.name, metric.help, process, stats.*metric.value);
  return text + fmt::format(
                    "# HELP ce_info The library.\n# TYPE ce_info "
                    "gauge\nce_info{{process=\"{}\",version=\"{}\"}} 1\n",
                    process, version());
}

void start_stats_file() noexcept {
  if (started.test_and_set()) return;
  try {
    const auto name = environment_variable("CE_STATS");
    if (!name) return;
    {
      const std::lock_guard lock(stats_file().mutex);
      stats_file().path = file_of(*name);
    }
    static std::atomic_flag at_exit;
    if (!at_exit.test_and_set()) std::atexit([] { stats_file().write(); });
    stats_file().write();
    start_thread();
  } catch (const std::exception&) {  // memory is short
  }
}

}  // namespace ce
