#include "tests/ce/log_lines.hpp"

#include <algorithm>

namespace ce::test {

LogLines::LogLines() {
  set_log_sink([this](LogLevel level, std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(level, line);
  });
}

LogLines::~LogLines() { set_log_sink({}); }

std::size_t LogLines::count(LogLevel level, std::string_view part) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(lines_, [&](const auto& line) {
    return line.first == level && line.second.find(part) != std::string::npos;
  }));
}

}  // namespace ce::test
