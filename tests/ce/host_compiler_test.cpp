// Other processes on the host device, and ones whose compiler is missing or fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#include "ce/error.hpp"
#include "tests/ce/child.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/ce/leaks.hpp"
#include "tests/until.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

class HostCompiler : public ContextTest {
 protected:
  /// The version is part of the device's name, so this one tells its own, and compiles nothing any more.
  [[nodiscard]] std::string compiler_that(const std::string& commands) const {
    const char* before = std::getenv("CE_HOST_COMPILER");
    const std::filesystem::path script = folder() / "c++";
    std::ofstream(script) << "#!/bin/sh\n[ \"$1\" = --version ] && exec "
                          << (before != nullptr && *before != '\0' ? before : "c++") << " --version\n"
                          << commands << "\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return script;
  }
};

TEST_F(HostCompiler, IsNotAskedByAnotherProcess) {
  EXPECT_EQ(run_in_a_child(file()).output.substr(0, 6), "tuned ");
  const ChildResult second = run_in_a_child(file());
  EXPECT_EQ(second.output, "database 0\n");
  EXPECT_EQ(second.status, 0);
}

TEST_F(HostCompiler, IsRunByAProgramThatIgnoresTheEndsOfItsChildren) {
  std::signal(SIGCHLD, SIG_IGN);
  {
    Context context(options(Policy::lookup));
    SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
    context.run(Softmax{}, call.tensors());
    call.expect_right();
    EXPECT_EQ(context.compiled(), 1);
  }
  std::signal(SIGCHLD, SIG_DFL);
}

/// Whose own threads are waiting for something as it forks.
TEST_F(HostCompiler, AChildThatCallsNothingEnds) {
  auto context = std::make_unique<Context>(options(Policy::background));
  ASSERT_TRUE(until([&] { return !softmax(*context, 100).provisional; }, std::chrono::minutes(3)));
  ASSERT_TRUE(until(others_wait)) << "it has nothing more to do";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    context.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it was killed, as it did not end";
}

/// The values of a softmax of two equal logits.
bool runs_right() {
  const float input[2] = {1, 1};
  float output[2] = {0, 0};
  run(Softmax{}, {{.data = const_cast<float*>(input), .rows = 1, .columns = 2},
                  {.data = output, .rows = 1, .columns = 2}});
  return output[0] == 0.5F && output[1] == 0.5F;
}

/// What a child of fork() may do while a thread of its parent, which has the tuner to itself, waits for a compiler.
int child_of_a_tuning_process(Context& of_parent, Memory memory) {
  ::alarm(60);
  search_no_leaks();
  ::unsetenv("CE_HOST_COMPILER");
  ::setenv("CE_POLICY", "lookup", 1);
  try {
    static_cast<void>(of_parent.allocate(1));
    return 1;
  } catch (const Unsupported&) {
  }
  try {
    float x = 1;
    of_parent.run(Softmax{}, {{.data = &x, .rows = 1, .columns = 1}, {.data = &x, .rows = 1, .columns = 1}});
    return 2;
  } catch (const Unsupported&) {
  }
  of_parent.stop_background();
  { const Memory end = std::move(memory); }
  return runs_right() ? 0 : 3;
}

/// \param folder  where its compiler says that it has `started`, and waits until it may `go` on
int process_that_tunes_and_forks(const std::filesystem::path& folder) {
  ::alarm(120);
  int status = -1;
  std::jthread tuning([] {
    try {
      runs_right();
    } catch (const Error&) {
    }
  });
  if (!until([&] { return std::filesystem::exists(folder / "started"); })) return 10;
  Context& context = default_context();
  Memory memory = context.allocate(1);
  const pid_t child = ::fork();
  if (child == 0) ::exit(child_of_a_tuning_process(context, std::move(memory)));
  if (::waitpid(child, &status, 0) != child) return 11;
  std::ofstream(folder / "go") << "now";
  return WIFEXITED(status) ? WEXITSTATUS(status) : 12;
}

/// The default Context is a new one there, and one of its parent is refused: neither is waited for.
TEST_F(HostCompiler, AChildRunsWhileAThreadOfItsParentTunes) {
  const std::string here = folder();
  const ScopedEnvironment compiler(
      "CE_HOST_COMPILER",
      compiler_that("touch " + here + "/started; while [ -e " + here + "/started ] && [ ! -e " + here +
                    "/go ]; do sleep 0.01; done; exit 1"));
  const ScopedEnvironment database("CE_DB", file().string()), device("CE_DEVICE", "host");
  const pid_t process = ::fork();  // one without a default Context of an earlier test
  if (process == 0) ::_exit(process_that_tunes_and_forks(folder()));
  int status = -1;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_EQ(status, 0);
}

TEST_F(HostCompiler, NoFolderForTemporaryFilesIsACompileError) {
  const ScopedEnvironment nowhere("TMPDIR", (folder() / "none").string());
  Context context(options(Policy::lookup));
  SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
  try {
    context.run(Softmax{}, call.tensors());
    ADD_FAILURE() << "ran without a place to compile in";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::compile);
    EXPECT_THAT(error.what(), HasSubstr("TMPDIR"));
  }
}

TEST_F(HostCompiler, NoneIsUnsupportedWithHowToMend) {
  const ScopedEnvironment none("CE_HOST_COMPILER", "/nonexistent/c++");
  for (const Policy policy : {Policy::tune, Policy::lookup}) {
    Context context(options(policy));
    SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
    try {
      context.run(Softmax{}, call.tensors());
      ADD_FAILURE() << "ran without a compiler";
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), HasSubstr("/nonexistent/c++"));
      EXPECT_THAT(error.what(), HasSubstr("CE_HOST_COMPILER"));
      EXPECT_THAT(error.what(), HasSubstr("install"));
    }
    // Calls that need no kernel still work.
    EXPECT_NO_THROW(context.check());
  }
}

TEST_F(HostCompiler, AWarmDatabaseNeedsNone) {
  {
    Context context(options(Policy::tune));
    SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
    EXPECT_EQ(context.run(Softmax{}, call.tensors()).origin, Origin::tuned);
  }
  const ScopedEnvironment retired("CE_HOST_COMPILER", compiler_that("echo retired >&2\nexit 1").c_str());
  Context context(options(Policy::tune));
  SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
  EXPECT_EQ(context.run(Softmax{}, call.tensors()).origin, Origin::database);
  call.expect_right();
  EXPECT_EQ(context.compiled(), 0);

  SoftmaxCall unknown(context, {.name = "", .columns = 7000}, 1);
  try {
    context.run(Softmax{}, unknown.tensors());
    ADD_FAILURE() << "ran without a compiler";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::compile);
    EXPECT_THAT(error.what(), HasSubstr("does not compile"));
    EXPECT_THAT(error.what(), HasSubstr("retired"));
  }
}

/// As it is where memory is short. The next call finds everything as it was.
TEST_F(HostCompiler, ThatIsKilledLeavesNoMark) {
  {
    const ScopedEnvironment killed("CE_HOST_COMPILER", compiler_that("kill -KILL $$").c_str());
    Context context(options(Policy::tune));
    SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
    try {
      context.run(Softmax{}, call.tensors());
      ADD_FAILURE() << "ran without a compiler";
    } catch (const CompileError& error) {
      ADD_FAILURE() << "taken for a fault of the source: " << error.what();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::compile);
      EXPECT_THAT(error.what(), HasSubstr("ended by signal 9"));
    }
  }
  Context context(options(Policy::tune));
  SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
  EXPECT_EQ(context.run(Softmax{}, call.tensors()).origin, Origin::tuned);
  call.expect_right();
}

}  // namespace
}  // namespace ce::test
