#include "runtime/host/compiler.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/own_descriptor.hpp"
#include "ce/error.hpp"
#include "runtime/compile_limit.hpp"
#include "runtime/host/elf_image.hpp"
#include "runtime/source_folder.hpp"

namespace ce::runtime::host {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* how_to_get_a_compiler =
    "install one (Debian and Ubuntu: apt install g++) or name one in CE_HOST_COMPILER";

struct Outcome {
  std::string output;       ///< standard output and error, as they came
  std::string failure;      ///< empty when the program ended with status 0
  bool was_killed = false;  ///< ended by the user, the system (for example when memory is short) or a limit
};

/// Whether the signal is unrelated to the source: it comes from limits, a user or the system.
bool is_of_others(int signal) { return signal == SIGKILL || signal == SIGXFSZ || signal == SIGXCPU; }

/// Whether the program's messages say that the environment, not the source, made it fail.
bool lacked_room(const std::string& output) {
  for (const char* words :
       {"No space left on device", "out of memory", "Cannot allocate memory", "Killed signal",
        "File too large", "File size limit exceeded", "Disk quota exceeded"})
    if (output.find(words) != std::string::npos) return true;
  return false;
}

/// Throws if a step of running a program failed. `error` is the error number that its call returned.
void check(int error, std::string_view call) {
  if (error != 0)
    throw Error(ErrorKind::compile, fmt::format("{}: {}", call, std::generic_category().message(error)));
}

/// The environment of a program that keeps temporary files in its working folder, so that they are removed with the
/// folder if it is killed. In the root folder, where nothing is compiled, it is unchanged.
class ChildEnvironment {
 public:
  explicit ChildEnvironment(const fs::path& folder) : own_("TMPDIR=" + fs::absolute(folder).string()) {
    const bool is_own = folder.has_relative_path();
    constexpr std::string_view name = "TMPDIR=";
    for (char* const* variable = environment_of_programs(); *variable != nullptr; ++variable)
      if (!is_own || !std::string_view(*variable).starts_with(name)) all_.push_back(*variable);
    if (is_own) all_.push_back(own_.data());
    all_.push_back(nullptr);
  }
  ChildEnvironment(const ChildEnvironment&) = delete;
  ChildEnvironment& operator=(const ChildEnvironment&) = delete;

  [[nodiscard]] char* const* data() const noexcept { return all_.data(); }

 private:
  std::string own_;
  std::vector<char*> all_;
};

/// Starts a program in a process group of its own, so that its children can be ended with it.
pid_t spawn(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& folder,
            int input, int output) {
  std::vector<char*> argv;
  std::string first = program.string();
  argv.push_back(first.data());
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  check(::posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
  check(::posix_spawnattr_init(&attributes), "posix_spawnattr_init");
  ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  ::posix_spawnattr_setpgroup(&attributes, 0);
  // A compiler waits for its own children, even if this process ignores SIGCHLD.
  sigset_t by_default;
  ::sigemptyset(&by_default);
  ::sigaddset(&by_default, SIGCHLD);
  ::posix_spawnattr_setsigdefault(&attributes, &by_default);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, program.c_str(), &actions, &attributes, argv.data(),
                                  ChildEnvironment(folder).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  check(error, fmt::format("starting {}", program.string()));
  return child;
}

struct Pipe {
  OwnDescriptor reading, writing;
};

Pipe new_pipe() {
  Pipe pipe;
  int end = -1;
  pipe.writing = OwnDescriptor([&] {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
    end = ends[0];
    return ends[1];
  });
  if (pipe.writing.get() < 0) check(errno, "pipe2");
  pipe.reading = OwnDescriptor([&] { return end; });
  return pipe;
}

/// A standard input that is already at its end. Not /dev/null, which some containers lack.
OwnDescriptor empty_input() { return std::move(new_pipe().reading); }

/// Whether the program has ended. It is not reaped.
bool has_ended(pid_t child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return errno == ECHILD;  // this process keeps no statuses
  return info.si_pid == child;
}

/// Collects a program's output as it arrives.
class Output {
 public:
  Output(int descriptor, std::string& text) : descriptor_(descriptor), text_(text) {}

  /// Waits a limited time for output. \returns whether there was any
  bool read(std::chrono::milliseconds pause) {
    pollfd event{is_open_ ? descriptor_ : -1, POLLIN, 0};
    if (::poll(&event, 1, static_cast<int>(pause.count())) <= 0) return false;
    std::array<char, 4096> part;
    const ssize_t bytes = ::read(descriptor_, part.data(), part.size());
    if (bytes < 0 && errno != EINTR) check(errno, "reading the compiler's messages");
    if (bytes > 0) text_.append(part.data(), static_cast<std::size_t>(bytes));
    is_open_ = bytes != 0;
    return bytes > 0;
  }
  /// Reads the rest of an ended program's output, but not what its children go on writing.
  void read_rest() {
    constexpr std::size_t most_in_a_pipe = 1 << 20;  // largest pipe that an ordinary user can make
    const std::size_t before = text_.size();
    while (read(std::chrono::milliseconds(0)) && text_.size() - before < most_in_a_pipe) {
    }
  }
  /// False once the pipe has ended, which a program's children may hold open longer than it runs.
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }

 private:
  int descriptor_;
  std::string& text_;
  bool is_open_ = true;
};

/// Reads until the program ends; returns false if the deadline comes first.
bool read_to_end(pid_t child, int descriptor, Clock::time_point deadline, std::string& text) {
  constexpr std::chrono::milliseconds short_pause{1}, long_pause{20};
  Output output(descriptor, text);
  while (!has_ended(child)) {
    if (Clock::now() >= deadline) return false;
    output.read(output.is_open() ? long_pause : short_pause);
  }
  output.read_rest();
  return true;
}

Outcome run(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& folder,
            std::chrono::milliseconds limit) {
  Pipe messages = new_pipe();
  const pid_t child = spawn(program, arguments, folder, empty_input().get(), messages.writing.get());
  messages.writing.reset();

  Outcome outcome;
  const bool ended = read_to_end(child, messages.reading.get(), Clock::now() + limit, outcome.output);
  if (!ended) {
    ::kill(-child, SIGKILL);
    ::kill(child, SIGKILL);  // in case it has left its group
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno == ECHILD) break;  // this process keeps no statuses; the output file shows the result
    if (errno != EINTR) check(errno, "waitpid");
  }
  if (!ended)
    outcome.failure = fmt::format("killed because it did not end within {} ms", limit.count());
  else if (WIFSIGNALED(status))
    outcome.failure = fmt::format("ended by signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    outcome.failure = fmt::format("exit status {}", WEXITSTATUS(status));
  outcome.was_killed = ended && WIFSIGNALED(status) && is_of_others(WTERMSIG(status));
  return outcome;
}

std::optional<fs::path> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return ::access(name.c_str(), X_OK) == 0 ? std::optional(fs::absolute(name)) : std::nullopt;
  std::istringstream folders(environment_variable("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (::access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate))
      return fs::absolute(candidate);
  }
  return std::nullopt;
}

/// "g++ 12.2.0" from "c++ (Debian 12.2.0-14) 12.2.0", "clang++ 14.0.0" from "Ubuntu clang version 14.0.0-1".
std::string short_version(const std::string& text) {
  const auto number = [](std::string_view word) {
    return word.substr(0, std::min(word.find_first_not_of("0123456789."), word.size()));
  };
  std::istringstream words(text.substr(0, text.find('\n')));
  const bool clang = text.find("clang") != std::string::npos;
  std::string before;
  for (std::string word; words >> word; before = word) {
    const std::string_view digits = number(word);
    if (digits.find('.') == std::string_view::npos) continue;
    if (clang && before == "version") return fmt::format("clang++ {}", digits);
    if (!clang && digits.size() == word.size()) return fmt::format("g++ {}", digits);
  }
  return text.substr(0, text.find('\n'));
}

std::vector<std::byte> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

}  // namespace

Compiler::Compiler() : limit_(compile_limit(120)) {
  const std::optional<std::string> named = environment_variable("CE_HOST_COMPILER");
  std::vector<std::string> candidates = {"c++", "g++", "clang++"};
  if (named) candidates = {*named};
  for (const std::string& candidate : candidates) {
    const std::optional<fs::path> program = find_program(candidate);
    if (!program) continue;
    std::string failure;
    try {
      const Outcome outcome = run(*program, {"--version"}, "/", std::chrono::seconds(20));
      failure = outcome.failure;
      version_ = short_version(outcome.output);
    } catch (const Error& error) {  // the file is executable, but not a program
      failure = error.what();
    }
    if (failure.empty()) {
      path_ = *program;
      why_not_.clear();
      return;
    }
    why_not_ = fmt::format("{} --version failed ({}); {}", program->string(), failure, how_to_get_a_compiler);
  }
  if (why_not_.empty())
    why_not_ = fmt::format("the host device needs a C++20 compiler, but {} was not found; {}",
                           fmt::join(candidates, ", "), how_to_get_a_compiler);
}

const std::string& Compiler::version() const {
  if (!found()) throw Unsupported(why_not_);
  return version_;
}

Binary Compiler::compile(const CompileRequest& request, std::chrono::milliseconds limit) const {
  if (!found()) throw Unsupported(why_not_);
  SourceFolder folder(request);

  // Hidden symbols keep inline functions of a kernel from being shared with other loaded kernels. Results must be equal
  // on every machine: no fused multiply-adds. A frame must fit on a fiber's stack.
  std::vector<std::string> arguments = {"-std=c++20",
                                        "-O1",
                                        "-shared",
                                        "-fPIC",
                                        "-DCE_HOST",
                                        "-I.",  // headers include each other relative to the top folder
                                        "-fvisibility=hidden",
                                        "-fno-strict-aliasing",
                                        "-ffp-contract=off",
                                        "-Wno-unknown-pragmas",
                                        "-Wframe-larger-than=32768",
                                        "-Werror=frame-larger-than="};
  if (version_.starts_with("clang")) {
    arguments.back() = "-Werror=frame-larger-than";
    arguments.emplace_back("-Wno-pass-failed");  // ignores loops that were not unrolled although asked for
  } else {
    arguments.back() += "32768";
  }
  arguments.insert(arguments.end(), request.options.begin(), request.options.end());
  arguments.insert(arguments.end(), {"-o", "kernel.so", "-x", "c++", folder.file()});

  Outcome outcome = run(path_, arguments, folder.path(), limit);
  if (!outcome.failure.empty()) {
    const std::string log = fmt::format("{}{}: {}\n", outcome.output, path_.string(), outcome.failure);
    if (outcome.was_killed || lacked_room(outcome.output))
      throw Error(ErrorKind::compile, request.name + " was not compiled: " + log);
    throw CompileError(request.name, log, folder.keep());
  }
  Binary binary{.image = read_file(folder.path() / "kernel.so"), .log = std::move(outcome.output)};
  if (const std::string why = incompleteness(binary.image); !why.empty())
    throw Error(
        ErrorKind::compile,
        fmt::format("{} was not compiled: {} ended with status 0, but its output is not a kernel ({}); {}",
                    request.name, path_.string(), why, binary.log));
  return binary;
}

}  // namespace ce::runtime::host
