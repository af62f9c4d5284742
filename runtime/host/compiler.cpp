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
#include <system_error>
#include <utility>
#include <vector>

#include "ce/base/environment.hpp"
#include "ce/base/error.hpp"
#include "ce/base/own_descriptor.hpp"
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
  bool was_killed = false;  ///< by somebody else, as where memory is short
};

/// Whether the program says that it was not the source that ended it.
bool lacked_room(const std::string& output) {
  for (const char* words :
       {"No space left on device", "out of memory", "Cannot allocate memory", "Killed signal"})
    if (output.find(words) != std::string::npos) return true;
  return false;
}

/// Throws for a failed step of running a program, whose calls return the error's number.
void check(int error, std::string_view call) {
  if (error != 0)
    throw Error(ErrorKind::compile, fmt::format("{}: {}", call, std::generic_category().message(error)));
}

/// Starts a program in a process group of its own, so that its children can be ended with it.
pid_t spawn(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& folder,
            int output) {
  std::vector<char*> argv;
  std::string first = program.string();
  argv.push_back(first.data());
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  check(::posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
  check(::posix_spawnattr_init(&attributes), "posix_spawnattr_init");
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  ::posix_spawnattr_setpgroup(&attributes, 0);
  // A compiler waits for programs of its own, also where this process ignores the ends of its children.
  sigset_t by_default;
  ::sigemptyset(&by_default);
  ::sigaddset(&by_default, SIGCHLD);
  ::posix_spawnattr_setsigdefault(&attributes, &by_default);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, program.c_str(), &actions, &attributes, argv.data(), environment_of_programs());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  check(error, fmt::format("starting {}", program.string()));
  return child;
}

/// Reads until the other end is closed; false when the deadline came first.
bool read_all(int descriptor, Clock::time_point deadline, std::string& text) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd event{descriptor, POLLIN, 0};
    if (::poll(&event, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000))) <= 0) continue;
    std::array<char, 4096> part;
    const ssize_t bytes = ::read(descriptor, part.data(), part.size());
    if (bytes == 0) return true;
    if (bytes > 0) text.append(part.data(), static_cast<std::size_t>(bytes));
    if (bytes < 0 && errno != EINTR) check(errno, "reading the compiler's messages");
  }
}

Outcome run(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& folder,
            std::chrono::milliseconds limit) {
  int end = -1;
  OwnDescriptor reading, writing([&] {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
    end = ends[0];
    return ends[1];
  });
  if (writing.get() < 0) check(errno, "pipe2");
  reading = OwnDescriptor([&] { return end; });
  const pid_t child = spawn(program, arguments, folder, writing.get());
  writing.reset();

  Outcome outcome;
  const bool ended = read_all(reading.get(), Clock::now() + limit, outcome.output);
  if (!ended) ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno == ECHILD) break;  // this process keeps no statuses: what was to be written tells
    if (errno != EINTR) check(errno, "waitpid");
  }
  if (!ended)
    outcome.failure = fmt::format("killed after {} ms without an end", limit.count());
  else if (WIFSIGNALED(status))
    outcome.failure = fmt::format("ended by signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    outcome.failure = fmt::format("exit status {}", WEXITSTATUS(status));
  outcome.was_killed = ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
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
  if (bytes.empty())
    throw Error(ErrorKind::compile, fmt::format("the compiler left nothing at {}", path.string()));
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

}  // namespace

Compiler::Compiler() {
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
    } catch (const Error& error) {  // a file that is executable but no program
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
    why_not_ = fmt::format("the host device needs a C++20 compiler and found no {}; {}",
                           fmt::join(candidates, ", "), how_to_get_a_compiler);
}

const std::string& Compiler::version() const {
  if (!found()) throw Unsupported(why_not_);
  return version_;
}

Binary Compiler::compile(const CompileRequest& request, std::chrono::milliseconds limit) const {
  if (!found()) throw Unsupported(why_not_);
  SourceFolder folder(request);

  // Hidden symbols keep what is inline in a kernel from being shared with other loaded kernels. Results are
  // to be the same on every machine: no fused multiply-adds. A frame must fit on a fiber's stack.
  std::vector<std::string> arguments = {"-std=c++20",
                                        "-O1",
                                        "-shared",
                                        "-fPIC",
                                        "-DCE_HOST",
                                        "-fvisibility=hidden",
                                        "-fno-strict-aliasing",
                                        "-ffp-contract=off",
                                        "-Wno-unknown-pragmas",
                                        "-Wframe-larger-than=32768",
                                        "-Werror=frame-larger-than="};
  if (version_.starts_with("clang")) {
    arguments.back() = "-Werror=frame-larger-than";
    arguments.emplace_back("-Wno-pass-failed");  // a loop that was asked to be unrolled and is not
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
  return {.image = read_file(folder.path() / "kernel.so"), .log = std::move(outcome.output)};
}

}  // namespace ce::runtime::host
