#include "cache/schema.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>

#include "cache/recognize.hpp"

namespace ce::cache {
namespace {

constexpr const char* tables = R"sql(
-- A number in the header of the file that is not in here, too, is damage.
CREATE TABLE schema_versions (
  version    INTEGER PRIMARY KEY,
  created_at TEXT NOT NULL DEFAULT (STRFTIME('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
INSERT INTO schema_versions (version) VALUES (1);

CREATE TABLE device_models (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
);

CREATE TABLE problems (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
);

-- What one answer is good for. The name is how a person calls it: 12 hexadecimal digits, unique in practice but not by
-- rule.
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
CREATE TRIGGER environments_refuse_update BEFORE UPDATE ON environments
BEGIN SELECT RAISE(ABORT, 'environments are append-only'); END;
CREATE TRIGGER environments_refuse_delete BEFORE DELETE ON environments
BEGIN SELECT RAISE(ABORT, 'environments are append-only'); END;
CREATE TRIGGER environments_refuse_replace BEFORE INSERT ON environments
WHEN EXISTS (SELECT 1 FROM environments WHERE id = NEW.id OR (digest = NEW.digest AND json <> NEW.json))
BEGIN SELECT RAISE(ABORT, 'environments are append-only'); END;

-- The digest, of the key and the image, tells damage. Binaries may go at any time, so measurements do not reference them.
CREATE TABLE binaries (
  compile_key TEXT PRIMARY KEY NOT NULL,
  image       BLOB NOT NULL,
  digest      TEXT NOT NULL,
  compiler    TEXT NOT NULL,
  name        TEXT NOT NULL,
  created_at  TEXT NOT NULL
);

-- Which kernels a machine found right: what came from elsewhere is verified once before it serves. The machine is the
-- uuid of a GPU, or the name of a host. Rows may go at any time.
CREATE TABLE verified (
  compile_key TEXT NOT NULL,
  machine     TEXT NOT NULL,
  created_at  TEXT NOT NULL,
  PRIMARY KEY (compile_key, machine)
) WITHOUT ROWID;

-- Append-only. samples_us holds 32-bit floats, least significant byte first; a figure that is not a number is NULL. The
-- identity is the digest of all that a measurement says, so that databases can be merged, and merged again, without a
-- measurement twice.
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
  environment_id  INTEGER NOT NULL REFERENCES environments (id),
  created_at      TEXT NOT NULL,
  identity        TEXT NOT NULL
);
CREATE UNIQUE INDEX measurements_by_identity ON measurements (identity);
CREATE INDEX measurements_by_config ON measurements (key_id, config, template_digest);
CREATE INDEX quarantines ON measurements (key_id, config, template_digest) WHERE outcome = 'quarantined';
-- Tells at once that no quarantine of a key came after its finals.
CREATE INDEX quarantines_by_time ON measurements (key_id, created_at) WHERE outcome = 'quarantined';
-- What a look-up asks for lies side by side: of each key and templates, the finals of each config, the one that counts
-- first.
CREATE INDEX finals ON measurements
  (key_id, template_digest, config, stage DESC, rows DESC, created_at DESC, id DESC, median_us, registers, outcome)
  WHERE outcome = 'measured' AND stage > 0;

CREATE TRIGGER measurements_refuse_update BEFORE UPDATE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;
CREATE TRIGGER measurements_refuse_delete BEFORE DELETE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;
-- INSERT OR REPLACE deletes the old row without asking the trigger above.
CREATE TRIGGER measurements_refuse_replace BEFORE INSERT ON measurements
WHEN EXISTS (SELECT 1 FROM measurements WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END;

-- What a list of all keys asks for is counted as measurements come.
CREATE TABLE key_counts (
  key_id       INTEGER PRIMARY KEY REFERENCES keys (id),
  measurements INTEGER NOT NULL,
  configs      INTEGER NOT NULL,
  quarantined  INTEGER NOT NULL,
  first_at     TEXT NOT NULL,
  last_at      TEXT NOT NULL
);
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

-- What key_counts must say.
CREATE VIEW counted_keys AS
SELECT key_id, COUNT(*) AS measurements, COUNT(DISTINCT config) AS configs,
       COUNT(DISTINCT CASE WHEN outcome = 'quarantined' THEN config END) AS quarantined,
       MIN(created_at) AS first_at, MAX(created_at) AS last_at
FROM measurements GROUP BY key_id;

-- For people: for each key the fastest median of its last final with the most rows, where there is one. Medians of
-- different finals cannot be held against each other. It cannot know which templates are current, so what ce serves is
-- decided in ce.
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

}  // namespace

int schema_of(SQLite::Database& database) { return database.execAndGet("PRAGMA user_version").getInt(); }

void create_tables(SQLite::Database& database) {
  if (schema_of(database) != 0) return;
  SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
  // Another process may have been faster while this one waited for the lock.
  if (schema_of(database) != 0) return;
  database.exec(tables);
  // A PRAGMA takes no bound parameters; both values are constants of this program.
  database.exec(fmt::format("PRAGMA application_id = {}", application_id));
  database.exec(fmt::format("PRAGMA user_version = {}", schema_version));
  transaction.commit();
}

}  // namespace ce::cache
