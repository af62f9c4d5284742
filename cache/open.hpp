#pragma once
/// \file
/// From a path to a Store: what may be written is opened, what may only be read is copied, and everything
/// else is an error that says how to mend it.

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include "cache/store.hpp"
#include "ce/error.hpp"

namespace SQLite {
class Exception;
}

namespace ce::cache {

/// A database of ours that is damaged: what can be read of it can be salvaged.
class Damaged : public DatabaseError {
 public:
  /// \param cause  what SQLite said
  Damaged(const std::filesystem::path& path, std::string cause);

  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }

 private:
  std::string cause_;
};

/// Another process had it locked for longer than a write waits.
class Locked : public DatabaseError {
 public:
  using DatabaseError::DatabaseError;
};

/// What becomes of a file without tables: one of no bytes, or what is left of a process that was killed while it
/// created it.
enum class IfEmpty : std::uint8_t { fill, refuse };

struct Opened {
  std::unique_ptr<Store> store;
  /// Why a file cannot be written of which the store is a copy in memory; empty where it can be.
  std::string problem;
};

/// Creates the file (as create_database_file()) where it is missing. \throws DatabaseError
void create_empty(const std::filesystem::path& path);

/// Bytes of the file and its log, where the latest commits are.
[[nodiscard]] std::int64_t bytes_on_disk(const std::filesystem::path& path);

/// Opens an existing file, and never changes one that is not ours or of a ce with another schema.
/// \throws Damaged, Locked, DatabaseError with the path, the cause and what to do about it; NotFound for what is refused
[[nodiscard]] Opened open_file(const std::filesystem::path& path, IfEmpty if_empty);

/// A file of no bytes that only the caller opens, as a database that is filled once: pages are written without a
/// journal, so where that fails the file is worth nothing. Store::end_draft() makes it one like others.
/// \throws SQLite::Exception
[[nodiscard]] std::unique_ptr<Store> open_draft(const std::filesystem::path& path);

/// A copy in memory of what a file holds. Never changes the file, and leaves nothing beside it.
/// \throws Damaged, DatabaseError; NotFound where it has no tables
[[nodiscard]] std::unique_ptr<Store> copy_file(const std::filesystem::path& path);

/// The kind of error, without what SQLite adds to it: a failed read is SQLITE_IOERR, whichever it was.
[[nodiscard]] int code_of(const SQLite::Exception& error) noexcept;

/// Whether it speaks of content that is not what SQLite wrote, or of tables that are missing.
[[nodiscard]] bool is_damage(const SQLite::Exception& error) noexcept;

/// Whether it says that another process had the file locked for longer than a write waits.
[[nodiscard]] bool is_locked(const std::exception& error) noexcept;

/// The file itself, for reading: without locks where it has no log. A copy in memory where SQLite lacks space for its
/// own files. Never changes the file, and leaves nothing beside it.
/// \throws DatabaseError; NotFound where it has no tables
[[nodiscard]] std::unique_ptr<Store> open_reader(const std::filesystem::path& path);

/// For a program that alone decides how SQLite works in its process, before it opens a database: SQLite does not count how
/// much memory it has, which takes a lock for each piece.
void forget_memory_counts() noexcept;

/// Why a database of ours that can be read cannot be written, after a try; empty where it can be. The try changes nothing
/// of what it holds.
[[nodiscard]] std::string obstacle_to_writing(const std::filesystem::path& path);

/// \throws Damaged where the error speaks of that and the file is one of ours; else, with explain(), Locked where it
/// speaks of that, or DatabaseError
[[noreturn]] void rethrow(const std::filesystem::path& path, const SQLite::Exception& error);

/// What SQLite said, and what a person can do about it.
[[nodiscard]] std::string explain(const std::filesystem::path& path, const SQLite::Exception& error);

}  // namespace ce::cache
