#pragma once
/// \file
/// Keeps the source of a failed compilation for inspection.

#include <string>

#include "runtime/device.hpp"

namespace ce::runtime::cuda {

/// Writes text and headers to a new folder among the system's temporary files. Returns the text's path, or a message
/// why there is none: a full disk must not hide the compiler's log.
[[nodiscard]] std::string keep_source(const CompileRequest& request);

}  // namespace ce::runtime::cuda
