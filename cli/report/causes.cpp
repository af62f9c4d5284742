#include "cli/report/causes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tuner/statistics.hpp"

namespace ce::cli {
namespace {

using tuner::Finding;
using tuner::Verdict;

/// Changes as text, without digests of templates: those differ between problems, and mean nothing to people.
std::string text_of_change(const tuner::Change& change) {
  if (change.what == "templates") return change.what;
  return fmt::format("{} {} to {}", change.what, change.before.empty() ? "-" : change.before,
                     change.after.empty() ? "-" : change.after);
}

std::string text_of_cause(const Finding& finding) {
  std::vector<std::string> texts;
  for (const std::string& suspect : finding.suspects)
    if (suspect == "machine")
      texts.emplace_back("the machine (the time of its reference kernel changed, too)");
  for (const tuner::Change& change : finding.changes)
    if (finding.suspects.empty() ||
        std::find(finding.suspects.begin(), finding.suspects.end(), change.what) != finding.suspects.end())
      texts.push_back(text_of_change(change));
  if (texts.empty()) return "nothing known";
  return fmt::format("{}", fmt::join(texts, finding.suspects.empty() ? ", " : " or "));
}

auto rank_of_change(const Changed& changed) {
  const tuner::Comparison& winner = changed.finding().winner;
  constexpr std::array sure_first{Verdict::slower, Verdict::faster, Verdict::unsure, Verdict::same};
  const auto position = std::find(sure_first.begin(), sure_first.end(), winner.verdict);
  return std::tuple(position - sure_first.begin(), -std::abs(std::log(winner.ratio)));
}

}  // namespace

int Cause::count(Verdict verdict) const noexcept {
  return static_cast<int>(std::count_if(problems.begin(), problems.end(), [verdict](const Changed& changed) {
    return changed.finding().winner.verdict == verdict;
  }));
}

double Cause::typical_ratio(Verdict verdict) const {
  std::vector<float> ratios;
  for (const Changed& changed : problems)
    if (changed.finding().winner.verdict == verdict)
      ratios.push_back(static_cast<float>(changed.finding().winner.ratio));
  return ratios.empty() ? 1 : tuner::median(ratios);
}

std::vector<Cause> causes_of(const ReportData& report) {
  std::map<std::string, Cause> by_text;
  for (const ReportedDevice& device : report.devices)
    for (const ReportedProblem& problem : device.problems)
      if (const Finding* finding = problem.finding()) {
        const std::string text = text_of_cause(*finding);
        Cause& cause = by_text[text];
        cause.text = text;
        cause.problems.push_back({&device, &problem});
      }
  std::vector<Cause> causes;
  for (auto& [text, cause] : by_text) {
    std::stable_sort(cause.problems.begin(), cause.problems.end(),
                     [](const auto& a, const auto& b) { return rank_of_change(a) < rank_of_change(b); });
    causes.push_back(std::move(cause));
  }
  std::stable_sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) {
    const auto rank = [](const Cause& cause) {
      return std::tuple(cause.count(Verdict::slower), cause.count(Verdict::faster),
                        cause.count(Verdict::unsure), cause.count(Verdict::same));
    };
    return rank(a) > rank(b);
  });
  return causes;
}

}  // namespace ce::cli
