#pragma once
/// \file
/// A file without a name, for what is too long to be kept in memory.

#include <fstream>

namespace ce::cli {

/// In the folder for temporary files; it goes with the stream, also where the process is killed.
/// \throws std::system_error
[[nodiscard]] std::fstream open_spool();

}  // namespace ce::cli
