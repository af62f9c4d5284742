#pragma once
/// \file
/// Where NVRTC may be installed.

#include <string>
#include <vector>

namespace ce::runtime::cuda {

/// Names for dlopen, best first: sonames for the loader's own path, then files that exist. Folders that were
/// looked in to no avail are appended to `tried`.
[[nodiscard]] std::vector<std::string> nvrtc_places(std::vector<std::string>& tried);

}  // namespace ce::runtime::cuda
