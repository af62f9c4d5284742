#pragma once
/// \file
/// The log, for tests that look at it.

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ce/log.hpp"

namespace ce::test {

/// The lines that ce logs while it lives.
class LogLines {
 public:
  LogLines();
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  ~LogLines();

  /// How many lines of the level hold the part.
  [[nodiscard]] std::size_t count(LogLevel level, std::string_view part) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

}  // namespace ce::test
