#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

#include "cache/open.hpp"
#include "cli/app.hpp"
#include "cli/commands/isolated_tuning.hpp"
#include "cli/commands/sweep_worker.hpp"
#include "cli/commands/timing_process.hpp"
#include "runtime/workers/worker.hpp"

namespace {

/// Opens the lowest free descriptor. Not every container has /dev/null.
void open_nothing(bool takes_messages) {
  if (::open("/dev/null", takes_messages ? O_WRONLY : O_RDONLY) >= 0) return;
  if (takes_messages && ::memfd_create("ce-nothing", 0) >= 0) return;
  // Readers see its end, and writes to it fail.
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) == 0) ::close(ends[1]);
}

/// Opens missing standard descriptors, so that a file that is opened later does not become one of them. Writes to a
/// standard output that was closed still fail, and are reported: the result did not arrive.
void open_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream)
    if (::fcntl(stream, F_GETFD) < 0) open_nothing(stream == 2);
}

}  // namespace

int main(int argument_count, char** arguments) {
  open_standard_streams();
  // A write that exceeds the limit on files (ulimit -f) must fail with an error, also for results that are printed into
  // a file. Workers and compilers, which this process starts, inherit this. The library leaves the signal as it is, and
  // blocks it on the thread for its own writes.
  std::signal(SIGXFSZ, SIG_IGN);
  // A process that ignores SIGCHLD cannot learn how a worker ended, and the parent may have set that.
  std::signal(SIGCHLD, SIG_DFL);
  // These are not commands: the library and ce-tune itself start them, and talk to them over standard input and output.
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::runtime::compile_worker_argument)
    return ce::runtime::compile_worker_main(0, 1);
  ce::runtime::offer_this_executable();
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::cli::tuning_worker_argument)
    return ce::cli::tuning_worker_main(0, 1);
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::cli::sweep_worker_argument)
    return ce::cli::sweep_worker_main(0, 1);
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::cli::timing_worker_argument)
    return ce::cli::timing_worker_main(0, 1);
  ce::cache::forget_memory_counts();
  return ce::cli::run(argument_count, arguments);
}
