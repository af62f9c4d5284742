#pragma once
/// \file
/// Prepared statements with typed parameters and results.

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Statement.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ce::cache {

using Bytes = std::vector<std::byte>;

/// One use of a prepared statement. Its destructor resets the statement, so that no read transaction outlives the use:
/// an open one would hold back the checkpoints of every process.
class Query {
 public:
  /// \param values  texts that are not temporaries are not copied: they must stay unchanged until the Query is
  /// destroyed
  template <class... Values>
  explicit Query(SQLite::Statement& statement, Values&&... values) : statement_(statement) {
    int index = 0;
    (bind(++index, std::forward<Values>(values)), ...);
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  ~Query() { statement_.tryReset(); }

  /// Steps to the next row. \returns false at the end
  bool next() { return statement_.executeStep(); }
  void run() {
    while (next()) {
    }
  }

  /// Calls visit() for each row. Faster than next() for many rows: column objects are created once.
  void each(const auto& visit) {
    if (!next()) return;
    const int columns = statement_.getColumnCount();
    columns_.reserve(static_cast<std::size_t>(columns));
    for (int i = 0; i < columns; ++i) columns_.push_back(statement_.getColumn(i));
    do visit();
    while (next());
  }

  [[nodiscard]] std::string text(int column) const {
    return of(column, [](const SQLite::Column& value) { return value.getString(); });
  }
  /// A view that is valid while the row is the current one.
  [[nodiscard]] std::string_view text_view(int column) const {
    return of(column, [](const SQLite::Column& value) {
      const char* text = value.getText();
      return std::string_view(text, static_cast<std::size_t>(value.getBytes()));
    });
  }
  /// A view that is valid while the row is the current one.
  [[nodiscard]] std::span<const std::byte> blob_view(int column) const {
    return of(column, [](const SQLite::Column& value) {
      const auto* data = static_cast<const std::byte*>(value.getBlob());
      return std::span(data, data == nullptr ? 0 : static_cast<std::size_t>(value.getBytes()));
    });
  }
  [[nodiscard]] std::int64_t integer(int column) const {
    return of(column, [](const SQLite::Column& value) { return value.getInt64(); });
  }
  [[nodiscard]] double real(int column) const {
    return of(column, [](const SQLite::Column& value) {
      return value.isNull() ? std::numeric_limits<double>::quiet_NaN() : value.getDouble();
    });
  }
  [[nodiscard]] Bytes blob(int column) const {
    const std::span<const std::byte> bytes = blob_view(column);
    return {bytes.begin(), bytes.end()};
  }

 private:
  template <class Read>
  std::invoke_result_t<Read, const SQLite::Column&> of(int column, const Read& read) const {
    if (columns_.empty()) return read(statement_.getColumn(column));
    return read(columns_[static_cast<std::size_t>(column)]);
  }
  void bind(int index, const std::string& value) { statement_.bindNoCopy(index, value); }
  void bind(int index, std::string&& value) { statement_.bind(index, value); }
  void bind(int index, std::string_view value) { statement_.bind(index, std::string(value)); }
  void bind(int index, std::integral auto value) { statement_.bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, double value) { statement_.bind(index, value); }
  void bind(int index, std::span<const std::byte> value) {
    // A null pointer would bind NULL instead of an empty blob.
    statement_.bind(index, value.empty() ? static_cast<const void*>("") : value.data(),
                    static_cast<int>(value.size()));
  }

  SQLite::Statement& statement_;
  std::vector<SQLite::Column> columns_;  ///< only used by each()
};

}  // namespace ce::cache
