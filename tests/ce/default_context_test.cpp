// The options of the default Context, each time in a process that has none yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "ce/ce.hpp"
#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"

namespace ce::test {
namespace {

/// Expectations that fail in the child fail here.
template <class Body>
void in_a_child(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    body();
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status of wait(): " << status;
}

void run_softmax() {
  std::array<float, 4> x{};
  const Tensor view = tensor(x.data(), 1, 4);
  run(Softmax{}, {.input = view, .output = view});
}

class DefaultContext : public ContextTest {
 protected:
  /// With a database of this name.
  [[nodiscard]] ContextOptions frozen(const char* database) const {
    return {.device = "host", .database = folder() / database, .policy = Policy::frozen};
  }
  [[nodiscard]] bool exists(const char* database) const {
    return std::filesystem::exists(folder() / database);
  }
};

TEST_F(DefaultContext, TakesOptionsBeforeItsFirstUse) {
  in_a_child([&] {
    configure_default_context(frozen("first.db"));
    configure_default_context(frozen("second.db"));
    EXPECT_EQ(default_context().device_name(), "host");
    EXPECT_THROW(run_softmax(), NotTuned);
    EXPECT_FALSE(exists("first.db"));
    EXPECT_TRUE(exists("second.db"));
  });
}

TEST_F(DefaultContext, TakesNoneOnceItIsAskedFor) {
  in_a_child([&] {
    configure_default_context(frozen("own.db"));
    static_cast<void>(default_context());
    try {
      configure_default_context({.device = "host"});
      ADD_FAILURE() << "was configured again";
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("already used the default Context"));
    }
    EXPECT_THROW(run_softmax(), NotTuned);
  });
}

TEST_F(DefaultContext, RefusesOptionsThatMeanNothing) {
  in_a_child([&] {
    configure_default_context(frozen("own.db"));
    for (const ContextOptions& wrong :
         {ContextOptions{.device = "gpu"}, ContextOptions{.policy = Policy(9)},
          ContextOptions{.tuning_seconds = -1}, ContextOptions{.scratch_bytes = -1},
          ContextOptions{.capture_bytes = -1}})
      EXPECT_THROW(configure_default_context(wrong), InvalidArgument);
    EXPECT_THROW(run_softmax(), NotTuned) << "the options before hold";
  });
}

TEST_F(DefaultContext, OfAChildHasTheOptionsOfItsParentOrItsOwn) {
  in_a_child([&] {
    configure_default_context(frozen("parent.db"));
    static_cast<void>(default_context());
    in_a_child([] { EXPECT_THROW(run_softmax(), NotTuned); });
    in_a_child([&] {
      configure_default_context(frozen("child.db"));
      EXPECT_THROW(run_softmax(), NotTuned);
      EXPECT_TRUE(exists("child.db"));
    });
  });
}

}  // namespace
}  // namespace ce::test
