#pragma once
/// \file
/// Of several databases, which one failed.

#include <SQLiteCpp/Exception.h>

#include <cstddef>

namespace ce::cache {

/// One of those that are read, while another one is written.
class NotReadable : public SQLite::Exception {
 public:
  NotReadable(const SQLite::Exception& error, std::size_t number)
      : SQLite::Exception(error), number_(number) {}
  /// How many are read before it.
  [[nodiscard]] std::size_t number() const noexcept { return number_; }

 private:
  std::size_t number_;
};

}  // namespace ce::cache
