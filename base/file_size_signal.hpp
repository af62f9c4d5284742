#pragma once
/// \file
/// Keeps the limit on the size of files (ulimit -f) from killing the process.

#include <csignal>
#include <string>

namespace ce {

/// While this object lives, a write of this thread beyond the limit fails with EFBIG. By default it would send SIGXFSZ,
/// which ends the process. Other threads, and the process's handler of the signal, stay as they are.
class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock() noexcept;
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;
  ~FileSizeSignalBlock();

 private:
  sigset_t before_;
  bool was_pending_;
};

/// " (files may have N bytes at most: ulimit -f)" if there is such a limit, else an empty text. Messages of failed
/// writes append it, since the limit may be the cause.
[[nodiscard]] std::string limit_on_files();

}  // namespace ce
