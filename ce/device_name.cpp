#include "ce/device_name.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "ce/error.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/host/device.hpp"

namespace ce {
namespace {

/// The ordinal in "cuda" or "cuda:N".
std::optional<int> cuda_ordinal(std::string_view text) {
  if (text == "cuda") return 0;
  constexpr std::string_view start = "cuda:";
  if (!text.starts_with(start)) return std::nullopt;
  text.remove_prefix(start.size());
  int ordinal = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
  if (error != std::errc() || end != text.data() + text.size() || ordinal < 0) return std::nullopt;
  return ordinal;
}

InvalidArgument wrong_name(std::string_view argument, std::string_view text) {
  return {argument, fmt::format("\"{}\"", text), "\"cuda\", \"cuda:N\" or \"host\""};
}

}  // namespace

void check_device_name(std::string_view argument, std::string_view text) {
  if (text != "host" && !cuda_ordinal(text)) throw wrong_name(argument, text);
}

std::optional<std::string> device_of_environment() {
  std::optional<std::string> text = environment_variable("CE_DEVICE");
  if (text) check_device_name("CE_DEVICE", *text);
  return text;
}

std::string default_device_name() {
  if (auto chosen = device_of_environment()) return *std::move(chosen);
  if (const auto current = runtime::current_cuda_device()) return fmt::format("cuda:{}", *current);
  return runtime::cuda_device_count() > 0 ? "cuda:0" : "host";
}

void warn_of_host_device() {
  log_once(LogLevel::warning,
           "no GPU was found: kernels run on the host device, which is for tests and far slower than other "
           "code on the CPU (ce-tune doctor shows why there is no GPU; to choose the host device without "
           "this warning, use the device \"host\" or CE_DEVICE=host)");
}

std::unique_ptr<runtime::Device> open_device(std::string_view text) {
  if (text.empty() && !device_of_environment() && default_device_name() == "host") warn_of_host_device();
  const std::string name = text.empty() ? default_device_name() : std::string(text);
  if (name == "host") return runtime::open_host_device();
  if (const auto ordinal = cuda_ordinal(name)) return runtime::open_cuda_device(*ordinal);
  throw wrong_name("device", name);
}

}  // namespace ce
