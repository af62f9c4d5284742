#pragma once
/// \file
/// Writes that the limit on the size of files (ulimit -f) must not kill the process for.

#include <csignal>

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

}  // namespace ce
