#pragma once
/// \file
/// Which problems became slower or faster for the same reason?

#include <array>
#include <string>
#include <vector>

#include "cli/report/data.hpp"

namespace ce::cli {

/// Verdicts as people are told of them.
inline constexpr std::array<tuner::Verdict, 4> verdict_order{tuner::Verdict::slower, tuner::Verdict::unsure,
                                                             tuner::Verdict::faster, tuner::Verdict::same};

/// A problem beside its device.
struct Changed {
  const ReportedDevice* device = nullptr;
  const ReportedProblem* problem = nullptr;

  /// There is one.
  [[nodiscard]] const tuner::Finding& finding() const noexcept { return *problem->finding(); }
};

/// Problems with the same suspects, or, where nothing is suspect, with the same changes.
struct Cause {
  std::string text;               ///< "driver 570.1 to 580.2", "driver 570.1 to 580.2 or templates"
  std::vector<Changed> problems;  ///< slower, faster, unsure, same ones; the largest effects first

  [[nodiscard]] int count(tuner::Verdict verdict) const noexcept;
  /// Median of the ratios of the times of those with a verdict; 1 where none has it.
  [[nodiscard]] double typical_ratio(tuner::Verdict verdict) const;
};

/// Of the newest periods. Those that made most problems slower first.
[[nodiscard]] std::vector<Cause> causes_of(const ReportData& report);

}  // namespace ce::cli
