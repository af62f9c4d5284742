#include "cache/repair/salvage.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/codec.hpp"
#include "cache/measurement_row.hpp"
#include "cache/open.hpp"
#include "cache/ownership.hpp"
#include "cache/query.hpp"
#include "cache/read_files.hpp"
#include "cache/recognize.hpp"
#include "cache/schema.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

/// A table is given up after this many row ids without a readable row: as many as the file could hold, and few enough
/// to take less than minutes.
std::int64_t most_holes_of(const fs::path& file) {
  constexpr std::int64_t fewest_bytes_of_a_row = 32, most = 1'000'000;
  return std::min(bytes_on_disk(file) / fewest_bytes_of_a_row, most);
}

constexpr std::size_t rows_at_once = 1000;

/// CROSS JOIN keeps the order: everything is found by its row id, and no index, which may be damaged too, is used.
std::string select_measurements() {
  return fmt::format(R"sql(
  SELECT {}, m.identity, m.id
  FROM measurements AS m NOT INDEXED
  CROSS JOIN keys AS k ON k.id = m.key_id
  CROSS JOIN problems AS p ON p.id = k.problem_id
  CROSS JOIN device_models AS d ON d.id = k.device_model_id
  CROSS JOIN environments AS e ON e.id = m.environment_id
  WHERE m.id BETWEEN ?1 AND ?2 ORDER BY m.id)sql",
                     measurement_columns());
}

constexpr const char* all_binaries = R"sql(
  SELECT compile_key, image, digest, compiler, name, rowid
  FROM binaries NOT INDEXED WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid)sql";

/// Reads a table in the order of its row ids. If a page cannot be read, it tries the following ids one by one.
class Rows {
 public:
  /// \param sql            selects the rows from id ?1 to ?2
  /// \param number_column  the column of the row id
  /// \param after          the last id to skip
  Rows(SQLite::Database& database, const std::string& sql, int number_column, const char* last_number_sql,
       std::int64_t most_holes, std::int64_t after)
      : statement_(database, sql),
        number_column_(number_column),
        most_holes_(most_holes),
        last_(last_of(database, last_number_sql, std::min(after, most_number - most_holes_) + most_holes_)),
        at_(after + 1) {}

  /// The next readable row; null at the end.
  const Query* next() {
    while (at_ <= last_ && holes_ < most_holes_) {
      try {
        if (!query_) {
          query_ = std::make_unique<Query>(statement_, at_, probing_ ? at_ : last_);
          found_ = false;
        }
        if (query_->next()) {
          found_ = true;
          at_ = query_->integer(number_column_) + 1;
          return query_.get();
        }
        if (!probing_) break;
        if (found_)
          probing_ = false;
        else
          skip();
      } catch (const SQLite::Exception&) {
        if (probing_) skip();
        probing_ = true;
      }
      query_.reset();
    }
    query_.reset();
    return nullptr;
  }

 private:
  static constexpr std::int64_t most_number = std::numeric_limits<std::int64_t>::max() - 1;

  /// If not even the largest id can be read, as many ids are tried as before a table is given up.
  static std::int64_t last_of(SQLite::Database& database, const char* sql, std::int64_t otherwise) {
    try {
      return std::min(database.execAndGet(sql).getInt64(), most_number);
    } catch (const SQLite::Exception&) {
      return otherwise;
    }
  }

  void skip() {
    ++at_;
    ++holes_;
  }

  SQLite::Statement statement_;
  std::unique_ptr<Query> query_;  ///< resets the statement, so it is destroyed first
  int number_column_;
  std::int64_t most_holes_, last_, at_, holes_ = 0;
  bool probing_ = false, found_ = false;
};

/// \throws SQLite::Exception if not even the list of tables can be read, or if it has none of ours
void be_lenient(SQLite::Database& database) {
  database.exec("PRAGMA trusted_schema = OFF");
  // Readable tables are used even if others are damaged; nothing is written.
  database.exec("PRAGMA writable_schema = ON");
  database.exec("PRAGMA cell_size_check = ON");
  if (!database.tableExists("measurements") && !database.tableExists("binaries"))
    throw SQLite::Exception("it has no table of ce", SQLITE_CORRUPT);
}

std::unique_ptr<SQLite::Database> leniently(std::unique_ptr<SQLite::Database> database) {
  be_lenient(*database);
  return database;
}

/// Writes the header of every file of ours (https://www.sqlite.org/fileformat2.html#the_database_header) over a damaged
/// one. Data in the write-ahead log is not in the file.
void mend_header(std::string& bytes, std::size_t page_bytes) {
  const auto put = [&](std::size_t at, std::initializer_list<std::size_t> values) {
    for (const std::size_t value : values) bytes[at++] = static_cast<char>(value & 0xff);
  };
  const auto put_number = [&](std::size_t at, std::size_t value) {
    put(at, {value >> 24, value >> 16, value >> 8, value});
  };
  bytes.replace(0, magic.size(), magic);
  put(16, {page_bytes >> 8, page_bytes});
  put(18, {1, 1, 0});     // no write-ahead log; no reserved space
  put(21, {64, 32, 32});  // payload fractions, which are fixed
  put_number(28, bytes.size() / page_bytes);
  put_number(92, 0);  // the change counter for which the page count above is valid
  put_number(24, 0);  // the change counter
  put_number(32, 0);  // no freelist pages
  put_number(36, 0);
  put_number(44, 4);  // schema format
  put_number(52, 0);  // no auto-vacuum
  put_number(56, 1);  // UTF-8
  put_number(64, 0);
  put_number(60, schema_version);
}

/// A copy in memory with a new header; null if that does not help.
std::unique_ptr<SQLite::Database> open_with_mended_header(const fs::path& file) {
  constexpr std::size_t page_bytes = 4096;  // SQLite's default, which all our files use
  std::string bytes = beginning_of(file, std::numeric_limits<int>::max());
  bytes.resize(bytes.size() / page_bytes * page_bytes);
  if (bytes.empty()) return nullptr;
  mend_header(bytes, page_bytes);
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
  if (copy == nullptr) return nullptr;
  std::memcpy(copy, bytes.data(), bytes.size());
  auto database =
      std::make_unique<SQLite::Database>(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  // SQLite frees the copy, even if it fails.
  if (sqlite3_deserialize(database->getHandle(), "main", copy, size, size,
                          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
    return nullptr;
  be_lenient(*database);
  return database;
}

/// Null if not even the list of tables can be read.
std::unique_ptr<SQLite::Database> open_damaged(const fs::path& file) {
  try {
    return leniently(open_without_traces(file));
  } catch (const SQLite::Exception&) {
  }
  if (foreign_log_of(file).empty()) try {  // its log may lack an index
      return leniently(std::make_unique<SQLite::Database>(file.string(), SQLite::OPEN_READONLY));
    } catch (const SQLite::Exception&) {
    }
  try {  // tries without the log
    return leniently(
        std::make_unique<SQLite::Database>(immutable_uri(file), SQLite::OPEN_READONLY | SQLite::OPEN_URI));
  } catch (const SQLite::Exception&) {
  }
  try {
    return open_with_mended_header(file);
  } catch (const SQLite::Exception&) {
    return nullptr;
  }
}

/// \param after  the last row id to skip
/// \returns the last id that could be read
std::int64_t copy_measurements(SQLite::Database& database, Store& into, std::int64_t most_holes,
                               std::int64_t after) {
  constexpr int id_column = identity_column + 1;
  Rows rows(database, select_measurements(), id_column, "SELECT MAX(id) FROM measurements NOT INDEXED",
            most_holes, after);
  MetEnvironments met;
  std::vector<Measurement> list;
  const auto flush = [&] {
    into.add(list);
    list.clear();
  };
  while (const Query* row = rows.next()) {
    after = row->integer(id_column);
    try {
      list.push_back(read_whole_measurement(*row, met));
    } catch (const std::exception&) {  // this row is left out, later ones are not
    }
    if (list.size() == rows_at_once) flush();
  }
  flush();
  return after;
}

std::int64_t copy_binaries(SQLite::Database& database, Store& into, std::int64_t most_holes,
                           std::int64_t after) {
  Rows rows(database, all_binaries, 5, "SELECT MAX(rowid) FROM binaries NOT INDEXED", most_holes, after);
  while (const Query* row = rows.next()) {
    after = row->integer(5);
    const Bytes image = row->blob(1);
    const std::string compile_key = row->text(0);
    if (digest_of_binary(compile_key, image) != row->text(2)) continue;
    into.keep_binary(compile_key, image, {.compiler = row->text(3), .name = row->text(4)});
  }
  return after;
}

/// Pins are few, if any: they are read together.
void copy_pins(SQLite::Database& database, Store& into) {
  try {
    if (!database.tableExists("pins")) return;
    SQLite::Statement select(database, "SELECT device, problem, config, why, created_at FROM pins");
    for (Query row(select); row.next();)
      into.pin({.key = {.problem = row.text(1), .device = row.text(0)},
                .config = row.text(2),
                .why = row.text(3),
                .created_at = row.text(4)});
  } catch (const SQLite::Exception& error) {
    if (!is_damage(error)) throw;
  }
}

/// The table's rows, or nothing if the table cannot be found.
template <class Copy>
std::int64_t rows_of(SQLite::Database& database, Store& into, std::int64_t most_holes, std::int64_t after,
                     const Copy& copy) {
  try {
    return copy(database, into, most_holes, after);
  } catch (const SQLite::Exception& error) {
    if (!is_damage(error)) throw;
    return after;
  }
}

}  // namespace

Salvaged salvage(const fs::path& damaged, Store& into, const Salvaged& before) {
  const auto database = open_damaged(damaged);
  if (database == nullptr) return before;
  const std::int64_t most_holes = most_holes_of(damaged);
  // Copied binaries become this user's: those of others must not.
  const bool with_binaries = other_writer_of(damaged).empty();
  copy_pins(*database, into);
  return {
      .last_measurement = rows_of(*database, into, most_holes, before.last_measurement, copy_measurements),
      .last_binary = with_binaries ? rows_of(*database, into, most_holes, before.last_binary, copy_binaries)
                                   : before.last_binary};
}

}  // namespace ce::cache
