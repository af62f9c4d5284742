/// \file
/// The part of Store for pins. Few databases have any, so the table is created with the first pin.

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Statement.h>
#include <SQLiteCpp/Transaction.h>

#include <optional>
#include <vector>

#include "cache/query.hpp"
#include "cache/store.hpp"

namespace ce::cache {
namespace {

// The table has texts instead of a key's row id: a key may be pinned before anything is measured, and prune removes
// keys.
constexpr const char* create_pins = R"sql(
CREATE TABLE IF NOT EXISTS pins (
  device     TEXT NOT NULL,
  problem    TEXT NOT NULL,
  config     TEXT NOT NULL,
  why        TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (device, problem)
) WITHOUT ROWID)sql";

// If two pins have equal times, the one with the greater text counts, so that databases can be merged in any order.
constexpr const char* put_pin = R"sql(
INSERT INTO pins (device, problem, config, why, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (device, problem) DO UPDATE SET
  config = excluded.config, why = excluded.why, created_at = excluded.created_at
WHERE (excluded.created_at, excluded.config, excluded.why) > (created_at, config, why))sql";

Pin read_pin(const Query& row) {
  return {.key = {.problem = row.text(1), .device = row.text(0)},
          .config = row.text(2),
          .why = row.text(3),
          .created_at = row.text(4)};
}

}  // namespace

bool Store::has_pins() {
  return Query(prepared("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'pins'")).next();
}

bool Store::insert_pin(const Pin& pin) {
  database_->exec(create_pins);
  Query(prepared(put_pin), pin.key.device, pin.key.problem, pin.config, pin.why, pin.created_at).run();
  return database_->getChanges() > 0;
}

bool Store::pin(const Pin& pin) {
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  const bool kept = insert_pin(pin);
  transaction.commit();
  return kept;
}

std::optional<Pin> Store::pin_of(const Key& key) {
  if (!has_pins()) return std::nullopt;
  Query row(prepared("SELECT device, problem, config, why, created_at FROM pins "
                     "WHERE device = ?1 AND problem = ?2 AND config <> ''"),
            key.device, key.problem);
  return row.next() ? std::optional(read_pin(row)) : std::nullopt;
}

std::vector<Pin> Store::pins() {
  std::vector<Pin> list;
  if (!has_pins()) return list;
  Query row(prepared("SELECT device, problem, config, why, created_at FROM pins ORDER BY device, problem"));
  while (row.next()) list.push_back(read_pin(row));
  return list;
}

}  // namespace ce::cache
