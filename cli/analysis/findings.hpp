#pragma once
/// \file
/// Findings of many problems, as people, programs and shells are told of them.

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

/// Slower ones first, then unsure, faster and same ones; the largest effects first.
void sort_by_verdict(std::vector<ProblemFinding>& findings);

/// A table of all but those that are the same, which are counted, and what is to be said of single ones.
/// \param all  those that are the same, too
/// \param again  the command that compares the same once there are more runs
[[nodiscard]] std::string text_of(const std::vector<ProblemFinding>& findings, bool all,
                                  std::string_view again);

[[nodiscard]] Json json_of(const ProblemFinding& problem);

/// Of a winner that is slower: "slower: 1.050 of the time before (1.031 .. 1.070), 63.0 us; driver 580 -> 590; suspect driver".
[[nodiscard]] std::string slower_text(const ProblemFinding& problem);
/// The same as `ratio`, `interval[]`, `median_us`, `suspects[]`; null for none.
[[nodiscard]] Json json_of_slower(const ProblemFinding* problem);

/// {"findings": [...], "summary": {verdict: how many}}
[[nodiscard]] Json json_of(const std::vector<ProblemFinding>& findings);

/// ExitCode::regression where anything is slower; else nothing_compared where fewer than `required` problems were
/// compared, unsure_regression where something may be slower, success.
[[nodiscard]] ExitCode exit_code_of(const std::vector<ProblemFinding>& findings, std::size_t required = 1);

}  // namespace ce::cli
