// What people are told of findings by hand.
#include "cli/analysis/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ce::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

ProblemFinding finding_of(tuner::Comparison winner, std::optional<int> needed = {}) {
  tuner::Finding finding{.winner = winner, .runs_needed = needed};
  return {.key = {"softmax", "a device"}, .title = "softmax", .finding = finding};
}

ProblemFinding unsure(int runs_after, std::optional<int> needed) {
  return finding_of({.verdict = tuner::Verdict::unsure, .before = 5, .after = runs_after}, needed);
}

TEST(Findings, OneLineSaysWhatWouldTellOfUnsureOnes) {
  const std::string more =
      text_of({unsure(2, 9), unsure(2, 4), unsure(2, 5), unsure(9, 9), unsure(2, std::nullopt)}, false,
              "ce-tune regressions --since 2030-01-31");
  EXPECT_THAT(
      more,
      HasSubstr(
          "\n3 problems unsure: 7 more runs of each would show an effect of 1.5%, or 3 for 2 of them "
          "(ce-tune check --runs 7, then ce-tune regressions --since 2030-01-31)\n"
          "1 problem unsure: too few runs before the change to show an effect of 1.5%; the next check is "
          "compared with all runs so far with the newest software\n"
          "1 problem unsure: the effect is near 1%, or times of runs vary"));
  EXPECT_THAT(text_of({unsure(2, 9)}, false, "this again"),
              HasSubstr("\n1 problem unsure: 7 more runs of each would show an effect of 1.5% (ce-tune check "
                        "--runs 7, then "
                        "this again)\n"));
  EXPECT_THAT(text_of({unsure(9, 9)}, false, "this again"), Not(HasSubstr("1.5%")));
}

TEST(Findings, ManyUnsureOnesAreCounted) {
  const std::vector<ProblemFinding> many(77, unsure(2, 9));
  EXPECT_THAT(text_of(many, false, "this again"),
              HasSubstr("and 67 more unsure problems with ratios closer to 1"));
  EXPECT_THAT(text_of(many, true, "this again"), Not(HasSubstr("more unsure problems")));
}

TEST(Findings, TheMachineIsSaidToHaveMoved) {
  std::vector<ProblemFinding> all;
  for (int i = 0; i < 30; ++i)
    all.push_back(finding_of({.verdict = tuner::Verdict::slower, .ratio = 1.04, .drift = 0.04}));
  EXPECT_THAT(text_of(all, false, "this again"),
              HasSubstr("a device: the time of the reference kernel, which never changes, changed by +4.0% "
                        "in the median of 30 "
                        "problems: suspect the machine first"));
  const Json machines = json_of(all).at("machines");
  ASSERT_EQ(machines.size(), 1U);
  EXPECT_NEAR(machines[0].at("drift"), 0.04, 1e-6);
  EXPECT_EQ(machines[0].at("sure"), true);
  for (ProblemFinding& problem : all) problem.finding.winner.drift = 0.002;
  EXPECT_THAT(text_of(all, false, "this again"), Not(HasSubstr("machine")));
  EXPECT_EQ(json_of(all).at("machines")[0].at("sure"), false);
}

}  // namespace
}  // namespace ce::cli
