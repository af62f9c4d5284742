#include "runtime/workers/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>

#include "base/environment.hpp"
#include "ce/error.hpp"

namespace ce::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int parent_ended = SIGUSR1;

/// For calls that return the error number.
void check(int error, std::string_view call) {
  if (error != 0)
    throw Error(ErrorKind::compile, fmt::format("{}: {}", call, std::generic_category().message(error)));
}

std::pair<Descriptor, Descriptor> connected_sockets() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) check(errno, "socketpair");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

class FileActions {
 public:
  explicit FileActions(int socket) {
    check(::posix_spawn_file_actions_init(&actions_), "posix_spawn_file_actions_init");
    ::posix_spawn_file_actions_adddup2(&actions_, socket, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, socket, STDOUT_FILENO);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
    // Descriptors that the host program left open for its own children are not passed to the worker.
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
#endif
#endif
  }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }

  [[nodiscard]] const posix_spawn_file_actions_t* get() const noexcept { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

class Attributes {
 public:
  Attributes() {
    check(::posix_spawnattr_init(&attributes_), "posix_spawnattr_init");
    sigset_t none, ordinary;
    ::sigemptyset(&none);
    ::sigemptyset(&ordinary);
    // The host program may ignore these signals.
    for (const int signal : {parent_ended, SIGCHLD, SIGPIPE, SIGTERM}) ::sigaddset(&ordinary, signal);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &ordinary);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() { ::posix_spawnattr_destroy(&attributes_); }

  [[nodiscard]] const posix_spawnattr_t* get() const noexcept { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

pid_t spawn(const std::filesystem::path& program, std::string argument, int socket) {
  std::string name = program.string();
  char* const arguments[] = {name.data(), argument.data(), nullptr};
  const FileActions actions(socket);
  const Attributes attributes;
  pid_t process = -1;
  check(::posix_spawn(&process, name.c_str(), actions.get(), attributes.get(), arguments,
                      environment_of_programs()),
        fmt::format("starting {}", name));
  return process;
}

ProcessEnd end_of(int status) {
  if (!WIFSIGNALED(status))
    return {.words = fmt::format("exited with status {}", WEXITSTATUS(status)), .exited = true};
  const int signal = WTERMSIG(status);
  return {.words = fmt::format("ended by signal {} ({})", signal, ::strsignal(signal)), .signal = signal};
}

/// How the process ended; nothing while it runs, which only WNOHANG in `flags` allows.
std::optional<ProcessEnd> reap(pid_t process, int flags) {
  int status = 0;
  pid_t reaped = 0;
  do reaped = ::waitpid(process, &status, flags);
  while (reaped < 0 && errno == EINTR);
  if (reaped == 0) return std::nullopt;
  // A host program that ignores SIGCHLD, or waits for any child, has taken the status.
  if (reaped < 0) return ProcessEnd{.words = "ended, but the host program collected its status first"};
  return end_of(status);
}

/// Makes a private copy of the descriptor. The descriptor itself then leads elsewhere, so that stray output of a
/// library does not reach the conversation.
Descriptor copy_of(int descriptor) {
  Descriptor copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (copy.get() < 0) check(errno, "no descriptor for communication: fcntl");
  return copy;
}

}  // namespace

WorkerProcess::WorkerProcess(const std::filesystem::path& program, const std::string& argument)
    : WorkerProcess(program, argument, connected_sockets()) {}

WorkerProcess::WorkerProcess(const std::filesystem::path& program, const std::string& argument,
                             std::pair<Descriptor, Descriptor> ends)
    : channel_(std::move(ends.first)),
      owner_(::getpid()),
      process_(spawn(program, argument, ends.second.get())) {}

WorkerProcess::~WorkerProcess() {
  if (::getpid() != owner_) return;
  try {
    end(std::chrono::seconds(1));
  } catch (const std::exception&) {
    // Memory is short for the message; the process has been reaped.
  }
}

ProcessEnd WorkerProcess::end(std::chrono::milliseconds patience) {
  if (process_ < 0) return {.words = "ended before"};
  channel_.shut_down();
  const auto deadline = Clock::now() + patience;
  std::optional<ProcessEnd> how;
  while (!(how = reap(process_, WNOHANG)) && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!how) {
    // Not reaped yet, so its number is still its own. Its group is killed, too: CE_WORKER may name a script.
    ::kill(-process_, SIGKILL);
    ::kill(process_, SIGKILL);
    how = reap(process_, 0).value_or(ProcessEnd{.words = "ended"});
    how->by_owner = true;
  }
  process_ = -1;
  return *std::move(how);
}

// The kernel sends the signal whenever the *thread* that started this process ends, so the handler checks whether the
// process is gone, too.
void end_with_parent() {
  static volatile pid_t parent;
  parent = ::getppid();
  struct sigaction action = {};
  action.sa_handler = [](int) {
    if (::getppid() != parent) ::_exit(0);
  };
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(parent_ended, &action, nullptr) != 0) check(errno, "sigaction");
  if (::prctl(PR_SET_PDEATHSIG, parent_ended) != 0) check(errno, "prctl(PR_SET_PDEATHSIG)");
}

ParentProcess::ParentProcess(int in, int out) : out_(copy_of(out)), channel_(copy_of(in), out_.get()) {
  // Started as /proc/self/exe, its name would be "exe" in ps and top.
  ::prctl(PR_SET_NAME, "ce-tune");
  end_with_parent();
  std::signal(SIGPIPE, SIG_IGN);
  ::dup2(STDERR_FILENO, in);
  ::dup2(STDERR_FILENO, out);
}

}  // namespace ce::runtime::cuda
