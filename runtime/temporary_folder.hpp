#pragma once
/// \file
/// Folders among the system's temporary files, and how ce knows its own again.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/own_descriptor.hpp"
#include "ce/error.hpp"

namespace ce::runtime {

/// The error of the system call that has just failed: "cannot WHAT PATH: why".
[[nodiscard]] Error cannot(std::string_view what, const std::filesystem::path& path);

/// $TMPDIR, or /tmp where it is not set or empty. \throws Error(compile) where that is no folder
[[nodiscard]] std::filesystem::path temporary_folder();

/// A private folder (mode 0700), `prefix` and six letters or digits, with a marker inside that names the folder's inode.
/// A process that removes such a folder later proves first that ce made it: by the name, the owner, the mode and the
/// marker. So a copy of it, what is unpacked beside it and what a link leads to stay.
class TemporaryFolder {
 public:
  /// Makes a new one below temporary_folder(), and locks it. \throws Error(compile)
  explicit TemporaryFolder(std::string_view prefix);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Removes it with all that is in it, unless it was kept. A child of fork() leaves its parent's.
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// It stays, under a name with another prefix. \returns its path there \throws Error(compile)
  [[nodiscard]] std::filesystem::path keep(std::string_view prefix);

 private:
  std::filesystem::path path_;
  bool kept_ = false;
  int owner_;             ///< the process
  OwnDescriptor folder_;  ///< also its lock, as long as this process uses it
};

/// Removes folders with the prefix that processes which were killed have left: no process holds their lock.
/// \throws Error(compile) where there is no temporary_folder()
void remove_abandoned_folders(std::string_view prefix);

/// Removes folders that were kept longer than a day, and the oldest beyond the latest 64. One stays where anything in it
/// was changed or added since. \throws Error(compile) where there is no temporary_folder()
void remove_old_folders(std::string_view prefix);

}  // namespace ce::runtime
