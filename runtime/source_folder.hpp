#pragma once
/// \file
/// Sources on disk: for compilers that are programs, and for a look at what does not compile.

#include <filesystem>
#include <string>

#include "ce/error.hpp"
#include "runtime/device.hpp"
#include "runtime/temporary_folder.hpp"

namespace ce::runtime {

/// The text in place of the path of a source that could not be kept.
[[nodiscard]] std::string not_kept(const Error& why);

/// Removes what processes that were killed have left of SourceFolders, and sources that were kept long ago (see
/// remove_old_folders()). The first SourceFolder of a process does so.
/// \throws Error(compile) where there is no temporary_folder()
void remove_abandoned_sources();

/// A request's source and headers in a TemporaryFolder, which is removed with this object unless it is kept.
class SourceFolder {
 public:
  /// \throws Error(compile) where the folder or a file cannot be written; InvalidArgument for a header outside of it
  explicit SourceFolder(const CompileRequest& request);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_.path(); }
  /// The source's file name, made of the request's.
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

  /// The folder stays, elsewhere, for a day at least unless many more are kept. \returns the source's path there, or why
  /// there is none: that must not hide what the compiler says
  [[nodiscard]] std::string keep();

 private:
  TemporaryFolder folder_;
  std::string file_;
};

}  // namespace ce::runtime
