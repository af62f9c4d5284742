#pragma once
/// \file
/// Opens a path as a Store: a writable file is opened, a read-only file is copied, and everything else is an error that
/// says how to mend it.

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

/// One of our databases is damaged: its readable contents can be salvaged.
class Damaged : public DatabaseError {
 public:
  /// \param cause  SQLite's message
  Damaged(const std::filesystem::path& path, std::string cause);

  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }

 private:
  std::string cause_;
};

/// Another process locked the file for longer than a write waits.
class Locked : public DatabaseError {
 public:
  using DatabaseError::DatabaseError;
};

/// Whether to create tables in a file without them: an empty file, or one whose creation was interrupted.
enum class IfEmpty : std::uint8_t { fill, refuse };

struct Opened {
  std::unique_ptr<Store> store;
  /// Why the file of a copy in memory cannot be written; empty if it can be.
  std::string problem;
};

/// Creates the file (as create_database_file()) if it is missing. \throws DatabaseError
void create_empty(const std::filesystem::path& path);

/// Bytes of the file and its log, which holds the latest commits.
[[nodiscard]] std::int64_t bytes_on_disk(const std::filesystem::path& path);

/// Opens an existing file. Never changes a file of another program or another schema version.
/// \throws Damaged, Locked, DatabaseError with the path, the cause and what to do about it; NotFound for an empty
/// database if those are refused
[[nodiscard]] Opened open_file(const std::filesystem::path& path, IfEmpty if_empty);

/// Opens an empty file that only the caller uses, to fill it once: pages are written without a journal, so the file is
/// useless if that fails. Store::end_draft() makes it a normal database.
/// \throws SQLite::Exception
[[nodiscard]] std::unique_ptr<Store> open_draft(const std::filesystem::path& path);

/// A copy in memory of a file's contents. Never changes the file, and leaves no files beside it.
/// \throws Damaged, DatabaseError; NotFound if it has no tables
[[nodiscard]] std::unique_ptr<Store> copy_file(const std::filesystem::path& path);

/// The primary error code, without SQLite's extension: every failed read is SQLITE_IOERR.
[[nodiscard]] int code_of(const SQLite::Exception& error) noexcept;

/// Whether the error means that contents are not what SQLite wrote, or that tables are missing.
[[nodiscard]] bool is_damage(const SQLite::Exception& error) noexcept;

/// Whether the error means that another process locked the file for longer than a write waits.
[[nodiscard]] bool is_locked(const std::exception& error) noexcept;

/// The file itself, for reading: without locks if it has no log; a copy in memory if SQLite lacks space for its own
/// files. Never changes the file, and leaves no files beside it.
/// \throws DatabaseError; NotFound if it has no tables
[[nodiscard]] std::unique_ptr<Store> open_reader(const std::filesystem::path& path);

/// Configures SQLite for a program that is its only user in the process; called before it opens a database. SQLite then
/// does not count its memory, which takes a lock for each allocation.
void forget_memory_counts() noexcept;

/// Tries to write, and returns why one of our readable databases cannot be written; empty if it can be. The try changes
/// none of its contents.
[[nodiscard]] std::string obstacle_to_writing(const std::filesystem::path& path);

/// Rethrows an error: as Damaged if it means damage and the file is ours; else with explain() as Locked or
/// DatabaseError
[[noreturn]] void rethrow(const std::filesystem::path& path, const SQLite::Exception& error);

/// SQLite's message, and advice for the user.
[[nodiscard]] std::string explain(const std::filesystem::path& path, const SQLite::Exception& error);

}  // namespace ce::cache
