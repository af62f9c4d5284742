#include "tests/cache/fixture.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "ce/log.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> list;
  for (const float value : values) list.push_back(std::bit_cast<std::uint32_t>(value));
  return list;
}

bool same(double a, double b) { return a == b || (a != a && b != b); }

fs::path fresh_folder() {
  // Where fsync() costs nothing, if there is such a place.
  const fs::path memory = "/dev/shm";
  const bool usable = ::access(memory.c_str(), W_OK | X_OK) == 0;
  std::string name = (usable ? memory : fs::temp_directory_path()) / "ce-cache-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  return name;
}

std::function<void()>& open_action() {
  static std::function<void()> action;
  return action;
}

int act_at_open(sqlite3*, char**, const sqlite3_api_routines*) {
  if (open_action()) open_action()();
  return SQLITE_OK;
}

/// As SQLite takes it.
const auto act = reinterpret_cast<void (*)()>(act_at_open);

}  // namespace

AtEachOpen::AtEachOpen(std::function<void()> action) {
  open_action() = std::move(action);
  sqlite3_auto_extension(act);
}

AtEachOpen::~AtEachOpen() {
  sqlite3_cancel_auto_extension(act);
  open_action() = {};
}

Measurement a_measurement(const Key& key, const std::string& config, int number) {
  return {.key = key,
          .config = config,
          .template_digest = "templates",
          .compile_key = "compile-" + config,
          .stage = 1,
          .rows = 1024,
          .bytes = 1 << 20,
          .samples_us = {1.5F, 2.5F, 3.5F},
          .median_us = 2.5,
          .spread = 0.25,
          .registers = 32,
          .environment = {{"driver", "550.1"}, {"host", "here"}},
          .created_at = fmt::format("2030-01-01T00:00:{:02}.{:03}Z", number / 1000 % 60, number % 1000)};
}

void expect_same(const Measurement& actual, const Measurement& expected) {
  EXPECT_EQ(actual.key, expected.key);
  EXPECT_EQ(actual.config, expected.config);
  EXPECT_EQ(actual.template_digest, expected.template_digest);
  EXPECT_EQ(actual.compile_key, expected.compile_key);
  EXPECT_EQ(actual.outcome, expected.outcome);
  EXPECT_EQ(actual.reason, expected.reason);
  EXPECT_EQ(actual.stage, expected.stage);
  EXPECT_EQ(actual.rows, expected.rows);
  EXPECT_EQ(actual.bytes, expected.bytes);
  EXPECT_EQ(bits(actual.samples_us), bits(expected.samples_us));
  EXPECT_TRUE(same(actual.median_us, expected.median_us)) << actual.median_us << ' ' << expected.median_us;
  EXPECT_TRUE(same(actual.spread, expected.spread)) << actual.spread << ' ' << expected.spread;
  EXPECT_EQ(actual.registers, expected.registers);
  EXPECT_EQ(actual.local_bytes, expected.local_bytes);
  EXPECT_EQ(actual.environment, expected.environment);
  EXPECT_EQ(actual.created_at, expected.created_at);
}

void sql(const fs::path& file, const std::string& statements) {
  SQLite::Database database(file.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, 5000);
  database.exec(statements);
}

std::string sql_value(const fs::path& file, const std::string& query) {
  SQLite::Database database(file.string(), SQLite::OPEN_READWRITE, 5000);
  return database.execAndGet(query).getString();
}

std::vector<std::byte> as_bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::system_error(errno, std::generic_category(), file.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write_file(const fs::path& file, std::string_view text) {
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  if (!stream.flush()) throw std::system_error(errno, std::generic_category(), file.string());
}

unsigned mode(const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()) & 07777U; }

CacheTest::CacheTest() : folder_(fresh_folder()) {
  set_log_sink([this](LogLevel level, std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
    if (level == LogLevel::warning) warnings_.emplace_back(line);
  });
}

CacheTest::~CacheTest() {
  set_log_sink({});
  std::error_code ignored;
  fs::permissions(folder_, fs::perms::owner_all, ignored);
  fs::remove_all(folder_, ignored);
}

std::size_t CacheTest::warnings(std::string_view part) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(warnings_.begin(), warnings_.end(),
                    [&](const std::string& line) { return line.find(part) != std::string::npos; }));
}

std::size_t CacheTest::lines(std::string_view part) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
    return line.find(part) != std::string::npos;
  }));
}

std::string CacheTest::warning(std::string_view part) const {
  const std::lock_guard lock(mutex_);
  std::string lines;
  for (const std::string& line : warnings_)
    if (line.find(part) != std::string::npos) lines += line + '\n';
  return lines;
}

}  // namespace ce::cache::test
