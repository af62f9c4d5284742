// What people are told of findings by hand.
#include "cli/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ce::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<ProblemFinding> unsure(int runs_after, std::optional<int> needed) {
  tuner::Finding finding{.winner = {.verdict = tuner::Verdict::unsure, .before = 5, .after = runs_after},
                         .runs_needed = needed};
  return {{.key = {"softmax", "a device"}, .title = "softmax", .finding = finding}};
}

TEST(Findings, OfAnUnsureOneSayWhatWouldTell) {
  const std::string more = text_of(unsure(2, 9), false, "ce-tune regressions --since 2030-01-31");
  EXPECT_THAT(more, HasSubstr(": 7 more runs would tell 1.5% (ce-tune check --runs 7, then "
                              "ce-tune regressions --since 2030-01-31)\n"));
  EXPECT_THAT(
      text_of(unsure(2, std::nullopt), false, "this again"),
      HasSubstr(": 5 runs before are too few to tell 1.5%; the next check is held against all runs so "
                "far with the newest software\n"));
  EXPECT_THAT(text_of(unsure(9, 9), false, "this again"), Not(HasSubstr("1.5%")));
}

}  // namespace
}  // namespace ce::cli
