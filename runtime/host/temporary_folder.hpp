#pragma once
/// \file
/// Where the host device writes what it compiles.

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "ce/base/error.hpp"

namespace ce::runtime::host {

/// $TMPDIR, or /tmp. \throws Error(compile) where that is no folder
inline std::filesystem::path temporary_folder() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error)
    throw Error(ErrorKind::compile,
                fmt::format("no folder for temporary files ({}); name one in TMPDIR", error.message()));
  return folder;
}

}  // namespace ce::runtime::host
