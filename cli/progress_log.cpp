#include "cli/progress_log.hpp"

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/log.hpp"
#include "base/time.hpp"
#include "ce/error.hpp"
#include "cli/units.hpp"

namespace ce::cli {

ProgressLog::ProgressLog(const std::string& path) : to_standard_error_(path == "-") {
  if (to_standard_error_) return;
  errno = 0;
  file_.open(path, std::ios::app);
  if (!file_)
    throw InvalidArgument("--progress-json", in_quotes(path),
                          "a file that can be written: " + std::generic_category().message(errno));
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
  file_ << text << std::flush;
  if (file_ || failed_) return;
  failed_ = true;
  log(LogLevel::warning, "no more lines can be written to the file of --progress-json");
}

}  // namespace ce::cli
