#pragma once
/// \file
/// Prints findings of many problems for people, programs and shells.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cache/measurement.hpp"
#include "cli/analysis/finding.hpp"
#include "cli/exit_codes.hpp"
#include "cli/json.hpp"

namespace ce::cli {

struct ProblemFinding {
  cache::Key key;
  std::string title;
  tuner::Finding finding;
};

/// Sorts slower ones first, then unsure, faster and same ones; the largest effects first.
void sort_by_verdict(std::vector<ProblemFinding>& findings);

/// A table of all findings except the same ones, which are counted, with notes on single ones.
/// \param all  includes the same ones
/// \param again  the command that repeats the comparison when there are more runs
[[nodiscard]] std::string text_of(const std::vector<ProblemFinding>& findings, bool all,
                                  std::string_view again);

[[nodiscard]] Json json_of(const ProblemFinding& problem);

/// A text for a slower winner: "slower: 1.050 of the time before (1.031 .. 1.070), 63.0 us; driver 580 -> 590; suspect
/// driver".
[[nodiscard]] std::string slower_text(const ProblemFinding& problem);
/// The text's contents as `ratio`, `interval[]`, `median_us`, `suspects[]`; null for none.
[[nodiscard]] Json json_of_slower(const ProblemFinding* problem);

/// {"findings": [...], "summary": {verdict: how many}}
[[nodiscard]] Json json_of(const std::vector<ProblemFinding>& findings);

/// ExitCode::regression if anything is slower; else nothing_compared if fewer than `required` problems were compared,
/// unsure_regression if something may be slower, success.
[[nodiscard]] ExitCode exit_code_of(const std::vector<ProblemFinding>& findings, std::size_t required = 1);

}  // namespace ce::cli
