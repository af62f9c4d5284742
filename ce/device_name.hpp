#pragma once
/// \file
/// Names of devices. Not installed.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/device.hpp"

namespace ce {

/// \throws InvalidArgument if the text is not "cuda", "cuda:1" or "host"
void check_device_name(std::string_view argument, std::string_view text);

/// The device in CE_DEVICE; nothing if it is not set. \throws InvalidArgument naming CE_DEVICE
[[nodiscard]] std::optional<std::string> device_of_environment();

/// The name that an empty device text stands for: CE_DEVICE, else the thread's current CUDA device, else
/// "cuda:0" where there is a GPU, else "host". \throws InvalidArgument naming CE_DEVICE
[[nodiscard]] std::string default_device_name();

/// Logs once in a process that there is no GPU, and that the host device runs although the user did not ask for it.
void warn_of_host_device();

/// Warns if the default is the host device and CE_DEVICE does not name it.
/// \param text  "cuda", "cuda:1", "host", or empty for the default
/// \throws InvalidArgument for another text, Unsupported if there is no such device
[[nodiscard]] std::unique_ptr<runtime::Device> open_device(std::string_view text);

}  // namespace ce
