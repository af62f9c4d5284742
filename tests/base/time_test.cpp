#include "base/time.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

namespace ce {
namespace {

TEST(Time, IsAText) {
  EXPECT_EQ(utc_text({.tv_sec = 0, .tv_nsec = 0}), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(utc_text({.tv_sec = 1'896'091'199, .tv_nsec = 999'999'999}), "2030-01-31T11:59:59.999Z");
}

TEST(Time, HasAsManyDigitsAtAnyTime) {
  constexpr std::time_t before = -70'000'000'000, after = 300'000'000'000;
  EXPECT_EQ(utc_text({.tv_sec = before, .tv_nsec = 5'000'000}), "0000-01-01T00:00:00.000Z");
  EXPECT_EQ(utc_text({.tv_sec = after, .tv_nsec = 5'000'000}), "9999-12-31T23:59:59.000Z");
}

TEST(Time, GoesOn) {
  const std::string first = utc_now(), second = utc_now();
  EXPECT_EQ(first.size(), utc_text({}).size());
  EXPECT_LE(first, second);
  EXPECT_GT(first, "2026");
}

}  // namespace
}  // namespace ce
