#include "base/file_size_signal.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>

namespace {

/// Writes beyond the limit in a child, under what `prepare` makes of the signal. \returns its status, and 0 where the write
/// failed with EFBIG and the signal is neither blocked nor pending then
template <class Prepare>
int status_of_a_write(const Prepare& prepare) {
  const std::string file =
      std::filesystem::temp_directory_path() / ("ce-limit-" + std::to_string(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    const int descriptor = ::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    const rlimit limit{16, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    bool failed = false;
    {
      const ce::FileSizeSignalBlock no_signal;
      failed = ::pwrite(descriptor, "x", 1, 16) < 0 && errno == EFBIG;
    }
    sigset_t pending;
    ::sigpending(&pending);
    ::_exit(failed && ::sigismember(&pending, SIGXFSZ) == 0 ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  std::filesystem::remove(file);
  return status;
}

TEST(FileSizeSignalBlock, AWriteBeyondTheLimitFails) {
  EXPECT_EQ(status_of_a_write([] { std::signal(SIGXFSZ, SIG_DFL); }), 0);
}

TEST(FileSizeSignalBlock, LeavesWhatTheProcessDoesAboutTheSignal) {
  EXPECT_EQ(status_of_a_write([] { std::signal(SIGXFSZ, [](int) { ::_exit(3); }); }), 0);
  const int status = status_of_a_write([] {
    const ce::FileSizeSignalBlock before;
    static_cast<void>(before);
    std::signal(SIGXFSZ, [](int) { ::_exit(3); });
    ::raise(SIGXFSZ);  // the process's own, which is not taken from it
    { const ce::FileSizeSignalBlock inner; }
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGXFSZ);
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::_exit(4);
  });
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
