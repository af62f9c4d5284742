// Which kernel is chosen, when something is tuned, and what is remembered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "generator/config.hpp"
#include "tests/ce/child.hpp"
#include "tests/ce/fixture.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

using ChoiceTest = ContextTest;

TEST_F(ChoiceTest, TunedOnceThenRememberedThenNearest) {
  const LogLines log;
  Choice tuned;
  {
    Context context(options(Policy::tune));
    tuned = softmax(context, 256);
    EXPECT_EQ(tuned.origin, Origin::tuned);
    EXPECT_NO_THROW(static_cast<void>(generator::parse_config(tuned.config)));
    EXPECT_NE(tuned.reason, "");
    EXPECT_EQ(tuned.key.size(), 12);
    const int compiled = context.compiled();
    EXPECT_GE(compiled, 1);
    // The same bucket of rows, and the same problem again: nothing new.
    const Choice again = softmax(context, 256, 9);
    EXPECT_EQ(again.origin, Origin::tuned);
    EXPECT_EQ(again.config, tuned.config);
    EXPECT_EQ(context.compiled(), compiled);
    EXPECT_EQ(log.count(LogLevel::info, "tuned softmax f32 12 x 256"), 1);
    EXPECT_EQ(log.count(LogLevel::info, "tuned "), 1);
  }
  for (const Policy policy : {Policy::tune, Policy::lookup}) {
    Context context(options(policy));
    const Choice known = softmax(context, 256);
    EXPECT_EQ(known.origin, Origin::database);
    EXPECT_EQ(known.config, tuned.config);
    EXPECT_EQ(known.key, tuned.key);
    EXPECT_EQ(known.reason, tuned.reason);
    EXPECT_EQ(context.compiled(), 0);
  }
  Context context(options(Policy::lookup));
  const Choice near = softmax(context, 256, 40);  // another bucket of rows
  EXPECT_EQ(near.origin, Origin::nearest);
  // What times of the near problem say of this one, where another config may be best.
  EXPECT_EQ(near.config, predicted({.rows = 40, .columns = 256}));
  EXPECT_NE(near.key, tuned.key);
  EXPECT_THAT(near.reason, HasSubstr("the policy is lookup"));
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 1);
}

TEST_F(ChoiceTest, ALookupOfNothingIsTheSafeDefault) {
  const LogLines log;
  Context context(options(Policy::lookup));
  const Choice choice = softmax(context, 100);
  EXPECT_EQ(choice.origin, Origin::fallback);
  EXPECT_THAT(choice.reason, HasSubstr("safe default"));
  EXPECT_THAT(choice.reason, HasSubstr("the policy is lookup"));
  EXPECT_EQ(context.compiled(), 1);
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 0);
  // Chosen for now, and no worse for it: the second call compiles nothing.
  EXPECT_EQ(softmax(context, 100).config, choice.config);
  EXPECT_EQ(context.compiled(), 1);
}

TEST_F(ChoiceTest, PlansSayWhatTheyRun) {
  Context context(options(Policy::lookup));
  SoftmaxCall call(context, {.name = "", .columns = 100}, 1);
  const Plan plan = context.prepare(Softmax{}, call.tensors());
  EXPECT_EQ(plan.choice().origin, Origin::fallback);
  const Choice& ran = context.run(Softmax{}, call.tensors());
  EXPECT_EQ(plan.choice().config, ran.config);
  EXPECT_EQ(plan.choice().key, ran.key);
}

TEST_F(ChoiceTest, ADatabaseThatCannotBeWritten) {
  // A file where a folder should be binds root too, unlike permission bits.
  std::ofstream(folder() / "file") << "in the way";
  ContextOptions unwritable = options(Policy::tune);
  unwritable.database = folder() / "file" / "ce.db";
  const LogLines log;
  for (int process = 0; process < 2; ++process) {
    Context context(unwritable);
    EXPECT_EQ(softmax(context, 64).origin, Origin::tuned);
    EXPECT_GT(context.compiled(), 0);
  }
  EXPECT_EQ(log.count(LogLevel::warning, (folder() / "file").string()), 1);
  EXPECT_EQ(log.count(LogLevel::info, "tuned softmax"), 2);
}

TEST_F(ChoiceTest, TheEnvironmentNamesDatabaseAndDevice) {
  const ScopedEnvironment database("CE_DB", (folder() / "other.db").c_str());
  const ScopedEnvironment device("CE_DEVICE", tested_device().c_str());
  Context context(ContextOptions{.device = "", .database = {}, .policy = Policy::lookup});
  softmax(context, 100);
  EXPECT_THAT(context.device_name(), testing::StartsWith(tested_device()));
  EXPECT_TRUE(std::filesystem::exists(folder() / "other.db"));
  EXPECT_FALSE(std::filesystem::exists(file()));

  const ScopedEnvironment nonsense("CE_DEVICE", "abacus");
  try {
    const Context of_nonsense(ContextOptions{.device = "", .database = file()});
    ADD_FAILURE() << "abacus is no device";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "CE_DEVICE");
    EXPECT_EQ(error.value(), "\"abacus\"");
  }
  const ChildResult by_default = run_in_a_child({});
  EXPECT_NE(by_default.status, 0);
  EXPECT_THAT(by_default.output, HasSubstr("CE_DEVICE is \"abacus\"; expected"));
}

/// A user who does not ask for the host device hears that it runs, also where all is known.
TEST_F(ChoiceTest, WantOfAGpuIsSaidOnce) {
  const ScopedEnvironment no_driver("CE_LIBCUDA", "/nonexistent/libcuda.so"),
      database("CE_DB", file().string()), policy("CE_POLICY", "lookup");
  for (const char* device : {static_cast<const char*>(nullptr), "host"}) {
    const ScopedEnvironment chosen("CE_DEVICE", device);
    const ChildResult child = run_in_a_child({});
    EXPECT_EQ(child.status, 0) << child.output;
    EXPECT_EQ(
        child.output.find("warning: no GPU was found: kernels run on the host device") != std::string::npos,
        device == nullptr)
        << child.output;
  }
}

TEST_F(ChoiceTest, AContextWithoutADeviceSaysSoToo) {
  const ScopedEnvironment chosen("CE_DEVICE", static_cast<const char*>(nullptr));
  if (default_device_name() != "host") GTEST_SKIP() << "there is a GPU";
  static int runs = 0;
  if (++runs > 1) GTEST_SKIP() << "it was said in this process";
  ContextOptions by_default = options(Policy::lookup);
  by_default.device = "";
  const LogLines lines;
  const Context first(by_default), second(by_default), host(options(Policy::lookup));
  EXPECT_EQ(lines.count(LogLevel::warning, "no GPU was found"), 1);
}

}  // namespace
}  // namespace ce::test
