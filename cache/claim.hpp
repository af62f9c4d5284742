#pragma once
/// \file
/// Who tunes: a lock on a file, which the kernel releases when its holder dies.

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/own_descriptor.hpp"

namespace ce::cache {

/// The right to tune one key, given back with its owner. At most one thread of one process has it at a time.
class Claim {
 public:
  /// Never waits. The file is there as long as the claim, or until the next one where a process died; who may use the
  /// database may lock it.
  /// \param database  the real path of the one that the file lies beside
  /// \returns nothing while another has it
  /// \throws DatabaseError where the folder cannot be written, its file system has no locks, or a stranger's file is in
  /// the way
  [[nodiscard]] static std::optional<Claim> take(const std::filesystem::path& file,
                                                 const std::filesystem::path& database);
  /// Where no lock can be had: one that keeps nobody out.
  [[nodiscard]] static Claim unguarded() { return {}; }

  Claim(Claim&& other) noexcept { swap(other); }
  Claim& operator=(Claim&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Claim();

 private:
  Claim() = default;
  void swap(Claim& other) noexcept;

  std::filesystem::path file_;
  OwnDescriptor descriptor_;
  pid_t owner_ = 0;
};

/// The file of the claim of a key. \param id  Key::id()
[[nodiscard]] std::filesystem::path claim_file(const std::filesystem::path& database, const std::string& id);

/// Removes what processes of this user left behind that were killed while they had claims: empty files of those names that
/// nobody has locked.
void remove_abandoned_claims(const std::filesystem::path& database) noexcept;

}  // namespace ce::cache
