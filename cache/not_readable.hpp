#pragma once
/// \file
/// Identifies which of several databases failed.

#include <SQLiteCpp/Exception.h>

#include <cstddef>

namespace ce::cache {

/// An error while reading one of the source databases of a write.
class NotReadable : public SQLite::Exception {
 public:
  NotReadable(const SQLite::Exception& error, std::size_t number)
      : SQLite::Exception(error), number_(number) {}
  /// Index of that database.
  [[nodiscard]] std::size_t number() const noexcept { return number_; }

 private:
  std::size_t number_;
};

}  // namespace ce::cache
