#pragma once
/// \file
/// A file without a name, for data that is too large for memory.

#include <fstream>

namespace ce::cli {

/// A file in the folder for temporary files; it is removed with the stream, also if the process is killed.
/// \throws std::system_error
[[nodiscard]] std::fstream open_spool();

}  // namespace ce::cli
