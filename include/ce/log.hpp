#pragma once
/// \file
/// Where the library's few log lines go.

#include <functional>
#include <string_view>

#include "ce/export.hpp"
#include "ce/language.hpp"

namespace ce {

enum class LogLevel { debug, info, warning };

/// Receives one line without its newline. Any thread may call it, one call at a time. Lines that the sink itself logs,
/// and a line at which it throws, go to standard error as without a sink; the exception is dropped. In the sink, run()
/// and prepare() of a problem that the Context has no kernel for yet throw Unsupported: that problem may be the one
/// whose tuning logs, and it would wait for itself.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink. Waits for a running call of the old sink, unless that call is the caller. An empty sink restores
/// the default, which writes lines of at least the level in the environment variable CE_LOG (debug, info, warning, off;
/// default info) to standard error. If CE_LOG has another value, the default sink says so once and uses the default
/// level. With CE_LOG_FORMAT=json each line is an object with time, level, process and text.
CE_API void set_log_sink(LogSink sink);

/// Whether CE_LOG asks for lines of this level; for sinks that respect it.
[[nodiscard]] CE_API bool is_wanted(LogLevel level);

}  // namespace ce
