#include "ce/log.hpp"

#include <string>
#include <string_view>

#include "c/guard.hpp"

namespace ce::c {
namespace {

static_assert(CE_LOG_DEBUG == static_cast<int>(LogLevel::debug) &&
              CE_LOG_INFO == static_cast<int>(LogLevel::info) &&
              CE_LOG_WARNING == static_cast<int>(LogLevel::warning));

}  // namespace
}  // namespace ce::c

using namespace ce::c;

ce_status ce_set_log_sink(ce_log_sink sink, void* data) {
  return guarded([&] {
    if (sink == nullptr) return ce::set_log_sink({});
    ce::set_log_sink([sink, data](ce::LogLevel level, std::string_view line) {
      sink(data, static_cast<ce_log_level>(level), std::string(line).c_str());
    });
  });
}

int32_t ce_log_is_wanted(ce_log_level level) {
  bool wanted = false;
  const ce_status status = guarded([&] { wanted = ce::is_wanted(static_cast<ce::LogLevel>(level)); });
  return status == CE_STATUS_SUCCESS && wanted ? 1 : 0;
}
