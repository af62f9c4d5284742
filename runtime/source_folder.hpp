#pragma once
/// \file
/// Sources on disk: for compilers that are programs, and for a look at what does not compile.

#include <filesystem>
#include <string>

#include "ce/base/error.hpp"
#include "ce/base/own_descriptor.hpp"
#include "runtime/device.hpp"

namespace ce::runtime {

/// $TMPDIR, or /tmp. \throws Error(compile) where that is no folder
[[nodiscard]] std::filesystem::path temporary_folder();

/// In place of the path of a source that could not be kept.
[[nodiscard]] std::string not_kept(const Error& why);

/// Removes what processes that were killed have left of SourceFolders: of this user, held by nobody, and no longer so new
/// that its owner may be about to hold it. The first SourceFolder of a process does so.
/// \throws Error(compile) where there is no temporary_folder()
void remove_abandoned_sources();

/// A request's source and headers in a private folder (mode 0700) below temporary_folder(), which is removed with this
/// object unless it is kept.
class SourceFolder {
 public:
  /// \throws Error(compile) where the folder or a file cannot be written; InvalidArgument for a header outside of it
  explicit SourceFolder(const CompileRequest& request);
  SourceFolder(const SourceFolder&) = delete;
  SourceFolder& operator=(const SourceFolder&) = delete;
  ~SourceFolder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// The source's file name, made of the request's.
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

  /// The folder stays, elsewhere. \returns the source's path there, or why there is none: that must not hide what the
  /// compiler says
  [[nodiscard]] std::string keep();

 private:
  std::filesystem::path path_;  ///< empty once it is kept
  OwnDescriptor lock_;          ///< of the folder, as long as this process uses it
  std::string file_;
};

}  // namespace ce::runtime
