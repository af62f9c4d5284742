#include "cache/bulk_insert.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <vector>

#include "base/digest.hpp"
#include "cache/codec.hpp"
#include "cache/query.hpp"

namespace ce::cache {
namespace {

// Computed from indexes alone. The times are those of the added measurements.
constexpr const char* count_key = R"sql(
  INSERT INTO key_counts (key_id, measurements, configs, quarantined, first_at, last_at) VALUES (?1, ?4,
    (SELECT COUNT(*) FROM (SELECT DISTINCT config FROM measurements WHERE key_id = ?1)),
    (SELECT COUNT(*) FROM (
      SELECT DISTINCT config FROM measurements
      WHERE key_id = ?1 AND outcome = 'quarantined')), ?2, ?3)
  ON CONFLICT (key_id) DO UPDATE SET
    measurements = excluded.measurements, configs = excluded.configs, quarantined = excluded.quarantined,
    first_at = MIN(first_at, excluded.first_at), last_at = MAX(last_at, excluded.last_at))sql";

constexpr const char* select_counted = "SELECT measurements FROM key_counts WHERE key_id = ?1";
constexpr const char* select_found = "SELECT COUNT(*) FROM measurements WHERE key_id = ?1";

constexpr const char* insert_measurement = R"sql(
  INSERT INTO measurements (key_id, config, template_digest, compile_key, outcome, reason, stage, rows, bytes,
    samples_us, median_us, spread, registers, local_bytes, environment_id, created_at, identity)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17))sql";
/// The number that the statement selects; 0 if it selects none.
std::int64_t number_of(SQLite::Statement& select, const auto&... values) {
  Query query(select, values...);
  return query.next() ? query.integer(0) : 0;
}

}  // namespace

BulkSettings::BulkSettings(SQLite::Database& database)
    : database_(database),
      cache_size_(database.execAndGet("PRAGMA cache_size").getInt()),
      foreign_keys_(database.execAndGet("PRAGMA foreign_keys").getInt()) {
  database_.exec("PRAGMA cache_size = -65536");  // kilobytes, at most
  database_.exec("PRAGMA foreign_keys = OFF");
}

BulkSettings::~BulkSettings() {
  static_cast<void>(database_.tryExec(fmt::format("PRAGMA cache_size = {}", cache_size_)));
  static_cast<void>(database_.tryExec(fmt::format("PRAGMA foreign_keys = {}", foreign_keys_)));
}

BulkInsert::BulkInsert(SQLite::Database& database, Triggers triggers)
    : database_(database),
      triggers_(triggers),
      insert_problem_(database, "INSERT INTO problems (text) VALUES (?1)"),
      select_problem_(database, "SELECT id FROM problems WHERE text = ?1"),
      insert_device_(database, "INSERT INTO device_models (text) VALUES (?1)"),
      select_device_(database, "SELECT id FROM device_models WHERE text = ?1"),
      insert_key_(database, "INSERT INTO keys (name, problem_id, device_model_id) VALUES (?1, ?2, ?3)"),
      select_key_(database, "SELECT id FROM keys WHERE problem_id = ?1 AND device_model_id = ?2"),
      insert_environment_(database, "INSERT INTO environments (digest, json) VALUES (?1, ?2)"),
      select_environment_(database, "SELECT id, json FROM environments WHERE digest = ?1"),
      insert_measurement_(database, prepare_measurements()) {
  if (triggers_ == Triggers::off)
    sqlite3_db_config(database_.getHandle(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
}

BulkInsert::~BulkInsert() {
  if (triggers_ == Triggers::off)
    sqlite3_db_config(database_.getHandle(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 1, nullptr);
}

std::string BulkInsert::prepare_measurements() {
  SQLite::Statement any(database_, "SELECT 1 FROM measurements LIMIT 1");
  if (triggers_ == Triggers::on || any.executeStep())
    return std::string(insert_measurement) + " ON CONFLICT (identity) DO NOTHING";
  std::vector<std::string> names;
  {
    SQLite::Statement select(database_,
                             "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND "
                             "tbl_name = 'measurements' AND sql IS NOT NULL ORDER BY rowid");
    for (Query index(select); index.next();) {
      names.push_back(index.text(0));
      indexes_.push_back(index.text(1));
    }
  }
  for (const std::string& name : names) database_.exec("DROP INDEX " + name);
  return insert_measurement;
}

bool BulkInsert::is_new(std::string_view identity) {
  if (indexes_.empty()) return true;  // the unique index detects duplicates
  constexpr std::size_t half = 16;
  const auto number = [&](std::size_t first) {
    std::uint64_t value = 0;
    const char *begin = identity.data() + first, *end = begin + half;
    if (identity.size() != 2 * half || std::from_chars(begin, end, value, 16).ptr != end)
      throw SQLite::Exception("an identity is not a digest", SQLITE_CONSTRAINT);
    return value;
  };
  return last_count_->identities.insert({number(0), number(half)}).second;
}

std::int64_t BulkInsert::id_of_text(SQLite::Statement& insert, SQLite::Statement& select,
                                    const std::string& text) {
  if (const std::int64_t id = number_of(select, text); id != 0) return id;
  Query(insert, text).run();
  return database_.getLastInsertRowid();
}

void BulkInsert::find_key(const MeasurementView& m) {
  if (last_key_id_ != 0 && m.problem == last_key_.problem && m.device == last_key_.device) return;
  last_key_id_ = 0;
  last_key_ = {.problem = std::string(m.problem), .device = std::string(m.device)};
  const std::int64_t problem = id_of_text(insert_problem_, select_problem_, last_key_.problem);
  const std::int64_t device = id_of_text(insert_device_, select_device_, last_key_.device);
  std::int64_t id = number_of(select_key_, problem, device);
  if (id == 0) {
    Query(insert_key_, last_key_.id(), problem, device).run();
    id = database_.getLastInsertRowid();
  }
  last_key_id_ = id;
  last_count_ = &counts_[id];
}

std::int64_t BulkInsert::environment_id(std::string_view text) {
  if (last_environment_id_ != 0 && text == last_environment_) return last_environment_id_;
  last_environment_id_ = 0;
  last_environment_ = text;
  const std::string name = digest({text});
  std::int64_t id = 0;
  if (Query known(select_environment_, name); known.next()) {
    if (known.text_view(1) != text)
      throw SQLite::Exception("an environment does not match its digest", SQLITE_CONSTRAINT);
    id = known.integer(0);
  } else {
    Query(insert_environment_, name, last_environment_).run();
    id = database_.getLastInsertRowid();
  }
  last_environment_id_ = id;
  return id;
}

bool BulkInsert::add(const MeasurementView& m, std::string_view identity) {
  find_key(m);
  if (!is_new(identity)) return false;
  texts_.config = m.config;
  texts_.template_digest = m.template_digest;
  texts_.compile_key = m.compile_key;
  texts_.outcome = m.outcome;
  texts_.reason = m.reason;
  texts_.created_at = m.created_at;
  texts_.identity = identity;
  Query(insert_measurement_, last_key_id_, texts_.config, texts_.template_digest, texts_.compile_key,
        texts_.outcome, texts_.reason, m.stage, m.rows, m.bytes, m.samples, m.median_us, m.spread,
        m.registers, m.local_bytes, environment_id(m.environment), texts_.created_at, texts_.identity)
      .run();
  return count(texts_.created_at);
}

/// Keys are also counted if none of their measurements was new: finish() must notice rows that are out of reach.
bool BulkInsert::count(const std::string& created_at) {
  if (database_.getChanges() == 0) return false;
  Count& count = *last_count_;
  if (count.added++ == 0 || created_at < count.first_at) count.first_at = created_at;
  count.last_at = std::max(count.last_at, created_at);
  return true;
}

void BulkInsert::make_indexes() {
  for (auto& [key, count] : counts_) count.identities = {};
  // SQLite sorts in runs as large as its page cache; runs that fit a processor's cache are sorted fastest.
  const int pages = database_.execAndGet("PRAGMA cache_size").getInt();
  database_.exec("PRAGMA cache_size = -4096");
  for (const std::string& index : indexes_) database_.exec(index);
  database_.exec(fmt::format("PRAGMA cache_size = {}", pages));
}

void BulkInsert::finish() {
  if (!indexes_.empty()) make_indexes();
  const bool counts = triggers_ == Triggers::off;
  SQLite::Statement counted(database_, select_counted), found(database_, select_found),
      counting(database_, count_key);
  for (const auto& [key, count] : counts_) {
    const std::int64_t measurements = number_of(found, key);
    if (measurements != number_of(counted, key) + (counts ? count.added : 0))
      throw SQLite::Exception("not all measurements of a key are found", SQLITE_CORRUPT);
    if (counts && count.added > 0) Query(counting, key, count.first_at, count.last_at, measurements).run();
  }
}

}  // namespace ce::cache
