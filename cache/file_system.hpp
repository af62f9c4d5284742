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

/// The absolute path behind symbolic links, also where there is no file yet. What SQLite keeps beside a database lies
/// there, and so does what ce keeps.
[[nodiscard]] std::filesystem::path real_path(const std::filesystem::path& path);

/// What is added to a database's name for files beside it, at its longest: by SQLite, and by all.
inline constexpr std::string_view longest_of_sqlite = "-journal",
                                  longest_of_all = ".corrupt-20300131T120000Z-99-draft-journal";

/// What is too long about a database's path, with room for files beside it; empty where it fits.
[[nodiscard]] std::string excess_of_name(const std::filesystem::path& database, std::string_view longest);

/// Creates an empty file where nothing has that name; links are not followed. It is for the user alone (0600), in a folder
/// with the set-group-ID bit for the group, too (0660), as far as the umask allows.
/// \returns no error where something has that name
[[nodiscard]] std::error_code create_database_file(const std::filesystem::path& path) noexcept;

/// Creates an empty file with the owner, the group and the mode of the database that it lies beside, as far as this user
/// may give them. \returns EEXIST where anything has that name, be it a link to nothing
[[nodiscard]] std::error_code create_beside(const std::filesystem::path& database,
                                            const std::filesystem::path& path) noexcept;

/// Gives an open file the owner, the group and the mode of the database, as far as this user may.
void share_as(const std::filesystem::path& database, int descriptor) noexcept;

/// Whether the path itself, not what a link leads to, is a regular file of this user with no second name.
[[nodiscard]] bool is_own_file(const std::filesystem::path& path) noexcept;

}  // namespace ce::cache
