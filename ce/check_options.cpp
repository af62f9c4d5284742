#include "ce/check_options.hpp"

#include <fmt/format.h>

#include <string_view>

#include "ce/check_tensor.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"

namespace ce {
namespace {

void check_bytes(std::string_view option, std::int64_t bytes) {
  if (bytes < 0) throw InvalidArgument(option, fmt::to_string(bytes), "0 or more");
}

}  // namespace

void check_options(const ContextOptions& options) {
  if (!options.device.empty()) check_device_name("device", options.device);
  if (options.policy > Policy::background)
    throw InvalidArgument("policy", number_of(*options.policy), "tune, lookup, frozen or background");
  if (options.tuning_seconds && !(*options.tuning_seconds >= 0))
    throw InvalidArgument("tuning_seconds", fmt::format("{}", *options.tuning_seconds), "0 or more");
  check_bytes("scratch_bytes", options.scratch_bytes);
  check_bytes("capture_bytes", options.capture_bytes);
  const auto& [allocate, release, state] = options.allocator;
  if ((allocate == nullptr) != (release == nullptr))
    throw InvalidArgument("allocator", allocate == nullptr ? "only release" : "only allocate",
                          "both functions or neither");
}

}  // namespace ce
