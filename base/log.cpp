#include "base/log.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/environment.hpp"
#include "base/printable.hpp"
#include "base/time.hpp"
#include "ce/error.hpp"

namespace ce {
namespace {

/// Never destroyed: threads may log until the process ends.
struct State {
  std::mutex mutex;  ///< guards all members below; no thread that holds it waits for anything
  /// Held while the sink is called. The sink may log, and replace itself.
  std::recursive_mutex* calls = new std::recursive_mutex;
  std::shared_ptr<const LogSink> sink;  ///< null: standard error
  std::set<std::string> seen;
};

thread_local bool in_sink = false;

State& state() {
  static State& instance = *new State;
  return instance;
}

/// A child of fork() does not wait for a sink that a thread of its parent was calling.
[[maybe_unused]] const int watching_forks =
    ::pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                     [] {
                       state().calls = new std::recursive_mutex;
                       state().mutex.unlock();
                     });

std::recursive_mutex& calls_of_sink() {
  const std::lock_guard lock(state().mutex);
  return *state().calls;
}

/// The texts of CE_LOG, indexed by LogLevel; the last one stands for silence.
constexpr std::array<std::string_view, 4> level_names{"debug", "info", "warning", "off"};

/// The smallest level that is written, or one past `warning` for silence.
int threshold() {
  try {
    const std::string level = log_level_of_environment().value_or("info");
    return static_cast<int>(std::find(level_names.begin(), level_names.end(), level) - level_names.begin());
  } catch (const InvalidArgument& error) {
    static std::atomic_flag said;
    if (!said.test_and_set()) std::fprintf(stderr, "ce: warning: %s; ce uses info\n", error.what());
    return static_cast<int>(LogLevel::info);
  }
}

/// Whether CE_LOG_FORMAT asks for JSON.
bool writes_json() {
  const std::string format = environment_variable("CE_LOG_FORMAT").value_or("text");
  if (format == "json") return true;
  static std::atomic_flag said;
  if (format != "text" && !said.test_and_set())
    std::fprintf(stderr, "ce: warning: CE_LOG_FORMAT is \"%s\"; expected text or json; ce uses text\n",
                 printable(format).c_str());
  return false;
}

void write_to_stderr(LogLevel level, std::string_view line) {
  if (!is_wanted(level)) return;
  const std::string text = shown_line(level, line);
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace

std::string shown_line(LogLevel level, std::string_view line) {
  if (!writes_json()) return fmt::format("ce: {}{}", level == LogLevel::warning ? "warning: " : "", line);
  return nlohmann::ordered_json{{"time", utc_now()},
                                {"level", level_names.at(static_cast<std::size_t>(level))},
                                {"process", ::getpid()},
                                {"text", line}}
      .dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

bool in_log_sink() noexcept { return in_sink; }

void set_log_sink(LogSink sink) {
  std::shared_ptr<const LogSink> taken;
  if (sink) taken = std::make_shared<const LogSink>(std::move(sink));
  const std::lock_guard no_call(calls_of_sink());
  const std::lock_guard lock(state().mutex);
  state().sink.swap(taken);
}

std::optional<std::string> log_level_of_environment() {
  std::optional<std::string> level = environment_variable("CE_LOG");
  if (level && std::find(level_names.begin(), level_names.end(), *level) == level_names.end())
    throw InvalidArgument("CE_LOG", fmt::format("\"{}\"", *level), "debug, info, warning or off");
  return level;
}

bool is_wanted(LogLevel level) { return static_cast<int>(level) >= threshold(); }

namespace {

std::shared_ptr<const LogSink> current_sink() {
  const std::lock_guard lock(state().mutex);
  return state().sink;
}

}  // namespace

void log(LogLevel level, std::string_view line) {
  const std::string shown = printable(line, Lines::many);
  const std::lock_guard one_call(calls_of_sink());
  const std::shared_ptr<const LogSink> sink = current_sink();  // a copy: the sink may replace itself
  if (sink == nullptr || in_sink) return write_to_stderr(level, shown);
  in_sink = true;
  try {
    (*sink)(level, shown);
  } catch (
      ...) {  // an exception must not leave: the caller may be handling an error, or be a background thread
    write_to_stderr(level, shown);
  }
  in_sink = false;
}

void log_once(LogLevel level, const std::string& line) {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().seen.insert(line).second) return;
  }
  log(level, line);
}

}  // namespace ce
