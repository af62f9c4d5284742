#pragma once
/// \file
/// Shared objects as the bytes of a file.

#include <cstddef>
#include <span>
#include <string>

namespace ce::runtime::host {

/// Why the bytes are not a whole shared object for this machine; empty if they are. The loader maps the ranges in the
/// headers without checking the file's size, and a process dies of SIGBUS if the file is shorter.
[[nodiscard]] std::string incompleteness(std::span<const std::byte> image);

}  // namespace ce::runtime::host
