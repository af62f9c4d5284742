#include "ce/base/log.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "ce/base/environment.hpp"

namespace ce {
namespace {

struct State {
  std::mutex mutex;
  LogSink sink;
  std::set<std::string> seen;
};

State& state() {
  static State& instance = *new State;  // never destroyed: threads may log until the program is gone
  return instance;
}

/// The smallest level that is written, or one past `warning` for silence.
int threshold() {
  const std::string level = environment_variable("CE_LOG").value_or("info");
  if (level == "debug") return static_cast<int>(LogLevel::debug);
  if (level == "warning") return static_cast<int>(LogLevel::warning);
  if (level == "off") return static_cast<int>(LogLevel::warning) + 1;
  return static_cast<int>(LogLevel::info);
}

void write_to_stderr(LogLevel level, std::string_view line) {
  if (!is_wanted(level)) return;
  std::fprintf(stderr, "ce: %s%.*s\n", level == LogLevel::warning ? "warning: " : "",
               static_cast<int>(line.size()), line.data());
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

bool is_wanted(LogLevel level) { return static_cast<int>(level) >= threshold(); }

void log(LogLevel level, std::string_view line) {
  const std::lock_guard lock(state().mutex);
  if (state().sink)
    state().sink(level, line);
  else
    write_to_stderr(level, line);
}

void log_once(LogLevel level, const std::string& line) {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().seen.insert(line).second) return;
  }
  log(level, line);
}

}  // namespace ce
