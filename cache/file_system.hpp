#pragma once
/// \file
/// Files as SQLite needs them. Where one lies decides how SQLite may work on it.

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace ce::cache {

/// The kind of network file system that the file or folder lies on, such as "NFS"; empty for a local one. Processes
/// of several machines cannot share memory, which SQLite's write-ahead log needs. Anything in user space (FUSE) counts,
/// because it does not say what is behind it.
[[nodiscard]] std::string_view network_file_system(const std::filesystem::path& path) noexcept;

/// f_type of statfs(2); 0 where it cannot be had.
using FileSystemType = long (*)(const std::filesystem::path& path) noexcept;
/// For tests: asks another than statfs(2); null for that again. Not thread-safe.
void set_file_system_type(FileSystemType function) noexcept;

/// "a symbolic link to X, where there is no file"; empty for all else.
[[nodiscard]] std::string dangling_link(const std::filesystem::path& path);

/// Creates the file, empty and for the user alone (0600), where nothing has that name.
[[nodiscard]] std::error_code create_private_file(const std::filesystem::path& path) noexcept;

}  // namespace ce::cache
