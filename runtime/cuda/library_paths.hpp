#pragma once
/// \file
/// Paths where a library of the CUDA toolkit may be installed.

#include <string>
#include <vector>

namespace ce::runtime::cuda {

/// A library that is opened at run time.
struct ToolkitLibrary {
  const char* variable;  ///< environment variable that sets its file or folder
  const char* name;      ///< "libnvrtc.so", without the version
};

inline constexpr ToolkitLibrary nvrtc_library{.variable = "CE_NVRTC", .name = "libnvrtc.so"};
inline constexpr ToolkitLibrary cublaslt_library{.variable = "CE_CUBLASLT", .name = "libcublasLt.so"};

/// The library's names, with the versions that are known to work, newest first.
[[nodiscard]] std::vector<std::string> sonames_of(const ToolkitLibrary& library);

/// Names for dlopen, best first: sonames for the loader's own search, then files that exist. Folders that were searched
/// without success are appended to `tried`.
[[nodiscard]] std::vector<std::string> library_paths(const ToolkitLibrary& library,
                                                     std::vector<std::string>& tried);

}  // namespace ce::runtime::cuda
