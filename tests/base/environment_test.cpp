// Environment variables, also of a program that has more rights than who started it.
#include "base/environment.hpp"

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/environment.hpp"

namespace {

constexpr const char* in_child = "CE_TEST_IN_CHILD";
constexpr int not_secure = 77;

TEST(Environment, EmptyVariablesCountAsUnset) {
  const ce::test::ScopedEnvironment set("CE_DB", "file");
  EXPECT_EQ(ce::environment_variable("CE_DB"), "file");
  const ce::test::ScopedEnvironment empty("CE_DB", "");
  EXPECT_EQ(ce::environment_variable("CE_DB"), std::nullopt);
  const ce::test::ScopedEnvironment unset("CE_DB", nullptr);
  EXPECT_EQ(ce::environment_variable("CE_DB"), std::nullopt);
}

TEST(Environment, IsWhatProgramsGet) { EXPECT_EQ(ce::environment_of_programs(), environ); }

/// What the other test runs as another process.
TEST(EnvironmentOfASetUidProgram, InChild) {
  if (::getenv(in_child) == nullptr) GTEST_SKIP() << "for the test that starts this one";
  if (::getauxval(AT_SECURE) == 0) ::_exit(not_secure);
  EXPECT_EQ(ce::environment_variable(in_child), std::nullopt);
  EXPECT_EQ(ce::environment_variable("PATH"), std::nullopt);
  char* const* of_programs = ce::environment_of_programs();
  EXPECT_STREQ(of_programs[0], "PATH=/usr/local/bin:/usr/bin:/bin");
  EXPECT_EQ(of_programs[1], nullptr);
  std::fflush(stdout);
  ::_exit(HasFailure() ? 1 : 0);  // LeakSanitizer would look at exit, and may not look into such a process
}

/// Root can start a program whose user is not its starter, without a file that is set-uid.
TEST(EnvironmentOfASetUidProgram, CountsAsUnset) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may start a program as somebody else";
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(in_child, "1", 1);
    if (::setresuid(0, 65534, 65534) != 0) ::_exit(not_secure);
    ::execl("/proc/self/exe", "base_test", "--gtest_filter=EnvironmentOfASetUidProgram.InChild", nullptr);
    ::_exit(not_secure);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == not_secure)
    GTEST_SKIP() << "this system does not mark such programs";
  EXPECT_EQ(status, 0);
}

}  // namespace
