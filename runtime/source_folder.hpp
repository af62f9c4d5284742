#pragma once
/// \file
/// Sources on disk: for compilers that are programs, and for inspection of a source that does not compile.

#include <filesystem>
#include <string>

#include "ce/error.hpp"
#include "runtime/device.hpp"
#include "runtime/temporary_folder.hpp"

namespace ce::runtime {

/// The text in place of the path if a source could not be kept.
[[nodiscard]] std::string not_kept(const Error& why);

/// Removes SourceFolders of processes that were killed, and sources that were kept long ago (see remove_old_folders()).
/// The first SourceFolder of a process calls it.
/// \throws Error(compile) if there is no temporary_folder()
void remove_abandoned_sources();

/// A request's source and headers in a TemporaryFolder, which is removed with this object unless it is kept.
class SourceFolder {
 public:
  /// \throws Error(compile) if the folder or a file cannot be written; InvalidArgument for a header outside of it
  explicit SourceFolder(const CompileRequest& request);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_.path(); }
  /// The source's file name, derived from the request's name.
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

  /// Keeps the folder, under another name, for at least a day unless many more are kept. \returns the source's path
  /// there, or a message why there is none: a failure must not hide the compiler's messages
  [[nodiscard]] std::string keep();

 private:
  TemporaryFolder folder_;
  std::string file_;
};

}  // namespace ce::runtime
