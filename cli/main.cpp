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

/// Takes the lowest number that is free. Not every container has /dev/null.
void open_nothing(bool takes_messages) {
  if (::open("/dev/null", takes_messages ? O_WRONLY : O_RDONLY) >= 0) return;
  if (takes_messages && ::memfd_create("ce-nothing", 0) >= 0) return;
  // At its end for who reads, and no file to write to.
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) == 0) ::close(ends[1]);
}

/// A file that is opened later must not become one of them. What is written to standard output where that is closed still
/// fails, and is told as what it is: a result that did not arrive.
void open_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream)
    if (::fcntl(stream, F_GETFD) < 0) open_nothing(stream == 2);
}

}  // namespace

int main(int argument_count, char** arguments) {
  open_standard_streams();
  // What the limit on files (ulimit -f) refuses is an error of that write, also of results that are printed into a file.
  // Workers and compilers, which this starts, take it over. The library leaves the signal as it is, and blocks it on the
  // thread for each write of its own.
  std::signal(SIGXFSZ, SIG_IGN);
  // How a worker ended is told only to processes that do not ignore it, and the one that started this may have.
  std::signal(SIGCHLD, SIG_DFL);
  // Not commands: the library and ce-tune itself start them, and speak to them over standard input and output.
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
