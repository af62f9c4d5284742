#pragma once
/// \file
/// File properties that matter to SQLite.

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace ce::cache {

/// The kind of network file system that the file or folder lies on, such as "NFS"; empty for a local one. Processes on
/// several machines cannot share memory, which SQLite's write-ahead log needs. Every user-space file system (FUSE)
/// counts, because it may be backed by a network.
[[nodiscard]] std::string_view network_file_system(const std::filesystem::path& path) noexcept;

/// f_type of statfs(2); 0 if it fails.
using FileSystemType = long (*)(const std::filesystem::path& path) noexcept;
/// For tests: replaces statfs(2); null restores it. Not thread-safe.
void set_file_system_type(FileSystemType function) noexcept;

/// "a symbolic link to X, where there is no file" for a dangling link; empty for any other path.
[[nodiscard]] std::string dangling_link(const std::filesystem::path& path);

/// The absolute path behind symbolic links, even if there is no file yet. SQLite's and ce's files beside a database lie
/// there.
[[nodiscard]] std::filesystem::path real_path(const std::filesystem::path& path);

/// The suffixes of SQLite's files beside a database. The first two can hold commits that the database's file lacks.
inline constexpr std::array files_of_sqlite{"-wal", "-journal", "-shm"};

/// The longest suffixes of files beside a database: by SQLite, and by both SQLite and ce.
inline constexpr std::string_view longest_of_sqlite = "-journal",
                                  longest_of_all = ".corrupt-20300131T120000Z-99-draft-journal";

/// What is too long about a database's path, including room for files beside it; empty if it fits.
[[nodiscard]] std::string excess_of_name(const std::filesystem::path& database, std::string_view longest);

/// Creates an empty file if nothing has that name; does not follow links. The file is private to the user (0600); in a
/// folder with the set-group-ID bit the group can use it, too (0660), as far as the umask allows.
/// \returns no error if something has that name
[[nodiscard]] std::error_code create_database_file(const std::filesystem::path& path) noexcept;

/// Creates an empty file with the owner, the group and the mode of the database beside which it lies, as far as this
/// user may set them. \returns EEXIST if anything has that name, even a dangling link
[[nodiscard]] std::error_code create_beside(const std::filesystem::path& database,
                                            const std::filesystem::path& path) noexcept;

/// Gives an open file the owner, the group and the mode of the database, as far as this user may.
void share_as(const std::filesystem::path& database, int descriptor) noexcept;

/// Whether the path itself, without following links, is a regular file of this user with a single hard link.
[[nodiscard]] bool is_own_file(const std::filesystem::path& path) noexcept;

}  // namespace ce::cache
