/// \file
/// The part of Store that maintains its database.

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "cache/codec.hpp"
#include "cache/measurement_row.hpp"
#include "cache/open.hpp"
#include "cache/query.hpp"
#include "cache/schema.hpp"
#include "cache/store.hpp"

namespace ce::cache {
namespace {

// Each config text begins with its variant and a slash. The latest templates of a variant are those of its latest
// measurement. Verdicts count finals and checks: screenings are kept only if these leave room for them, and checks of
// replaced templates are counted separately, as the current templates may have hundreds.
constexpr const char* find_superseded = R"sql(
CREATE TEMP TABLE superseded AS
WITH placed AS (
  SELECT id, key_id, stage, template_digest, compile_key, created_at,
         FIRST_VALUE(template_digest) OVER (
           PARTITION BY key_id, CASE WHEN key_id IN (SELECT keys.id FROM keys JOIN problems ON problems.id = problem_id
                                                     WHERE problems.text GLOB 'race *')
                                     THEN '' ELSE SUBSTR(config, 1, INSTR(config || '/', '/')) END
           ORDER BY created_at DESC, id DESC) AS latest,
         ROW_NUMBER() OVER (PARTITION BY key_id ORDER BY stage = 0, created_at DESC, id DESC) AS age,
         ROW_NUMBER() OVER (PARTITION BY key_id, template_digest
                            ORDER BY outcome = 'quarantined', stage DESC, rows DESC, median_us, id) AS place
  FROM measurements
)
SELECT id, compile_key, stage > 0 OR place = 1 AS decides,
       CASE WHEN stage < 0
            THEN ROW_NUMBER() OVER (PARTITION BY key_id, stage < 0 ORDER BY created_at DESC, id DESC)
            ELSE age END AS age
FROM placed WHERE template_digest <> latest)sql";

/// The compile keys that measurements name, separated by spaces.
std::string named_by(std::string_view measurements) {
  return fmt::format(R"sql(
WITH RECURSIVE words (word, rest) AS (
  SELECT '', compile_keys || ' ' FROM (SELECT DISTINCT compile_key AS compile_keys FROM {})
  UNION ALL
  SELECT SUBSTR(rest, 1, INSTR(rest, ' ') - 1), SUBSTR(rest, INSTR(rest, ' ') + 1) FROM words WHERE rest <> ''
)
SELECT DISTINCT word FROM words WHERE word <> '')sql",
                     measurements);
}

// Binaries that no measurement ever named stay: kernels that are not searched for.
constexpr const char* replaced_binaries =
    "FROM binaries WHERE compile_key IN (SELECT word FROM temp.replaced) "
    "AND compile_key NOT IN (SELECT word FROM temp.named)";

constexpr const char* pruned = "FROM temp.superseded WHERE NOT decides AND age > ?1";

// In this order, so that no removed row is still referenced.
constexpr std::array after_pruning{
    "DELETE FROM key_counts",
    "DELETE FROM environments WHERE id NOT IN (SELECT environment_id FROM measurements)",
    "DELETE FROM keys WHERE id NOT IN (SELECT key_id FROM measurements)",
    "DELETE FROM problems WHERE id NOT IN (SELECT problem_id FROM keys)",
    "DELETE FROM device_models WHERE id NOT IN (SELECT device_model_id FROM keys)",
    "INSERT INTO key_counts SELECT * FROM counted_keys"};

constexpr const char* miscounted_keys = R"sql(
SELECT name FROM keys WHERE id IN (
  SELECT key_id FROM (SELECT * FROM key_counts EXCEPT SELECT * FROM counted_keys)
  UNION SELECT key_id FROM (SELECT * FROM counted_keys EXCEPT SELECT * FROM key_counts)) ORDER BY name)sql";

/// SQLite's message about damaged pages, in one line and without its heading.
std::string page_damage(std::string line) {
  constexpr std::string_view heading = "*** in database main ***\n";
  if (line.starts_with(heading)) line.erase(0, heading.size());
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

/// While it lives, SQLite does not check references to a removed row: no index leads from an environment to its
/// measurements, so each check would read all of them. SQLite accepts this setting only outside of transactions.
class UncheckedReferences {
 public:
  explicit UncheckedReferences(SQLite::Database& database) : database_(database) {
    database_.exec("PRAGMA foreign_keys = OFF");
  }
  UncheckedReferences(const UncheckedReferences&) = delete;
  UncheckedReferences& operator=(const UncheckedReferences&) = delete;
  ~UncheckedReferences() { static_cast<void>(database_.tryExec("PRAGMA foreign_keys = ON")); }

 private:
  SQLite::Database& database_;
};

}  // namespace

Store::Pruned Store::prune(std::int64_t keep, bool rehearse) {
  using enum SQLite::TransactionBehavior;
  const UncheckedReferences unchecked(*database_);
  // Counting takes no write lock.
  SQLite::Transaction transaction(*database_, rehearse ? DEFERRED : IMMEDIATE);
  const auto run = [&](const std::string& sql, const auto&... values) {
    SQLite::Statement statement(*database_, sql);
    Query(statement, values...).run();
    return static_cast<std::int64_t>(database_->getChanges());
  };
  const auto count = [&](const std::string& rows, const auto&... values) {
    SQLite::Statement statement(*database_, "SELECT COUNT(*) " + rows);
    Query query(statement, values...);
    query.next();
    return query.integer(0);
  };
  run(find_superseded);
  constexpr const char* of_superseded = "measurements WHERE id {} (SELECT id FROM temp.superseded)";
  run("CREATE TEMP TABLE named AS " + named_by(fmt::format(of_superseded, "NOT IN")));
  run("CREATE TEMP TABLE replaced AS " + named_by(fmt::format(of_superseded, "IN")));
  Pruned result{.measurements = count(pruned, keep), .binaries = count(replaced_binaries)};
  if (!rehearse) {
    run(std::string("DELETE ") + replaced_binaries);
    std::vector<std::string> triggers;
    for (const char* name : {"measurements_refuse_delete", "environments_refuse_delete"}) {
      triggers.push_back(
          database_->execAndGet(fmt::format("SELECT sql FROM sqlite_master WHERE name = '{}'", name))
              .getString());
      run(fmt::format("DROP TRIGGER {}", name));
    }
    run(std::string("DELETE FROM measurements WHERE id IN (SELECT id ") + pruned + ")", keep);
    for (const char* statement : after_pruning) run(statement);
    for (const std::string& trigger : triggers) run(trigger);
  }
  for (const char* statement :
       {"DROP TABLE temp.named", "DROP TABLE temp.replaced", "DROP TABLE temp.superseded"})
    run(statement);
  transaction.commit();
  return result;
}

std::vector<std::string> Store::unnamed_binaries() {
  SQLite::Statement statement(*database_,
                              fmt::format("SELECT compile_key FROM binaries WHERE compile_key NOT IN ({}) "
                                          "ORDER BY 1",
                                          named_by("measurements")));
  Query query(statement);
  std::vector<std::string> keys;
  while (query.next()) keys.emplace_back(query.text(0));
  return keys;
}

Store::Depth Store::usual_depth(std::int64_t bytes) noexcept {
  constexpr std::int64_t most_in_full = 16 << 20;
  return bytes > most_in_full ? Depth::pages : Depth::full;
}

std::string Store::damaged_page(Depth depth) {
  SQLite::Statement check(*database_,
                          depth == Depth::full ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)");
  Query pages(check);
  std::string line = pages.next() ? pages.text(0) : "ok";
  return line == "ok" ? "" : page_damage(std::move(line));
}

void Store::expect_all_bytes() {
  constexpr int at_once = 1 << 16;
  std::vector<std::byte> bytes(at_once);
  for (const int which : {SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_JOURNAL_POINTER}) {
    sqlite3_file* file = nullptr;
    sqlite3_file_control(database_->getHandle(), "main", which, static_cast<void*>(&file));
    if (file == nullptr || file->pMethods == nullptr) continue;  // a database in memory, or without a log
    const auto expect = [](int result) {
      if (result != SQLITE_OK && result != SQLITE_IOERR_SHORT_READ)
        throw SQLite::Exception("part of it cannot be read", result);
    };
    sqlite3_int64 size = 0;
    expect(file->pMethods->xFileSize(file, &size));
    for (sqlite3_int64 at = 0; at < size; at += at_once)
      expect(file->pMethods->xRead(file, bytes.data(), at_once, at));
  }
}

std::string Store::damaged_schema() {
  const std::unique_ptr<Store> fresh = in_memory();
  SQLite::Statement all(*fresh->database_, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL");
  SQLite::Statement same(*database_, "SELECT 1 FROM sqlite_master WHERE name = ?1 AND sql = ?2");
  for (Query wanted(all); wanted.next();)
    if (!Query(same, wanted.text(0), wanted.text(1)).next())
      return fmt::format("its {} has changed since it was created", wanted.text(0));
  return {};
}

std::string Store::first_damage(Depth depth) {
  if (depth != Depth::schema && !damaged_page(depth).empty()) {
    // SQLite reports an unreadable page like a damaged one.
    expect_all_bytes();
    if (std::string damage = damaged_page(depth); !damage.empty()) return damage;
  }
  if (std::string damage = damaged_schema(); !damage.empty()) return damage;
  if (depth != Depth::full) return {};
  SQLite::Statement counts(*database_, miscounted_keys);
  if (Query wrong(counts); wrong.next())
    return fmt::format("its counts of key {} do not match its measurements", wrong.text(0));
  return {};
}

std::vector<std::string> Store::damages() {
  std::vector<std::string> found;
  const auto each = [&](const char* what, const std::string& sql, const auto& visit) {
    try {
      SQLite::Statement statement(*database_, sql);
      Query query(statement);
      while (query.next()) visit(query);
    } catch (const SQLite::Exception& error) {
      if (!is_damage(error)) throw;
      found.push_back(fmt::format("{}: {}", what, error.what()));
    }
  };
  each("pages", "PRAGMA integrity_check", [&](const Query& row) {
    if (std::string line = row.text(0); line != "ok")
      found.push_back("pages: " + page_damage(std::move(line)));
  });
  try {
    if (const std::string damage = damaged_schema(); !damage.empty()) found.push_back("tables: " + damage);
  } catch (const SQLite::Exception& error) {
    if (!is_damage(error)) throw;
    found.push_back(fmt::format("tables: {}", error.what()));
  }
  each("references", "PRAGMA foreign_key_check", [&](const Query& row) {
    found.push_back(fmt::format("references: row {} of {} refers to nothing in {}", row.integer(1),
                                row.text(0), row.text(2)));
  });
  each("binaries", "SELECT compile_key, digest, image FROM binaries ORDER BY compile_key",
       [&](const Query& row) {
         const std::string compile_key = row.text(0);
         if (digest_of_binary(compile_key, row.blob(2)) != row.text(1))
           found.push_back(fmt::format("{}{} does not match its bytes", damaged_binary, compile_key));
       });
  each("environments", "SELECT id, digest, json FROM environments ORDER BY id", [&](const Query& row) {
    if (digest({row.text(2)}) != row.text(1))
      found.push_back(
          fmt::format("environments: the digest of row {} does not match its text", row.integer(0)));
  });
  MetEnvironments met;
  each("measurements",
       fmt::format("SELECT {}, m.identity, m.id, k.name FROM {} ORDER BY m.id", measurement_columns(),
                   measurement_tables),
       [&](const Query& row) {
         if (!is_whole(row, met))
           found.push_back(fmt::format("measurements: row {} of key {} has changed since it was written",
                                       row.integer(identity_column + 1), row.text(identity_column + 2)));
       });
  each("counts", miscounted_keys, [&](const Query& row) {
    found.push_back(fmt::format("counts: the counts of key {} do not match its measurements", row.text(0)));
  });
  return found;
}

std::int64_t Store::remove_damaged_binaries() {
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  std::vector<std::int64_t> damaged;
  SQLite::Statement select(*database_, "SELECT rowid, compile_key, image, digest FROM binaries NOT INDEXED");
  for (Query row(select); row.next();)
    if (digest_of_binary(row.text(1), row.blob(2)) != row.text(3)) damaged.push_back(row.integer(0));
  SQLite::Statement remove(*database_, "DELETE FROM binaries WHERE rowid = ?1");
  for (const std::int64_t row : damaged) Query(remove, row).run();
  transaction.commit();
  return static_cast<std::int64_t>(damaged.size());
}

void Store::vacuum() {
  database_->exec("VACUUM");
  database_->exec("PRAGMA wal_checkpoint(TRUNCATE)");
}

void Store::checkpoint() noexcept {
  sqlite3_wal_checkpoint_v2(database_->getHandle(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
}

}  // namespace ce::cache
