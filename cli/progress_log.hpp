#pragma once
/// \file
/// Writes the progress of a sweep as lines of JSON. docs/json.md documents the fields.

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

/// Thread-safe. A line that cannot be written is lost, which is logged once; the sweep goes on.
class ProgressLog {
 public:
  /// \param path  lines are appended to this file; "-" is standard error
  /// \param json  standard output is used for a JSON document
  /// \throws InvalidArgument naming --progress-json, as open_to_append()
  ProgressLog(std::string path, bool json);

  /// \param fields  follow "time" and "event"
  void write(std::string_view event, const Json& fields);

 private:
  std::mutex mutex_;
  const std::string path_;
  std::ofstream file_;
  bool to_standard_error_;
  bool failed_ = false;
};

}  // namespace ce::cli
