#include "cache/store.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include <algorithm>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/digest.hpp"
#include "base/in_order.hpp"
#include "base/log.hpp"
#include "base/time.hpp"
#include "cache/bulk_insert.hpp"
#include "cache/codec.hpp"
#include "cache/measurement_row.hpp"
#include "cache/not_readable.hpp"
#include "cache/query.hpp"
#include "cache/recognize.hpp"
#include "cache/schema.hpp"

namespace ce::cache {
namespace {

/// Selects rows of the key with row id ?1 and texts ?2 and ?3. The texts are not read from the tables: the identity
/// shows whether the row belongs to them. The rows are not sorted: SQLite would sort whole rows.
std::string select_of_key(std::string_view which) {
  return fmt::format(R"sql(
    SELECT {}, m.identity, m.id FROM measurements AS m JOIN environments AS e ON e.id = m.environment_id
    WHERE m.key_id = ?1 AND {})sql",
                     measurement_columns("?2", "?3"), which);
}

constexpr int id_column = identity_column + 1;

// Finds a key by its texts and, if they lead to none, by its name ?3: a row that one index has lost is in the other.
// Both are asked in one statement, since another process may add the key in between.
constexpr const char* select_key = R"sql(
  SELECT k.id, FALSE FROM keys AS k
  JOIN problems AS p ON p.id = k.problem_id
  JOIN device_models AS d ON d.id = k.device_model_id
  WHERE p.text = ?1 AND d.text = ?2
  UNION ALL
  SELECT k.id, TRUE FROM keys AS k INDEXED BY keys_by_name
  CROSS JOIN problems AS p NOT INDEXED ON p.id = k.problem_id
  CROSS JOIN device_models AS d NOT INDEXED ON d.id = k.device_model_id
  WHERE k.name = ?3 AND p.text = ?1 AND d.text = ?2)sql";

// The first config behind ?3 with templates ?2 that has a final, with its last measurement in its highest stage: one
// index lookup, however many there are.
std::string select_next_finalist(std::string_view condition) {
  return fmt::format(R"sql(
    SELECT m.id, m.config, m.stage, m.median_us, m.registers, m.created_at, m.rows FROM measurements AS m
    WHERE m.key_id = ?1 AND m.template_digest = ?2 AND m.config > ?3 AND m.outcome = 'measured' AND m.stage > 0
      AND m.median_us IS NOT NULL AND {}
    ORDER BY m.config, m.stage DESC, m.rows DESC, m.created_at DESC, m.id DESC LIMIT 1)sql",
                     condition);
}

constexpr const char* no_quarantine_later = R"sql(
  NOT EXISTS (SELECT 1 FROM measurements AS q INDEXED BY quarantines
              WHERE q.key_id = ?1 AND q.config = m.config AND q.template_digest = ?2
                AND q.outcome = 'quarantined' AND (q.created_at, q.id) > (m.created_at, m.id)))sql";

constexpr const char* select_last_quarantine = R"sql(
  SELECT created_at FROM measurements
  WHERE key_id = ?1 AND outcome = 'quarantined' ORDER BY created_at DESC LIMIT 1)sql";

// Whether there are measurements with templates whose digests are in the JSON array ?2.
constexpr const char* select_any = R"sql(
  SELECT 1 FROM measurements INDEXED BY measurements_by_config
  WHERE key_id = ?1 AND template_digest IN (SELECT value FROM JSON_EACH(?2)) LIMIT 1)sql";

constexpr const char* select_binary_names = "SELECT compile_key, compiler, name FROM binaries";
constexpr const char* select_binary = "SELECT image, digest FROM binaries WHERE compile_key = ?1";

/// A key. While this object lives, its read transaction keeps the database as it was.
class FoundKey {
 public:
  /// \throws SQLite::Exception(SQLITE_CORRUPT) if the key exists, but an index does not lead to it
  FoundKey(SQLite::Statement& select, const Key& key) : query_(select, key.problem, key.device, key.id()) {
    if (!query_.next()) return;
    id_ = query_.integer(0);
    if (query_.integer(1) != 0) throw SQLite::Exception("an index lacks a key", SQLITE_CORRUPT);
  }
  /// Its row id; 0 if there is none.
  [[nodiscard]] std::int64_t id() const { return id_; }

 private:
  Query query_;
  std::int64_t id_ = 0;
};

}  // namespace

Store::Store(std::unique_ptr<SQLite::Database> database)
    : database_(std::move(database)),
      select_of_key_(select_of_key("TRUE")),
      select_history_(select_of_key("(m.stage <> 0 OR m.outcome = 'quarantined')")),
      select_row_(select_of_key("m.id = ?4")),
      next_final_(select_next_finalist("TRUE")),
      next_finalist_(select_next_finalist(no_quarantine_later)) {
  for (const std::string_view sql :
       {std::string_view(select_of_key_), std::string_view(select_row_), std::string_view(next_final_),
        std::string_view(next_finalist_), std::string_view(select_last_quarantine),
        std::string_view(select_binary)})
    static_cast<void>(prepared(sql));
}

std::unique_ptr<Store> Store::in_memory() {
  auto database =
      std::make_unique<SQLite::Database>(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  database->exec("PRAGMA foreign_keys = ON");
  create_tables(*database);
  return std::make_unique<Store>(std::move(database));
}

Store::~Store() = default;

SQLite::Statement& Store::prepared(std::string_view sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    std::string text(sql);
    auto statement = std::make_unique<SQLite::Statement>(*database_, text);
    found = statements_.emplace(std::move(text), std::move(statement)).first;
  }
  return *found->second;
}

std::vector<std::string> Store::identities(const Key& key) {
  std::vector<std::string> list;
  const FoundKey found(prepared(select_key), key);
  Query query(prepared("SELECT identity FROM measurements WHERE key_id = ?1"), found.id());
  query.each([&] { list.push_back(query.text(0)); });
  return list;
}

KeyRows Store::history(const Key& key) {
  KeyRows rows = read(key, select_history_);
  const bool has_final = std::any_of(rows.rows().begin(), rows.rows().end(),
                                     [](const KeyRows::Row& row) { return row.measurement.stage > 0; });
  return has_final ? std::move(rows) : this->rows(key);
}

/// The results of `sql`, a select_next_finalist(); nothing if one of them is not later than `after`.
std::optional<std::vector<Finalist>> Store::finalists(const std::string& sql, std::int64_t key_id,
                                                      std::span<const std::string> digests,
                                                      std::string_view after) {
  SQLite::Statement& select_next = prepared(sql);
  std::vector<Finalist> list;
  for (const std::string& digest : digests)
    for (std::string before, config;; before = std::move(config)) {
      Query next(select_next, key_id, digest, before);
      if (!next.next()) break;
      if (!after.empty() && next.text(5) <= after) return std::nullopt;
      config = next.text(1);
      list.push_back({.config = config,
                      .template_digest = digest,
                      .stage = static_cast<int>(next.integer(2)),
                      .rows = next.integer(6),
                      .median_us = next.real(3),
                      .registers = static_cast<int>(next.integer(4)),
                      .row = next.integer(0),
                      .created_at = next.text(5)});
    }
  return list;
}

/// Quarantines usually precede the finals: then they need not be checked config by config.
std::vector<Finalist> Store::finalists(std::int64_t key_id, std::span<const std::string> digests) {
  std::string last_quarantine;
  if (Query last(prepared(select_last_quarantine), key_id); last.next()) last_quarantine = last.text(0);
  if (auto list = finalists(next_final_, key_id, digests, last_quarantine)) return *std::move(list);
  return finalists(next_finalist_, key_id, digests, {}).value();
}

std::optional<Measurement> Store::final_of(const Key& key, std::span<const std::string> digests,
                                           const ChooseFinalist& choose) {
  const FoundKey found(prepared(select_key), key);
  if (found.id() == 0) return std::nullopt;
  std::vector<Finalist> list = finalists(found.id(), digests);
  const Finalist* chosen = choose(list);
  if (chosen == nullptr) return std::nullopt;
  Query row(prepared(select_row_), found.id(), key.problem, key.device, chosen->row);
  if (!row.next())
    throw SQLite::Exception("an index names a measurement that does not exist", SQLITE_CORRUPT);
  MetEnvironments met;
  Measurement measurement = read_whole_measurement(row, met);
  if (measurement.config != chosen->config || measurement.template_digest != chosen->template_digest ||
      measurement.stage != chosen->stage || measurement.rows != chosen->rows ||
      measurement.median_us != chosen->median_us)
    throw SQLite::Exception("an index differs from the measurement that it names", SQLITE_CORRUPT);
  return measurement;
}

bool Store::has(const Key& key, std::span<const std::string> digests) {
  const FoundKey found(prepared(select_key), key);
  if (found.id() == 0) return false;
  return Query(prepared(select_any), found.id(), fmt::format("[\"{}\"]", fmt::join(digests, "\",\""))).next();
}

std::vector<KeySummary> Store::keys() {
  std::vector<KeySummary> list;
  Query query(prepared(R"sql(
    SELECT p.text, d.text, c.measurements, c.configs, c.quarantined, c.first_at, c.last_at
    FROM key_counts AS c
    JOIN keys AS k ON k.id = c.key_id
    JOIN problems AS p ON p.id = k.problem_id
    JOIN device_models AS d ON d.id = k.device_model_id
    ORDER BY d.text, p.text)sql"));
  while (query.next())
    list.push_back({.key = {.problem = query.text(0), .device = query.text(1)},
                    .measurements = query.integer(2),
                    .configs = query.integer(3),
                    .quarantined = query.integer(4),
                    .first_at = query.text(5),
                    .last_at = query.text(6)});
  return list;
}

std::vector<Key> Store::find(std::string_view prefix) {
  std::vector<Key> list;
  // A range instead of LIKE: it uses the index, and no character of the prefix has a meaning of its own.
  Query query(prepared(R"sql(
    SELECT p.text, d.text FROM keys AS k
    JOIN problems AS p ON p.id = k.problem_id
    JOIN device_models AS d ON d.id = k.device_model_id
    WHERE k.name >= ?1 AND k.name < ?1 || '~' ORDER BY k.name, k.id)sql"),
              prefix);
  while (query.next()) list.push_back({.problem = query.text(0), .device = query.text(1)});
  return list;
}

bool Store::insert_binary(const std::string& compile_key, std::span<const std::byte> image,
                          const BinaryInfo& info) {
  if (binary(compile_key)) return false;
  Query(prepared(R"sql(
          INSERT INTO binaries (compile_key, image, digest, compiler, name, created_at)
          VALUES (?1, ?2, ?3, ?4, ?5, ?6)
          ON CONFLICT (compile_key) DO UPDATE SET image = excluded.image, digest = excluded.digest,
            compiler = excluded.compiler, name = excluded.name, created_at = excluded.created_at)sql"),
        compile_key, image, digest_of_binary(compile_key, image), info.compiler, info.name, utc_now())
      .run();
  return true;
}

void Store::keep_binary(const std::string& compile_key, std::span<const std::byte> image,
                        const BinaryInfo& info) {
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  insert_binary(compile_key, image, info);
  transaction.commit();
}

void Store::keep_verified(std::span<const std::string> compile_keys, const std::string& machine) {
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  for (const std::string& compile_key : compile_keys)
    Query(prepared("INSERT OR IGNORE INTO verified (compile_key, machine, created_at) VALUES (?1, ?2, ?3)"),
          compile_key, machine, utc_now())
        .run();
  transaction.commit();
}

bool Store::is_verified(const std::string& compile_key, const std::string& machine) {
  return Query(prepared("SELECT 1 FROM verified WHERE compile_key = ?1 AND machine = ?2"), compile_key,
               machine)
      .next();
}

std::optional<Bytes> Store::binary(const std::string& compile_key) {
  Query query(prepared(select_binary), compile_key);
  if (!query.next()) return std::nullopt;
  Bytes image = query.blob(0);
  if (digest_of_binary(compile_key, image) != query.text(1)) {
    log_once(LogLevel::warning, fmt::format("the tuning database has a damaged copy of binary {}: ce ignores "
                                            "it, and replaces it when it compiles the binary again",
                                            compile_key));
    return std::nullopt;
  }
  return image;
}

std::int64_t Store::add(std::span<const Measurement> list) {
  const auto source = [&](const AddOne& add_one) {
    for (const Measurement& measurement : list) {
      const EncodedMeasurement encoded(measurement);
      add_one(encoded.view(), identity_of(measurement));
    }
  };
  return add(source, Triggers::on);
}

std::int64_t Store::add(const Source& source) { return add(source, Triggers::off); }

std::int64_t Store::add(const Source& source, Triggers triggers) {
  std::optional<BulkSettings> settings;
  if (triggers == Triggers::off) settings.emplace(*database_);
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  std::int64_t added = 0;
  {
    BulkInsert insert(*database_, triggers);
    source([&](const MeasurementView& measurement, std::string_view identity) {
      added += insert.add(measurement, identity);
    });
    insert.finish();
  }
  transaction.commit();
  return added;
}

/// Counts a key's rows, since a damaged page of an index can put some out of reach.
std::int64_t Store::expect_whole(std::int64_t key_id) {
  Query query(prepared(R"sql(
    SELECT measurements, (SELECT COUNT(*) FROM measurements AS m WHERE m.key_id = ?1)
    FROM key_counts WHERE key_id = ?1)sql"),
              key_id);
  if (!query.next() || query.integer(0) != query.integer(1))
    throw SQLite::Exception("some measurements of a key are not found", SQLITE_CORRUPT);
  return query.integer(0);
}

void Store::expect_all_listed() {
  Query query(prepared(R"sql(
    SELECT (SELECT COUNT(*) FROM measurements),
      (SELECT SUM(c.measurements) FROM key_counts AS c JOIN keys AS k ON k.id = c.key_id
       JOIN problems AS p ON p.id = k.problem_id JOIN device_models AS d ON d.id = k.device_model_id))sql"));
  if (!query.next() || query.integer(0) != query.integer(1))
    throw SQLite::Exception("some measurements have a key that is not found", SQLITE_CORRUPT);
}

KeyRows Store::rows(const Key& key) { return read(key, select_of_key_); }

KeyRows Store::read(const Key& key, const std::string& select) {
  KeyRows rows;
  const FoundKey found(prepared(select_key), key);
  if (found.id() == 0) return rows;
  const std::int64_t count = expect_whole(found.id());
  Query row(prepared(select), found.id(), key.problem, key.device);
  row.each([&] { rows.add(row, row.integer(id_column)); });
  if (&select == &select_of_key_ && std::ssize(rows.rows()) != count)
    throw SQLite::Exception("a measurement has no environment", SQLITE_CORRUPT);
  return rows;
}

std::vector<Store::Copied> Store::merge(std::span<Store* const> others, bool with_binaries, Triggers triggers,
                                        const CheckOne& check) {
  std::optional<BulkSettings> settings;
  if (triggers == Triggers::off) settings.emplace(*database_);
  std::vector<Copied> all;
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  std::optional<BulkInsert> insert(std::in_place, *database_, triggers);
  for (Store* other : others) {
    const std::size_t number = all.size();
    const auto read = [&](const auto& what) {
      try {
        return what();
      } catch (const SQLite::Exception& error) {
        throw NotReadable(error, number);
      }
    };
    Copied copied;
    const SQLite::Transaction snapshot(*other->database_);
    read([&] { other->expect_all_listed(); });
    const std::vector<KeySummary> keys = read([&] { return other->keys(); });
    std::mutex reading;
    const auto rows_of = [&](std::size_t i) {
      std::unique_lock lock(reading);
      KeyRows rows = read([&] { return other->rows(keys[i].key); });
      lock.unlock();
      read([&] { rows.expect_whole(); });
      if (check)
        for (const KeyRows::Row& row : rows.rows()) check(number, row.measurement);
      rows.sort();
      return rows;
    };
    const auto add = [&](std::size_t, const KeyRows& rows) {
      for (const KeyRows::Row& row : rows.rows())
        copied.measurements += insert->add(row.measurement, row.identity);
    };
    make_in_order(keys.size(), rows_of, add, triggers == Triggers::off ? threads_beside_a_reader() : 0);
    if (with_binaries) {
      Query query(other->prepared(select_binary_names));
      while (read([&] { return query.next(); }))
        if (const auto image = read([&] { return other->binary(query.text(0)); }))
          copied.binaries +=
              insert_binary(query.text(0), *image, {.compiler = query.text(1), .name = query.text(2)});
    }
    for (const Pin& pin : read([&] { return other->pins(); })) insert_pin(pin);
    all.push_back(copied);
  }
  insert->finish();
  insert.reset();
  transaction.commit();
  return all;
}

void Store::end_draft() { database_->exec("PRAGMA journal_mode = WAL"); }

Store::Counts Store::counts() {
  Query query(prepared("SELECT (SELECT COUNT(*) FROM measurements), (SELECT COUNT(*) FROM binaries)"));
  query.next();
  return {.measurements = query.integer(0), .binaries = query.integer(1)};
}

void Store::expect_ours(const std::filesystem::path& path) {
  static_cast<void>(require_ours(*database_, path));
}

int Store::schema_version() { return schema_of(*database_); }

std::string Store::journal_mode() { return database_->execAndGet("PRAGMA journal_mode").getString(); }

}  // namespace ce::cache
