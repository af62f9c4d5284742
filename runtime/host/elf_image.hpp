#pragma once
/// \file
/// Shared objects as the bytes of a file.

#include <cstddef>
#include <span>
#include <string>

namespace ce::runtime::host {

/// Why the bytes are no whole shared object of this machine; empty where they are. The loader maps what the headers name
/// without a look at the file's size, and a process dies of SIGBUS where that ends earlier.
[[nodiscard]] std::string incompleteness(std::span<const std::byte> image);

}  // namespace ce::runtime::host
