#pragma once
/// \file
/// Who tunes: a lock on a file, which the kernel releases when its holder dies.

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "ce/base/own_descriptor.hpp"

namespace ce::cache {

/// The right to tune one key, given back with its owner. At most one thread of one process has it at a time.
class Claim {
 public:
  /// Never waits. The file (0600) is there as long as the claim, or until the next one where a process died.
  /// \returns nothing while another has it
  /// \throws DatabaseError where the folder cannot be written or its file system has no locks
  [[nodiscard]] static std::optional<Claim> take(const std::filesystem::path& file);
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

}  // namespace ce::cache
