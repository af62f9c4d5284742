#include "base/file_size_signal.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <ctime>

namespace ce {
namespace {

sigset_t its_set() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() noexcept {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

FileSizeSignalBlock::FileSizeSignalBlock() noexcept : was_pending_(is_pending()) {
  const sigset_t set = its_set();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

FileSizeSignalBlock::~FileSizeSignalBlock() {
  const sigset_t set = its_set();
  const int error = errno;  // that of the write
  constexpr timespec at_once{};
  while (!was_pending_ && is_pending() && ::sigtimedwait(&set, nullptr, &at_once) < 0 && errno == EINTR) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

std::string limit_on_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(" (files may have {} bytes at most: ulimit -f)", limit.rlim_cur);
}

}  // namespace ce
