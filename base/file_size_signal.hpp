#pragma once
/// \file
/// Writes that the limit on the size of files (ulimit -f) must not kill the process for.

#include <csignal>
#include <string>

namespace ce {

/// While it lives, a write of this thread beyond the limit fails with EFBIG and sends no SIGXFSZ, which would end the
/// process by default. Other threads, and what the process does about the signal, stay as they are.
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

/// " (files may have N bytes at most: ulimit -f)" where there is such a limit, for messages of writes that failed, perhaps
/// for it; else empty.
[[nodiscard]] std::string limit_on_files();

}  // namespace ce
