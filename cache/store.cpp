#include "cache/store.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <concepts>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cache/schema.hpp"
#include "ce/base/digest.hpp"
#include "ce/base/log.hpp"

namespace ce::cache {
namespace {

using Bytes = std::vector<std::byte>;

/// One use of a prepared statement. Resets it at the end, so that no read transaction outlives the use:
/// an open one would hold back the checkpoints of every process.
class Query {
 public:
  template <class... Values>
  explicit Query(SQLite::Statement& statement, const Values&... values) : statement_(statement) {
    int index = 0;
    (bind(++index, values), ...);
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  ~Query() { statement_.tryReset(); }

  /// True while there is a row to read.
  bool next() { return statement_.executeStep(); }
  void run() {
    while (next()) {
    }
  }

  [[nodiscard]] std::string text(int column) const { return statement_.getColumn(column).getString(); }
  [[nodiscard]] std::int64_t integer(int column) const { return statement_.getColumn(column).getInt64(); }
  [[nodiscard]] double real(int column) const {
    const SQLite::Column value = statement_.getColumn(column);
    return value.isNull() ? std::numeric_limits<double>::quiet_NaN() : value.getDouble();
  }
  [[nodiscard]] Bytes blob(int column) const {
    const SQLite::Column value = statement_.getColumn(column);
    const auto* data = static_cast<const std::byte*>(value.getBlob());
    return data == nullptr ? Bytes{} : Bytes(data, data + value.getBytes());
  }

 private:
  void bind(int index, const std::string& value) { statement_.bind(index, value); }
  void bind(int index, std::string_view value) { statement_.bind(index, std::string(value)); }
  void bind(int index, std::integral auto value) { statement_.bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, double value) { statement_.bind(index, value); }
  void bind(int index, std::span<const std::byte> value) {
    // A null pointer would bind NULL instead of an empty blob.
    statement_.bind(index, value.empty() ? static_cast<const void*>("") : value.data(),
                    static_cast<int>(value.size()));
  }

  SQLite::Statement& statement_;
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes encode_samples(std::span<const float> samples) {
  Bytes bytes;
  bytes.reserve(4 * samples.size());
  for (const float sample : samples) {
    const auto bits = std::bit_cast<std::uint32_t>(sample);
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::byte>(bits >> shift));
  }
  return bytes;
}

std::vector<float> decode_samples(std::span<const std::byte> bytes) {
  std::vector<float> samples;
  samples.reserve(bytes.size() / 4);
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits |= std::to_integer<std::uint32_t>(bytes[at + i]) << (8 * i);
    samples.push_back(std::bit_cast<float>(bits));
  }
  return samples;
}

/// Bytes that are no UTF-8 (a driver may report anything) become U+FFFD.
std::string encode_evidence(const std::map<std::string, std::string>& evidence) {
  const nlohmann::json json(evidence);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::map<std::string, std::string> decode_evidence(const std::string& text) {
  return nlohmann::json::parse(text).get<std::map<std::string, std::string>>();
}

constexpr const char* select_measurements = R"sql(
  SELECT p.text, d.text, m.config, m.template_digest, m.compile_key, m.outcome, m.reason, m.stage, m.rows,
         m.bytes, m.samples_us, m.median_us, m.spread, m.registers, m.local_bytes, e.json, m.created_at
  FROM measurements AS m
  JOIN keys AS k ON k.id = m.key_id
  JOIN problems AS p ON p.id = k.problem_id
  JOIN device_models AS d ON d.id = k.device_model_id
  JOIN evidence AS e ON e.id = m.evidence_id
  WHERE p.text = ?1 AND d.text = ?2
  ORDER BY m.created_at, m.id)sql";

Measurement read_measurement(const Query& row) {
  return {.key = {.problem = row.text(0), .device = row.text(1)},
          .config = row.text(2),
          .template_digest = row.text(3),
          .compile_key = row.text(4),
          .outcome = row.text(5) == name(Outcome::measured) ? Outcome::measured : Outcome::quarantined,
          .reason = row.text(6),
          .stage = static_cast<int>(row.integer(7)),
          .rows = row.integer(8),
          .bytes = row.integer(9),
          .samples_us = decode_samples(row.blob(10)),
          .median_us = row.real(11),
          .spread = row.real(12),
          .registers = static_cast<int>(row.integer(13)),
          .local_bytes = static_cast<int>(row.integer(14)),
          .evidence = decode_evidence(row.text(15)),
          .created_at = row.text(16)};
}

}  // namespace

std::string utc_now() {
  using namespace std::chrono;
  using namespace std::chrono_literals;
  const auto now = floor<milliseconds>(system_clock::now());
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (now.time_since_epoch() % 1s).count());
}

Store::Store(std::unique_ptr<SQLite::Database> database) : database_(std::move(database)) {
  static_cast<void>(prepared(select_measurements));
}

std::unique_ptr<Store> Store::in_memory() {
  auto database =
      std::make_unique<SQLite::Database>(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  database->exec("PRAGMA foreign_keys = ON");
  migrate(*database, migrations());
  return std::make_unique<Store>(std::move(database));
}

Store::~Store() = default;

SQLite::Statement& Store::prepared(const char* sql) {
  auto& statement = statements_[sql];
  if (statement == nullptr) statement = std::make_unique<SQLite::Statement>(*database_, sql);
  return *statement;
}

void Store::insert(const Measurement& m) {
  const std::string evidence = encode_evidence(m.evidence);
  const std::string evidence_digest = digest({evidence});
  Query(prepared("INSERT INTO problems (text) VALUES (?1) ON CONFLICT (text) DO NOTHING"), m.key.problem)
      .run();
  Query(prepared("INSERT INTO device_models (text) VALUES (?1) ON CONFLICT (text) DO NOTHING"), m.key.device)
      .run();
  Query(prepared("INSERT INTO evidence (digest, json) VALUES (?1, ?2) ON CONFLICT (digest) DO NOTHING"),
        evidence_digest, evidence)
      .run();
  Query(prepared(R"sql(
          INSERT INTO keys (name, problem_id, device_model_id)
          SELECT ?1, p.id, d.id FROM problems AS p, device_models AS d WHERE p.text = ?2 AND d.text = ?3
          ON CONFLICT (problem_id, device_model_id) DO NOTHING)sql"),
        m.key.id(), m.key.problem, m.key.device)
      .run();
  Query(prepared(R"sql(
          INSERT INTO measurements (key_id, config, template_digest, compile_key, outcome, reason, stage, rows,
            bytes, samples_us, median_us, spread, registers, local_bytes, evidence_id, created_at)
          SELECT k.id, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, e.id, ?17
          FROM keys AS k
          JOIN problems AS p ON p.id = k.problem_id
          JOIN device_models AS d ON d.id = k.device_model_id
          JOIN evidence AS e ON e.digest = ?3
          WHERE p.text = ?1 AND d.text = ?2)sql"),
        m.key.problem, m.key.device, evidence_digest, m.config, m.template_digest, m.compile_key,
        name(m.outcome), m.reason, m.stage, m.rows, m.bytes,
        std::span<const std::byte>(encode_samples(m.samples_us)), m.median_us, m.spread, m.registers,
        m.local_bytes, m.created_at)
      .run();
}

void Store::add(const Measurement& measurement) {
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  insert(measurement);
  transaction.commit();
}

std::vector<Measurement> Store::measurements(const Key& key) {
  std::vector<Measurement> list;
  Query query(prepared(select_measurements), key.problem, key.device);
  while (query.next()) list.push_back(read_measurement(query));
  return list;
}

std::vector<KeySummary> Store::keys() {
  std::vector<KeySummary> list;
  Query query(prepared(R"sql(
    SELECT p.text, d.text, COUNT(*), COUNT(DISTINCT m.config),
           COUNT(DISTINCT CASE WHEN m.outcome = 'quarantined' THEN m.config END),
           MIN(m.created_at), MAX(m.created_at)
    FROM measurements AS m
    JOIN keys AS k ON k.id = m.key_id
    JOIN problems AS p ON p.id = k.problem_id
    JOIN device_models AS d ON d.id = k.device_model_id
    GROUP BY k.id ORDER BY d.text, p.text)sql"));
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

void Store::insert_binary(const std::string& compile_key, std::span<const std::byte> image,
                          const BinaryInfo& info) {
  if (binary(compile_key)) return;
  Query(prepared(R"sql(
          INSERT INTO binaries (compile_key, image, digest, compiler, name, created_at)
          VALUES (?1, ?2, ?3, ?4, ?5, ?6)
          ON CONFLICT (compile_key) DO UPDATE SET image = excluded.image, digest = excluded.digest,
            compiler = excluded.compiler, name = excluded.name, created_at = excluded.created_at)sql"),
        compile_key, image, digest({as_text(image)}), info.compiler, info.name, utc_now())
      .run();
}

void Store::keep_binary(const std::string& compile_key, std::span<const std::byte> image,
                        const BinaryInfo& info) {
  SQLite::Transaction transaction(*database_, SQLite::TransactionBehavior::IMMEDIATE);
  insert_binary(compile_key, image, info);
  transaction.commit();
}

std::optional<Bytes> Store::binary(const std::string& compile_key) {
  Query query(prepared("SELECT image, digest FROM binaries WHERE compile_key = ?1"), compile_key);
  if (!query.next()) return std::nullopt;
  Bytes image = query.blob(0);
  if (digest({as_text(image)}) != query.text(1)) {
    log_once(LogLevel::warning,
             fmt::format("the tuning database holds a damaged copy of binary {}: it is ignored, "
                         "and replaced when the binary is compiled again",
                         compile_key));
    return std::nullopt;
  }
  return image;
}

void Store::copy_into(Store& other) {
  SQLite::Transaction transaction(*other.database_, SQLite::TransactionBehavior::IMMEDIATE);
  for (const KeySummary& summary : keys())
    for (const Measurement& measurement : measurements(summary.key)) other.insert(measurement);
  Query query(prepared("SELECT compile_key, image, compiler, name FROM binaries"));
  while (query.next())
    other.insert_binary(query.text(0), query.blob(1), {.compiler = query.text(2), .name = query.text(3)});
  transaction.commit();
}

Store::Counts Store::counts() {
  Query query(prepared(R"sql(
    SELECT (SELECT COUNT(*) FROM measurements), (SELECT COUNT(*) FROM keys),
           (SELECT COUNT(*) FROM binaries))sql"));
  query.next();
  return {.measurements = query.integer(0), .keys = query.integer(1), .binaries = query.integer(2)};
}

int Store::schema_version() { return database_->execAndGet("PRAGMA user_version").getInt(); }

std::string Store::journal_mode() { return database_->execAndGet("PRAGMA journal_mode").getString(); }

}  // namespace ce::cache
