#pragma once
/// \file
/// What the tests of the cache share: a folder of their own, measurements to keep, and SQL behind the cache's
/// back.

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"

namespace ce::cache::test {

/// One row for `key`, dated so that a larger `number` is younger.
[[nodiscard]] Measurement a_measurement(const Key& key, const std::string& config, int number = 0);

/// All members, floating-point ones bit for bit (a not-a-number equals itself).
void expect_same(const Measurement& actual, const Measurement& expected);

/// Executes statements on the file through a connection of its own. \throws SQLite::Exception
void sql(const std::filesystem::path& file, const std::string& statements);
/// The first column of the first row, as text.
[[nodiscard]] std::string sql_value(const std::filesystem::path& file, const std::string& query);

[[nodiscard]] std::vector<std::byte> as_bytes(std::string_view text);

[[nodiscard]] std::string contents(const std::filesystem::path& file);
void write_file(const std::filesystem::path& file, std::string_view text);
/// The permission bits, e.g. 0600.
[[nodiscard]] unsigned mode(const std::filesystem::path& path);

/// For one scope, does something whenever SQLite has opened a file and has not read it yet. One at a time.
class AtEachOpen {
 public:
  explicit AtEachOpen(std::function<void()> action);
  AtEachOpen(const AtEachOpen&) = delete;
  AtEachOpen& operator=(const AtEachOpen&) = delete;
  ~AtEachOpen();
};

/// A fresh folder, and the lines that ce logs meanwhile.
class CacheTest : public testing::Test {
 protected:
  CacheTest();
  ~CacheTest() override;
  CacheTest(const CacheTest&) = delete;
  CacheTest& operator=(const CacheTest&) = delete;

  [[nodiscard]] std::filesystem::path folder() const { return folder_; }
  [[nodiscard]] std::filesystem::path file() const { return folder_ / "ce.db"; }
  /// How many warnings so far contain `part`.
  [[nodiscard]] std::size_t warnings(std::string_view part) const;
  /// How many lines of any level.
  [[nodiscard]] std::size_t lines(std::string_view part) const;
  /// Those warnings, for messages of failed tests.
  [[nodiscard]] std::string warning(std::string_view part) const;

  const Key key{.problem = "softmax f32 4096", .device = "Some GPU"};

 private:
  std::filesystem::path folder_;
  mutable std::mutex mutex_;
  std::vector<std::string> warnings_, lines_;
};

}  // namespace ce::cache::test
