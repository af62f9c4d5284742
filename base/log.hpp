#pragma once
/// \file
/// Lines for the sink of include/ce/log.hpp.

#include <optional>
#include <string>
#include <string_view>

#include "ce/log.hpp"

namespace ce {

void log(LogLevel level, std::string_view line);

/// Logs the line unless the same line was logged before in this process.
void log_once(LogLevel level, const std::string& line);

/// A line as standard error gets it: "ce: warning: ...", or where CE_LOG_FORMAT is "json" an object with time, level,
/// process and text.
[[nodiscard]] std::string shown_line(LogLevel level, std::string_view line);

/// Whether this thread is in a call of the sink.
[[nodiscard]] bool in_log_sink() noexcept;

/// The text of CE_LOG; nothing where it is not set. \throws InvalidArgument
[[nodiscard]] std::optional<std::string> log_level_of_environment();

}  // namespace ce
