// The caller's floating-point environment: rounding, traps, flags, subnormal numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <limits>
#include <vector>

#include "cache/cache.hpp"
#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/odd_floating_environment.hpp"
#include "tests/until.hpp"

namespace ce::test {
namespace {

class FloatingEnvironment : public ContextTest {
 protected:
  /// So short that the first config which is right is the last.
  [[nodiscard]] ContextOptions short_search(Policy policy) const {
    ContextOptions chosen = options(policy);
    chosen.tuning_seconds = 1e-3;
    return chosen;
  }
  /// What is said to be wrong.
  [[nodiscard]] std::int64_t quarantined() const {
    std::int64_t count = 0;
    for (const cache::KeySummary& key : cache::Cache::open(file()).keys()) count += key.quarantined;
    return count;
  }
  static constexpr auto none = Reduction::none;
};

TEST_F(FloatingEnvironment, OfTheCallerChangesNoTuningAndStays) {
  Context context(short_search(Policy::tune));
  CrossEntropyCall call(context, {.name = "", .columns = 40, .reduction = none}, 1);
  std::vector<std::byte> first;
  {
    const OddFloatingEnvironment odd(FE_UPWARD);
    EXPECT_EQ(context.run(call.operation(), call.tensors()).origin, Origin::tuned);
    first = call.result();
    context.run(call.operation(), call.tensors());  // a known call, which only launches
    context.prepare(call.operation(), call.tensors()).run();
    const CrossEntropy refused{.logit_scale = std::numeric_limits<float>::quiet_NaN()};
    EXPECT_THROW(context.run(refused, call.tensors()), InvalidArgument);
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    EXPECT_EQ(::fegetexcept(), OddFloatingEnvironment::traps);
    EXPECT_EQ(std::fetestexcept(OddFloatingEnvironment::traps), 0);
  }
  call.expect_right();
  EXPECT_EQ(call.result(), first);
  call.spoil();
  context.run(call.operation(), call.tensors());
  EXPECT_EQ(call.result(), first) << "the kernel computed otherwise under the caller's environment";
  EXPECT_EQ(quarantined(), 0);
}

TEST_F(FloatingEnvironment, OfTheCallerIsThereAfterTheEndOfAContext) {
  const OddFloatingEnvironment odd(FE_TOWARDZERO);
  { const Context context(options(Policy::lookup)); }
  EXPECT_EQ(std::fegetround(), FE_TOWARDZERO);
  EXPECT_EQ(::fegetexcept(), OddFloatingEnvironment::traps);
}

TEST_F(FloatingEnvironment, OfWhoMakesAContextIsNotThatOfItsThread) {
  {
    const OddFloatingEnvironment odd(FE_UPWARD);
    Context context(short_search(Policy::background));
    CrossEntropyCall call(context, {.name = "", .columns = 40, .reduction = none}, 1);
    EXPECT_TRUE(until([&] { return !context.run(call.operation(), call.tensors()).provisional; }));
  }
  EXPECT_EQ(quarantined(), 0);
}

}  // namespace
}  // namespace ce::test
