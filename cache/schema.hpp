#pragma once
/// \file
/// The tables, indexes, triggers and views of the tuning database: each is defined once, in schema.cpp.

namespace SQLite {
class Database;
}

namespace ce::cache {

/// The schema that this ce reads and writes: PRAGMA user_version of its files.
inline constexpr int schema_version = 1;

/// PRAGMA user_version of a database; 0 for one without tables.
[[nodiscard]] int schema_of(SQLite::Database& database);

/// Creates the tables where the database has none, all or none of them, also when several processes do so at once.
/// \throws SQLite::Exception
void create_tables(SQLite::Database& database);

}  // namespace ce::cache
