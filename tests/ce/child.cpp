#include "tests/ce/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "ce/log.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/run_tests.hpp"

namespace ce::test {
namespace {

constexpr std::string_view task = "--softmax-with-database";

int run_softmax_or_say_why_not(const char* database) {
  try {
    ContextOptions options;
    options.device = tested_device();
    options.database = database;
    std::optional<Context> own;
    Context& context = options.database.empty() ? default_context() : own.emplace(options);
    SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
    const Choice& choice = context.run(Softmax{}, call.tensors());
    context.synchronize();
    call.expect_right();
    fmt::print("{} {}\n", name(choice.origin), context.compiled());
    return testing::Test::HasFailure() ? 1 : 0;
  } catch (const Error& error) {
    fmt::print("{}: {}\n", name(error.kind()), error.what());
    return 2;
  }
}

/// What the child does.
int run_softmax(const char* database) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) warnings.emplace_back(line);
  });
  const int status = run_softmax_or_say_why_not(database);
  set_log_sink({});
  for (const std::string& warning : warnings) fmt::print("warning: {}\n", warning);
  return status;
}

}  // namespace

ChildResult run_in_a_child(const std::filesystem::path& database) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  std::string program = "ce_test", first(task), second = database.string();
  std::array<char*, 4> arguments{program.data(), first.data(), second.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    throw std::system_error(error, std::generic_category(), "posix_spawn");
  }

  ChildResult result;
  std::array<char, 1024> part{};
  for (ssize_t bytes = 1; bytes != 0;) {
    bytes = ::read(ends[0], part.data(), part.size());
    if (bytes > 0) result.output.append(part.data(), static_cast<std::size_t>(bytes));
    if (bytes < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result;
}

}  // namespace ce::test

int main(int argc, char** argv) {
  if (argc == 3 && argv[1] == ce::test::task) return ce::test::run_softmax(argv[2]);
  return ce::test::run_tests(argc, argv);
}
