#include "cli/progress_log.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/time.hpp"
#include "cli/output_file.hpp"

namespace ce::cli {

ProgressLog::ProgressLog(std::string path, bool json)
    : path_(std::move(path)), to_standard_error_(path_ == "-") {
  if (!to_standard_error_) file_ = open_to_append("--progress-json", path_, json);
}

void ProgressLog::write(std::string_view event, const Json& fields) {
  Json line{{"time", utc_now()}, {"event", event}};
  line.update(fields);
  const std::string text = line.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  if (to_standard_error_) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
    return;
  }
  if (failed_) return;
  errno = 0;
  file_ << text << std::flush;
  if (file_) return;
  failed_ = true;
  log(LogLevel::warning, fmt::format("{}: no more lines of --progress-json can be written ({})", path_,
                                     std::generic_category().message(errno != 0 ? errno : EIO)));
}

}  // namespace ce::cli
