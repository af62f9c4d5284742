#pragma once
/// \file
/// Devices by name. Not installed.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/device.hpp"

namespace ce {

/// \throws InvalidArgument where the text is none of "cuda", "cuda:1" and "host"
void check_device_name(std::string_view argument, std::string_view text);

/// What CE_DEVICE says; nothing where it is not set. \throws InvalidArgument naming CE_DEVICE
[[nodiscard]] std::optional<std::string> device_of_environment();

/// The name that an empty device text stands for: CE_DEVICE, else the thread's current CUDA device, else
/// "cuda:0" where there is a GPU, else "host". \throws InvalidArgument naming CE_DEVICE
[[nodiscard]] std::string default_device_name();

/// Once in a process: that there is no GPU, and the host device runs though the user did not ask for it.
void warn_of_host_device();

/// Warns where the default is the host device though CE_DEVICE does not name it.
/// \param text  "cuda", "cuda:1", "host", or empty for the default
/// \throws InvalidArgument for another text, Unsupported where there is no such device
[[nodiscard]] std::unique_ptr<runtime::Device> open_device(std::string_view text);

}  // namespace ce
