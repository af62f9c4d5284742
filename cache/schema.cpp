#include "cache/schema.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/digest.hpp"
#include "cache/codec.hpp"
#include "cache/file_system.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

constexpr const char* version_1 = R"sql(
CREATE TABLE device_models (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
);

CREATE TABLE problems (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
);

-- What one answer is good for. The name is how a person calls it: 12 hexadecimal digits, unique in
-- practice but not by rule.
CREATE TABLE keys (
  id              INTEGER PRIMARY KEY,
  name            TEXT NOT NULL,
  problem_id      INTEGER NOT NULL REFERENCES problems (id),
  device_model_id INTEGER NOT NULL REFERENCES device_models (id),
  UNIQUE (problem_id, device_model_id)
);
CREATE INDEX keys_by_name ON keys (name);

-- What may have influenced measurements: one JSON object of names and values, shared by all that had it.
CREATE TABLE environments (
  id     INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  json   TEXT NOT NULL
);

-- The digest tells damage of the image. Binaries may go at any time, so measurements do not reference them.
CREATE TABLE binaries (
  compile_key TEXT PRIMARY KEY NOT NULL,
  image       BLOB NOT NULL,
  digest      TEXT NOT NULL,
  compiler    TEXT NOT NULL,
  name        TEXT NOT NULL,
  created_at  TEXT NOT NULL
);

-- Append-only. samples_us holds 32-bit floats, least significant byte first; a figure that is not a
-- number is NULL.
CREATE TABLE measurements (
  id              INTEGER PRIMARY KEY,
  key_id          INTEGER NOT NULL REFERENCES keys (id),
  config          TEXT NOT NULL,
  template_digest TEXT NOT NULL,
  compile_key     TEXT NOT NULL,
  outcome         TEXT NOT NULL CHECK (outcome IN ('measured', 'quarantined')),
  reason          TEXT NOT NULL,
  stage           INTEGER NOT NULL,
  rows            INTEGER NOT NULL,
  bytes           INTEGER NOT NULL,
  samples_us      BLOB NOT NULL,
  median_us       REAL,
  spread          REAL,
  registers       INTEGER NOT NULL,
  local_bytes     INTEGER NOT NULL,
  environment_id     INTEGER NOT NULL REFERENCES environments (id),
  created_at      TEXT NOT NULL
);
CREATE INDEX measurements_by_key ON measurements (key_id, created_at);
CREATE INDEX quarantines ON measurements (key_id, config, template_digest) WHERE outcome = 'quarantined';

CREATE TRIGGER measurements_refuse_update BEFORE UPDATE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;
CREATE TRIGGER measurements_refuse_delete BEFORE DELETE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;
-- INSERT OR REPLACE deletes the old row without asking the trigger above.
CREATE TRIGGER measurements_refuse_replace BEFORE INSERT ON measurements
WHEN EXISTS (SELECT 1 FROM measurements WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;
CREATE TRIGGER environments_refuse_update BEFORE UPDATE ON environments
BEGIN SELECT RAISE(ABORT, 'environments are append-only'); END;

-- For people: for each key the fastest median of its highest stage, of configs never quarantined under the
-- same templates. It cannot know which templates are current, so what ce serves is decided in ce.
CREATE VIEW winners AS
WITH candidates AS (
  SELECT m.*, MAX(m.stage) OVER (PARTITION BY m.key_id) AS highest_stage
  FROM measurements AS m
  WHERE m.outcome = 'measured' AND m.median_us IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM measurements AS q
                    WHERE q.key_id = m.key_id AND q.config = m.config
                      AND q.template_digest = m.template_digest AND q.outcome = 'quarantined')
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY key_id ORDER BY median_us, id) AS place
  FROM candidates WHERE stage = highest_stage
)
SELECT k.name AS key, d.text AS device, p.text AS problem, r.config, r.stage, r.median_us, r.spread,
       ROUND(r.bytes / r.median_us / 1000.0, 1) AS gigabytes_per_second, r.rows, r.bytes,
       r.template_digest, r.created_at
FROM ranked AS r
JOIN keys AS k ON k.id = r.key_id
JOIN problems AS p ON p.id = k.problem_id
JOIN device_models AS d ON d.id = k.device_model_id
WHERE r.place = 1
ORDER BY d.text, p.text;

-- For people: every measurement in the order of time, with its texts in full.
CREATE VIEW history AS
SELECT m.created_at, k.name AS key, d.text AS device, p.text AS problem, m.config, m.outcome, m.reason,
       m.stage, m.rows, m.bytes, LENGTH(m.samples_us) / 4 AS samples, m.median_us, m.spread,
       m.registers, m.local_bytes, m.template_digest, m.compile_key, e.json AS environment
FROM measurements AS m
JOIN keys AS k ON k.id = m.key_id
JOIN problems AS p ON p.id = k.problem_id
JOIN device_models AS d ON d.id = k.device_model_id
JOIN environments AS e ON e.id = m.environment_id
ORDER BY m.created_at, m.id;
)sql";

// The identity of a measurement is the digest of all that it says, so that databases can be merged, and
// merged again, without a measurement twice. ce_identity() is of this program; see add_functions().
constexpr const char* version_2 = R"sql(
DROP TRIGGER measurements_refuse_update;
DROP TRIGGER measurements_refuse_delete;

ALTER TABLE measurements ADD COLUMN identity TEXT NOT NULL DEFAULT '';
UPDATE measurements SET identity =
  (SELECT ce_identity(p.text, d.text, config, template_digest, compile_key, outcome, reason, stage, rows,
                      bytes, samples_us, median_us, spread, registers, local_bytes, e.json, created_at)
   FROM keys AS k
   JOIN problems AS p ON p.id = k.problem_id
   JOIN device_models AS d ON d.id = k.device_model_id
   JOIN environments AS e ON e.id = environment_id
   WHERE k.id = key_id);
DELETE FROM measurements WHERE id NOT IN (SELECT MIN(id) FROM measurements GROUP BY identity);
CREATE UNIQUE INDEX measurements_by_identity ON measurements (identity);

CREATE TRIGGER measurements_refuse_update BEFORE UPDATE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;
CREATE TRIGGER measurements_refuse_delete BEFORE DELETE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;
)sql";

// What a lookup asks for lies side by side in an index: of each key and templates, the finals of each config, the one
// that counts first. What a list of all keys asks for is counted as measurements come.
constexpr const char* version_3 = R"sql(
CREATE INDEX finals ON measurements
  (key_id, template_digest, config, stage DESC, created_at DESC, id DESC, median_us, registers, outcome)
  WHERE outcome = 'measured' AND stage > 0;
DROP INDEX measurements_by_key;
CREATE INDEX measurements_by_config ON measurements (key_id, config);

CREATE TABLE key_counts (
  key_id       INTEGER PRIMARY KEY REFERENCES keys (id),
  measurements INTEGER NOT NULL,
  configs      INTEGER NOT NULL,
  quarantined  INTEGER NOT NULL,
  first_at     TEXT NOT NULL,
  last_at      TEXT NOT NULL
);

-- What key_counts must say.
CREATE VIEW counted_keys AS
SELECT key_id, COUNT(*) AS measurements, COUNT(DISTINCT config) AS configs,
       COUNT(DISTINCT CASE WHEN outcome = 'quarantined' THEN config END) AS quarantined,
       MIN(created_at) AS first_at, MAX(created_at) AS last_at
FROM measurements GROUP BY key_id;

INSERT INTO key_counts SELECT * FROM counted_keys;

CREATE TRIGGER measurements_count AFTER INSERT ON measurements
BEGIN
  INSERT INTO key_counts
  VALUES (NEW.key_id, 1, 1, NEW.outcome = 'quarantined', NEW.created_at, NEW.created_at)
  ON CONFLICT (key_id) DO UPDATE SET
    measurements = measurements + 1,
    configs = configs + NOT EXISTS (
      SELECT 1 FROM measurements
      WHERE key_id = NEW.key_id AND config = NEW.config AND id <> NEW.id),
    quarantined = quarantined + (NEW.outcome = 'quarantined' AND NOT EXISTS (
      SELECT 1 FROM measurements
      WHERE key_id = NEW.key_id AND config = NEW.config AND outcome = 'quarantined' AND id <> NEW.id)),
    first_at = MIN(first_at, excluded.first_at),
    last_at = MAX(last_at, excluded.last_at);
END;

-- For people: configs that became slower from one population to the next, by medians alone. A population is what one
-- config was timed with by the same driver, toolkit, ce and templates on as many rows, in finals and checks.
CREATE VIEW regressions AS
WITH runs AS (
  SELECT m.key_id, m.config, m.rows, m.template_digest AS templates, m.median_us, m.created_at,
         COALESCE(JSON_EXTRACT(e.json, '$.driver'), JSON_EXTRACT(e.json, '$.kernel'), '-') AS driver,
         COALESCE(JSON_EXTRACT(e.json, '$.nvrtc'), JSON_EXTRACT(e.json, '$.compiler'), '-') AS toolkit,
         COALESCE(JSON_EXTRACT(e.json, '$.ce'), '-') AS ce
  FROM measurements AS m
  JOIN environments AS e ON e.id = m.environment_id
  WHERE m.outcome = 'measured' AND m.stage <> 0 AND m.median_us > 0
), placed AS (
  SELECT *, COUNT(*) OVER population AS runs, MIN(created_at) OVER population AS first_at,
         ROW_NUMBER() OVER (population ORDER BY median_us) AS place
  FROM runs WINDOW population AS (PARTITION BY key_id, config, rows, templates, driver, toolkit, ce)
), populations AS (
  SELECT key_id, config, rows, templates, driver, toolkit, ce, runs, first_at, AVG(median_us) AS median_us
  FROM placed WHERE place IN ((runs + 1) / 2, (runs + 2) / 2)
  GROUP BY key_id, config, rows, templates, driver, toolkit, ce
), pairs AS (
  SELECT *, LAG(median_us) OVER ordered AS median_before_us, LAG(runs) OVER ordered AS runs_before,
         LAG(templates) OVER ordered AS templates_before, LAG(driver) OVER ordered AS driver_before,
         LAG(toolkit) OVER ordered AS toolkit_before, LAG(ce) OVER ordered AS ce_before
  FROM populations WINDOW ordered AS (PARTITION BY key_id, config, rows ORDER BY first_at)
)
SELECT ROUND(c.median_us / c.median_before_us, 3) AS ratio, k.name AS key, d.text AS device, p.text AS problem,
       c.config, c.first_at AS since, c.median_before_us, c.median_us, c.runs_before, c.runs,
       TRIM(IIF(c.driver <> c.driver_before, 'driver ' || c.driver_before || ' -> ' || c.driver || '  ', '') ||
            IIF(c.toolkit <> c.toolkit_before, 'toolkit ' || c.toolkit_before || ' -> ' || c.toolkit || '  ', '') ||
            IIF(c.ce <> c.ce_before, 'ce ' || c.ce_before || ' -> ' || c.ce || '  ', '') ||
            IIF(c.templates <> c.templates_before, 'templates', '')) AS changed
FROM pairs AS c
JOIN keys AS k ON k.id = c.key_id
JOIN problems AS p ON p.id = k.problem_id
JOIN device_models AS d ON d.id = k.device_model_id
WHERE c.median_us > c.median_before_us
ORDER BY ratio DESC, c.first_at;
)sql";

// Each version from here on adds a row to schema_versions: a number in the header that is another one is damage. The
// first index tells at once that no quarantine of a key came after its finals, the second one whether anything was
// measured with templates of today.
constexpr const char* version_4 = R"sql(
CREATE TABLE schema_versions (
  version    INTEGER PRIMARY KEY,
  created_at TEXT NOT NULL DEFAULT (STRFTIME('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
INSERT INTO schema_versions (version) VALUES (4);

CREATE INDEX quarantines_by_time ON measurements (key_id, created_at) WHERE outcome = 'quarantined';
DROP INDEX measurements_by_config;
CREATE INDEX measurements_by_config ON measurements (key_id, config, template_digest);
)sql";

// Times of different numbers of rows cannot be held against each other: a lookup asks for the rows, too.
constexpr const char* version_5 = R"sql(
INSERT INTO schema_versions (version) VALUES (5);

DROP INDEX finals;
CREATE INDEX finals ON measurements
  (key_id, template_digest, config, stage DESC, created_at DESC, id DESC, rows, median_us, registers, outcome)
  WHERE outcome = 'measured' AND stage > 0;

-- For people: for each key the fastest median of its highest stage and most rows, of what was measured last of each
-- config, of those never quarantined under the same templates. It cannot know which templates are current, so what ce
-- serves is decided in ce.
DROP VIEW winners;
CREATE VIEW winners AS
WITH candidates AS (
  SELECT m.*, MAX(m.stage) OVER (PARTITION BY m.key_id) AS highest_stage,
         ROW_NUMBER() OVER (PARTITION BY m.key_id, m.config, m.template_digest, m.stage
                            ORDER BY m.created_at DESC, m.id DESC) AS age
  FROM measurements AS m
  WHERE m.outcome = 'measured' AND m.median_us IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM measurements AS q
                    WHERE q.key_id = m.key_id AND q.config = m.config
                      AND q.template_digest = m.template_digest AND q.outcome = 'quarantined')
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY key_id ORDER BY rows DESC, median_us, id) AS place
  FROM candidates WHERE stage = highest_stage AND age = 1
)
SELECT k.name AS key, d.text AS device, p.text AS problem, r.config, r.stage, r.median_us, r.spread,
       ROUND(r.bytes / r.median_us / 1000.0, 1) AS gigabytes_per_second, r.rows, r.bytes,
       r.template_digest, r.created_at
FROM ranked AS r
JOIN keys AS k ON k.id = r.key_id
JOIN problems AS p ON p.id = k.problem_id
JOIN device_models AS d ON d.id = k.device_model_id
WHERE r.place = 1
ORDER BY d.text, p.text;
)sql";

// Nor can those of one config, which may have been timed with fewer rows since.
constexpr const char* version_6 = R"sql(
INSERT INTO schema_versions (version) VALUES (6);

DROP INDEX finals;
CREATE INDEX finals ON measurements
  (key_id, template_digest, config, stage DESC, rows DESC, created_at DESC, id DESC, median_us, registers, outcome)
  WHERE outcome = 'measured' AND stage > 0;

-- For people: for each key the fastest median of its highest stage and most rows, of each config that with the most
-- rows, the last of these, of those never quarantined under the same templates. It cannot know which templates are
-- current, so what ce serves is decided in ce.
DROP VIEW winners;
CREATE VIEW winners AS
WITH candidates AS (
  SELECT m.*, MAX(m.stage) OVER (PARTITION BY m.key_id) AS highest_stage,
         ROW_NUMBER() OVER (PARTITION BY m.key_id, m.config, m.template_digest, m.stage
                            ORDER BY m.rows DESC, m.created_at DESC, m.id DESC) AS age
  FROM measurements AS m
  WHERE m.outcome = 'measured' AND m.median_us IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM measurements AS q
                    WHERE q.key_id = m.key_id AND q.config = m.config
                      AND q.template_digest = m.template_digest AND q.outcome = 'quarantined')
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY key_id ORDER BY rows DESC, median_us, id) AS place
  FROM candidates WHERE stage = highest_stage AND age = 1
)
SELECT k.name AS key, d.text AS device, p.text AS problem, r.config, r.stage, r.median_us, r.spread,
       ROUND(r.bytes / r.median_us / 1000.0, 1) AS gigabytes_per_second, r.rows, r.bytes,
       r.template_digest, r.created_at
FROM ranked AS r
JOIN keys AS k ON k.id = r.key_id
JOIN problems AS p ON p.id = k.problem_id
JOIN device_models AS d ON d.id = k.device_model_id
WHERE r.place = 1
ORDER BY d.text, p.text;
)sql";

// The digest of a binary was of its image alone: an index that is damaged led to another one, whose digest was right.
constexpr const char* version_7 = R"sql(
INSERT INTO schema_versions (version) VALUES (7);

DELETE FROM binaries WHERE digest <> ce_digest(image);
UPDATE binaries SET digest = ce_digest(compile_key, image);
)sql";

// What a measurement was made under stays, as it does itself.
constexpr const char* version_8 = R"sql(
INSERT INTO schema_versions (version) VALUES (8);

CREATE TRIGGER environments_refuse_delete BEFORE DELETE ON environments
BEGIN SELECT RAISE(ABORT, 'environments are append-only'); END;
CREATE TRIGGER environments_refuse_replace BEFORE INSERT ON environments
WHEN EXISTS (SELECT 1 FROM environments WHERE id = NEW.id OR (digest = NEW.digest AND json <> NEW.json))
BEGIN SELECT RAISE(ABORT, 'environments are append-only'); END;
)sql";

// Medians of different finals cannot be held against each other: they may be of another GPU, or of another day.
constexpr const char* version_9 = R"sql(
INSERT INTO schema_versions (version) VALUES (9);

-- For people: for each key the fastest median of its last final with the most rows, where there is one. It cannot know
-- which templates are current, so what ce serves is decided in ce.
DROP VIEW winners;
CREATE VIEW winners AS
WITH candidates AS (
  SELECT m.*, MAX(m.stage) OVER (PARTITION BY m.key_id) AS highest_stage,
         ROW_NUMBER() OVER (PARTITION BY m.key_id, m.config, m.template_digest, m.stage
                            ORDER BY m.rows DESC, m.created_at DESC, m.id DESC) AS age
  FROM measurements AS m
  WHERE m.outcome = 'measured' AND m.median_us IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM measurements AS q
                    WHERE q.key_id = m.key_id AND q.config = m.config
                      AND q.template_digest = m.template_digest AND q.outcome = 'quarantined')
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY key_id
                               ORDER BY rows DESC, IIF(stage > 0, created_at, NULL) DESC, median_us, id) AS place
  FROM candidates WHERE stage = highest_stage AND age = 1
)
SELECT k.name AS key, d.text AS device, p.text AS problem, r.config, r.stage, r.median_us, r.spread,
       ROUND(r.bytes / r.median_us / 1000.0, 1) AS gigabytes_per_second, r.rows, r.bytes,
       r.template_digest, r.created_at
FROM ranked AS r
JOIN keys AS k ON k.id = r.key_id
JOIN problems AS p ON p.id = k.problem_id
JOIN device_models AS d ON d.id = k.device_model_id
WHERE r.place = 1
ORDER BY d.text, p.text;
)sql";

// Which kernels a machine found right: what came from elsewhere is verified once before it serves.
constexpr const char* version_10 = R"sql(
INSERT INTO schema_versions (version) VALUES (10);

-- The machine is the uuid of a GPU, or the name of a host. Rows may go at any time.
CREATE TABLE verified (
  compile_key TEXT NOT NULL,
  machine     TEXT NOT NULL,
  created_at  TEXT NOT NULL,
  PRIMARY KEY (compile_key, machine)
) WITHOUT ROWID;
)sql";

constexpr std::array steps_of_all_versions{version_1, version_2, version_3, version_4, version_5,
                                           version_6, version_7, version_8, version_9, version_10};

/// Also of a blob: its bytes.
std::string text_of(sqlite3_value* value) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  return text == nullptr ? "" : std::string(text, static_cast<std::size_t>(sqlite3_value_bytes(value)));
}

double real_of(sqlite3_value* value) {
  return sqlite3_value_type(value) == SQLITE_NULL ? std::numeric_limits<double>::quiet_NaN()
                                                  : sqlite3_value_double(value);
}

/// An environment that cannot be read is kept as its text: it must not keep a database from being opened.
std::map<std::string, std::string> environment_in(const std::string& text) {
  try {
    return decode_environment(text);
  } catch (const std::exception&) {
    return {{"unreadable", text}};
  }
}

/// Of the columns of a measurement, as the texts above pass them.
std::string identity_of_values(std::span<sqlite3_value*> values) {
  const auto text = [&](std::size_t index) { return text_of(values[index]); };
  const auto integer = [&](std::size_t index) { return sqlite3_value_int64(values[index]); };
  const auto* samples = static_cast<const std::byte*>(sqlite3_value_blob(values[10]));
  return identity_of(
      {.key = {.problem = text(0), .device = text(1)},
       .config = text(2),
       .template_digest = text(3),
       .compile_key = text(4),
       .outcome = text(5) == name(Outcome::measured) ? Outcome::measured : Outcome::quarantined,
       .reason = text(6),
       .stage = static_cast<int>(integer(7)),
       .rows = integer(8),
       .bytes = integer(9),
       .samples_us = decode_samples({samples, static_cast<std::size_t>(sqlite3_value_bytes(values[10]))}),
       .median_us = real_of(values[11]),
       .spread = real_of(values[12]),
       .registers = static_cast<int>(integer(13)),
       .local_bytes = static_cast<int>(integer(14)),
       .environment = environment_in(text(15)),
       .created_at = text(16)});
}

constexpr int identity_values = 17;

/// Of one value, or of two.
std::string digest_of_values(std::span<sqlite3_value*> values) {
  return values.size() == 1 ? digest({text_of(values[0])}) : digest({text_of(values[0]), text_of(values[1])});
}

/// As SQLite calls a function that gives a text.
template <std::string (*text_of_values)(std::span<sqlite3_value*>)>
void call(sqlite3_context* context, int count, sqlite3_value** values) {
  try {
    const std::string text = text_of_values({values, static_cast<std::size_t>(count)});
    sqlite3_result_text(context, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  } catch (const std::exception& error) {  // no exception may pass through SQLite
    sqlite3_result_error(context, error.what(), -1);
  }
}

int user_version(SQLite::Database& database) { return database.execAndGet("PRAGMA user_version").getInt(); }

/// Whether a database has the number of its header, of a version that adds a row, in its table, too.
bool is_of_version(SQLite::Database& database, int version) {
  return database.tableExists("schema_versions") &&
         database.execAndGet("SELECT MAX(version) FROM schema_versions").getInt() == version;
}

constexpr std::size_t id_at = 68, shortest_header = id_at + 4;

/// \param header_at  where its header begins, if it does
bool is_of_ours(std::string_view bytes, std::size_t header_at) {
  return (bytes.size() > header_at + id_at && bytes.substr(header_at + id_at).starts_with("ceDB")) ||
         bytes.find("CREATE TABLE device_models") != std::string_view::npos;
}

/// Of a database whose tables are not in its file yet. Its log begins with what created them, page 1 in front.
bool log_is_of_ours(const std::filesystem::path& database) {
  constexpr std::size_t bytes_of_first_commit = 1 << 17, header_at = 32 + 24;
  // SQLite has no locks on a log that closing it could drop.
  std::ifstream log(real_path(database).string() + "-wal", std::ios::binary);
  std::string bytes(bytes_of_first_commit, '\0');
  log.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(log.gcount()));
  return is_of_ours(bytes, header_at);
}

}  // namespace

std::string beginning_of(const std::filesystem::path& path, std::size_t most) {
  const SQLite::Database database(path.string(), SQLite::OPEN_READONLY);
  sqlite3_file* file = nullptr;
  sqlite3_file_control(database.getHandle(), "main", SQLITE_FCNTL_FILE_POINTER, static_cast<void*>(&file));
  sqlite3_int64 size = 0;
  const auto expect = [](int result) {
    if (result != SQLITE_OK) throw SQLite::Exception("cannot read the beginning of a file", result);
  };
  expect(file == nullptr || file->pMethods == nullptr ? SQLITE_CANTOPEN : SQLITE_OK);
  expect(file->pMethods->xFileSize(file, &size));
  std::string bytes(std::min(most, static_cast<std::size_t>(size)), '\0');
  expect(file->pMethods->xRead(file, bytes.data(), static_cast<int>(bytes.size()), 0));
  return bytes;
}

std::span<const char* const> migrations() noexcept { return steps_of_all_versions; }

void add_functions(SQLite::Database& database) {
  database.createFunction("ce_identity", identity_values, true, nullptr, call<identity_of_values>);
  for (const int values : {1, 2})
    database.createFunction("ce_digest", values, true, nullptr, call<digest_of_values>);
}

bool require_ours(SQLite::Database& database, const std::filesystem::path& path) {
  // One read transaction, or a file that another process is just creating looks like no one's.
  const SQLite::Transaction snapshot(database);
  const int id = database.execAndGet("PRAGMA application_id").getInt();
  const int version = user_version(database);
  const int latest = static_cast<int>(migrations().size());
  if (id == application_id) {
    constexpr int first_in_table = 4;
    if (version == latest || (version >= 0 && version < first_in_table)) return true;
    if (!is_of_version(database, version))
      throw SQLite::Exception(fmt::format("its header names schema {}, its tables another one", version),
                              SQLITE_CORRUPT);
    if (version < latest) return true;
    throw DatabaseError(fmt::format(
        "{} was written by a newer version of ce (schema {}, this one knows up to {}): upgrade ce, "
        "or name another file ({})",
        path.string(), version, latest, ways_to_name_it));
  }
  if (database.tableExists("device_models") && database.tableExists("measurements"))
    throw SQLite::Exception("its application_id is another", SQLITE_CORRUPT);
  const bool empty =
      id == 0 && version == 0 && database.execAndGet("SELECT COUNT(*) FROM sqlite_master").getInt() == 0;
  if (!empty)
    throw DatabaseError(fmt::format("{} is a database of another program: name another file ({})",
                                    path.string(), ways_to_name_it));
  return false;
}

bool resembles_ours(const std::filesystem::path& path) noexcept {
  try {
    const std::string bytes = beginning_of(path, 1 << 16);
    if (bytes.size() < shortest_header)
      return magic.starts_with(std::string_view(bytes).substr(0, magic.size()));
    return is_of_ours(bytes, 0) || log_is_of_ours(path);
  } catch (const std::exception&) {
    return false;
  }
}

bool is_database(const std::filesystem::path& path) noexcept {
  try {
    const std::string bytes = beginning_of(path, magic.size());
    return bytes == magic || (!bytes.empty() && resembles_ours(path));
  } catch (const std::exception&) {
    return false;
  }
}

void migrate(SQLite::Database& database, std::span<const char* const> steps) {
  const int latest = static_cast<int>(steps.size());
  add_functions(database);
  while (user_version(database) < latest) {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    // Another process may have been faster while this one waited for the lock.
    const int version = user_version(database);
    if (version >= latest) return;
    database.exec(steps[static_cast<std::size_t>(version)]);
    // A PRAGMA takes no bound parameters; both values are numbers of this program.
    database.exec(fmt::format("PRAGMA application_id = {}", application_id));
    database.exec(fmt::format("PRAGMA user_version = {}", version + 1));
    transaction.commit();
  }
}

}  // namespace ce::cache
