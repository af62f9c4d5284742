#pragma once
/// \file
/// Temporary folders, and how ce recognises its own ones.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/own_descriptor.hpp"
#include "ce/error.hpp"

namespace ce::runtime {

/// The error of the system call that has just failed: "cannot WHAT PATH: why".
[[nodiscard]] Error cannot(std::string_view what, const std::filesystem::path& path);

/// $TMPDIR, or /tmp if it is unset or empty. \throws Error(compile) if that is not a folder
[[nodiscard]] std::filesystem::path temporary_folder();

/// A private folder (mode 0700), named `prefix` and six letters or digits, with a marker inside that holds the folder's
/// inode. Before a process removes such a folder later, it proves that ce created it: by the name, the owner, the mode
/// and the marker. So a copy of the folder, files unpacked beside it, and the target of a link stay.
class TemporaryFolder {
 public:
  /// Creates a new folder below temporary_folder(), and locks it. \throws Error(compile)
  explicit TemporaryFolder(std::string_view prefix);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Removes the folder with all its contents, unless it was kept. A child of fork() leaves its parent's folder alone.
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Keeps the folder, renamed to another prefix. \returns its path there \throws Error(compile)
  [[nodiscard]] std::filesystem::path keep(std::string_view prefix);

 private:
  std::filesystem::path path_;
  bool kept_ = false;
  int owner_;             ///< process id of the owner
  OwnDescriptor folder_;  ///< also its lock, while this process uses it
};

/// Removes folders with the prefix of processes that were killed: folders that no process has locked.
/// \throws Error(compile) if there is no temporary_folder()
void remove_abandoned_folders(std::string_view prefix);

/// Removes folders that were kept longer than a day, and the oldest beyond the latest 64. A folder stays if any file in
/// it was changed or added since. \throws Error(compile) if there is no temporary_folder()
void remove_old_folders(std::string_view prefix);

}  // namespace ce::runtime
