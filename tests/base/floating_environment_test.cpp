#include "base/floating_environment.hpp"

#include <gtest/gtest.h>

#include <cfenv>
#include <thread>

#include "tests/odd_floating_environment.hpp"

namespace {

using ce::DefaultFloatingEnvironment;

/// Of what only the processor can tell.
struct Seen {
  double third, subnormal;
  bool operator==(const Seen&) const = default;
};

Seen look() {
  volatile double one = 1, three = 3, smallest = 0x1p-1022;
  volatile double third = one / three, subnormal = smallest / 2;  // made at run time, one after the other
  return {third, subnormal * 2};
}

TEST(DefaultFloatingEnvironment, IsTheDefaultForThisThreadAndThoseItStarts) {
  const Seen expected{1.0 / 3, 0x1p-1022};
  const ce::test::OddFloatingEnvironment odd(FE_UPWARD);
  EXPECT_NE(look(), expected);
  {
    const DefaultFloatingEnvironment environment;
    EXPECT_EQ(look(), expected);
    EXPECT_EQ(::fegetexcept(), 0);
    Seen of_thread{};
    std::thread([&] { of_thread = look(); }).join();
    EXPECT_EQ(of_thread, expected);
    volatile double zero = 0;
    volatile const double infinite = 1 / zero;
    EXPECT_GT(infinite, 0);
  }
  EXPECT_NE(look(), expected);
}

TEST(DefaultFloatingEnvironment, ExceptionFlagsAreTheCallers) {
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_INVALID);
  {
    const DefaultFloatingEnvironment environment;
    std::feclearexcept(FE_ALL_EXCEPT);
    std::feraiseexcept(FE_OVERFLOW | FE_DIVBYZERO);
  }
  EXPECT_EQ(std::fetestexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO), FE_INVALID);
  std::feclearexcept(FE_ALL_EXCEPT);
}

}  // namespace
