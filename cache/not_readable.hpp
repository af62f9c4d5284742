#pragma once
/// \file
/// Of two databases, which one failed.

#include <SQLiteCpp/Exception.h>

namespace ce::cache {

/// The one that is read, while another one is written.
class NotReadable : public SQLite::Exception {
 public:
  explicit NotReadable(const SQLite::Exception& error) : SQLite::Exception(error) {}
};

}  // namespace ce::cache
