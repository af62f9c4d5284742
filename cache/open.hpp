#pragma once
/// \file
/// From a path to a Store: what may be written is opened, what may only be read is copied, and everything
/// else is an error that says how to mend it.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "cache/store.hpp"

namespace SQLite {
class Exception;
}

namespace ce::cache {

struct Opened {
  std::unique_ptr<Store> store;
  /// Why the store is a copy in memory of a file that cannot be written; empty where it is the file itself.
  std::string problem;
};

/// Creates the file (0600) and its folders (0700) where they are missing; otherwise touches nothing.
/// \throws DatabaseError
void create_file(const std::filesystem::path& path);

/// The absolute path of a file that is there. \throws NotFound
[[nodiscard]] std::filesystem::path existing_file(const std::filesystem::path& path);

/// Of the file with its log, where the latest commits are.
[[nodiscard]] std::int64_t bytes_on_disk(const std::filesystem::path& path);

/// Opens an existing file, brings its schema up to date, and never changes a file that is not ours.
/// \throws DatabaseError with the path, the cause and what to do about it
[[nodiscard]] Opened open_file(const std::filesystem::path& path);

/// A copy in memory of what a file holds, with today's schema. Never changes the file.
/// \throws DatabaseError
[[nodiscard]] std::unique_ptr<Store> copy_file(const std::filesystem::path& path);

/// What SQLite said, and what a person can do about it.
[[nodiscard]] std::string explain(const std::filesystem::path& path, const SQLite::Exception& error);

}  // namespace ce::cache
