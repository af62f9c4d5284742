#pragma once
/// \file
/// How far a sweep is, as lines of JSON for programs. docs/json.md has the fields.

#include <cstddef>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// Thread-safe. A line that cannot be written is lost, which is said once: no reason to end a sweep.
class ProgressLog {
 public:
  /// \param path  lines are added at its end; "-" is standard error
  /// \throws InvalidArgument naming --progress-json where it cannot be opened
  explicit ProgressLog(const std::string& path);

  /// \param fields  behind "time" and "event"
  void write(std::string_view event, const Json& fields);

 private:
  std::mutex mutex_;
  std::ofstream file_;
  bool to_standard_error_;
  bool failed_ = false;
};

}  // namespace ce::cli
