#pragma once
/// \file
/// Groups problems that became slower or faster for the same reason.

#include <array>
#include <string>
#include <vector>

#include "cli/report/data.hpp"

namespace ce::cli {

/// The words for verdicts.
inline constexpr std::array<tuner::Verdict, 4> verdict_order{tuner::Verdict::slower, tuner::Verdict::unsure,
                                                             tuner::Verdict::faster, tuner::Verdict::same};

/// A problem and its device.
struct Changed {
  const ReportedDevice* device = nullptr;
  const ReportedProblem* problem = nullptr;

  /// The problem's last change, which must exist.
  [[nodiscard]] const tuner::Finding& finding() const noexcept { return *problem->finding(); }
};

/// Problems with the same suspects or, without suspects, with the same changes.
struct Cause {
  std::string text;               ///< "driver 570.1 to 580.2", "driver 570.1 to 580.2 or templates"
  std::vector<Changed> problems;  ///< slower, faster, unsure, then same ones; the largest effects first

  [[nodiscard]] int count(tuner::Verdict verdict) const noexcept;
  /// Median of the time ratios of problems with a verdict; 1 if none has one.
  [[nodiscard]] double typical_ratio(tuner::Verdict verdict) const;
};

/// The causes of changes in the newest periods. Those that made the most problems slower come first.
[[nodiscard]] std::vector<Cause> causes_of(const ReportData& report);

}  // namespace ce::cli
