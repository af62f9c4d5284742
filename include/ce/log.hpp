#pragma once
/// \file
/// Where the library's few lines of talk go.

#include <functional>
#include <string_view>

#include "ce/export.hpp"
#include "ce/language.hpp"

namespace ce {

enum class LogLevel { debug, info, warning };

/// Receives one line without its newline. Called from any thread, one call at a time. What it logs itself, and a line
/// at which it throws, goes to standard error as without a sink; the exception goes nowhere. run() and prepare() of a
/// problem that the Context has no kernel for yet throw Unsupported in it: the problem may be the one whose tuning logs,
/// and would wait for itself.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink and waits for the call of the old one that is under way, unless that call is what calls this.
/// An empty one restores the default, which writes lines of at least the level
/// in the environment variable CE_LOG (debug, info, warning, off; default info) to standard error. Of a CE_LOG that
/// is none of these it says so there, once, and takes the default. With CE_LOG_FORMAT=json each line is an object with
/// time, level, process and text.
CE_API void set_log_sink(LogSink sink);

/// Whether CE_LOG asks for lines of this level; for sinks that want to heed it.
[[nodiscard]] CE_API bool is_wanted(LogLevel level);

}  // namespace ce
