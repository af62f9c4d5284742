#include "cli/report/history.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "cli/report/html.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using tuner::Finding;
using tuner::Verdict;

constexpr std::array<Verdict, 4> history_order{Verdict::slower, Verdict::unsure, Verdict::faster,
                                               Verdict::same};
constexpr std::size_t period_digits = 8;

/// Of a page that browsers open at once.
constexpr std::size_t most_changes = 200;

std::string changes_html(const Finding& finding) {
  std::vector<std::string> texts;
  for (const tuner::Change& change : finding.changes)
    texts.push_back(fmt::format("{} {} to {}", change.what, change.before, change.after));
  std::string text = fmt::format("{}", fmt::join(texts, "; "));
  if (finding.suspects.size() < finding.changes.size() && !finding.suspects.empty())
    text += fmt::format("; suspect: {}", fmt::join(finding.suspects, " or "));
  return escaped(text);
}

std::string templates_html(const tuner::Software& software) {
  std::vector<std::string> texts;
  for (const auto& [variant, digest] : software.templates)
    texts.push_back(fmt::format("{} {}", variant, digest.substr(0, period_digits)));
  return escaped(fmt::format("{}", fmt::join(texts, ", ")));
}

std::string line_of_period(const ReportedPeriod& period) {
  std::string verdict, interval;
  if (period.change) {
    verdict = verdict_badge(*period.change);
    interval = fmt::format("{:.3f} .. {:.3f}", period.change->winner.interval.low,
                           period.change->winner.interval.high);
  }
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td><code>{}</code></td><td class=\"num\">{}</td><td class=\"num\">{}</td>"
      "<td class=\"num\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
      escaped(period.first_at.substr(0, 16)), verdict, escaped(period.config), time_text(period.median_us),
      throughput_text(period.gbs), period.runs, interval, escaped(period.software.driver),
      escaped(period.software.toolkit), escaped(period.software.library), templates_html(period.software));
}

std::string row_of_history(const ReportedProblem& reported) {
  const Finding* finding = reported.finding();
  std::string html = fmt::format(
      "<details class=\"row\" data-text=\"{0} {1} \"><summary "
      "class=\"change\"><span>{0}</span><span>{2}</span>"
      "<span class=\"why faint\">{3}</span></summary>\n<div class=\"details\"><div "
      "class=\"scroll\"><table><thead>"
      "<tr><th>from (UTC)</th><th>verdict</th><th>winner</th><th class=\"num\">time</th><th "
      "class=\"num\">GB/s</th>"
      "<th class=\"num\">runs</th><th>99.9% interval of the "
      "ratio</th><th>driver</th><th>compiler</th><th>ce</th>"
      "<th>templates</th></tr></thead><tbody>\n",
      escaped(reported.title), reported.summary.key.id(),
      finding != nullptr ? verdict_badge(*finding) : "<span class=\"faint\">other rows</span>",
      finding != nullptr ? changes_html(*finding) : "");
  for (const ReportedPeriod& period : reported.periods) html += line_of_period(period);
  return html + "</tbody></table></div></div></details>\n";
}

std::size_t weight_of(const ReportedProblem& reported) {
  const Finding* finding = reported.finding();
  if (finding == nullptr) return history_order.size();
  return static_cast<std::size_t>(
      std::find(history_order.begin(), history_order.end(), finding->winner.verdict) - history_order.begin());
}

}  // namespace

std::string verdict_badge(const Finding& finding) {
  const tuner::Comparison& winner = finding.winner;
  const std::string verdict(name(winner.verdict));
  const bool tells = winner.verdict == Verdict::slower || winner.verdict == Verdict::faster;
  return fmt::format("<em class=\"verdict {0}\">{0}{1}</em>", verdict,
                     tells ? fmt::format(" {:+.1f}%", 100 * (winner.ratio - 1)) : "");
}

std::string verdicts_html(const ReportedDevice& device) {
  std::map<Verdict, int> counts;
  int compared = 0;
  for (const ReportedProblem& reported : device.problems)
    if (const Finding* finding = reported.finding()) {
      ++counts[finding->winner.verdict];
      ++compared;
    }
  if (compared == 0) return {};
  std::vector<std::string> texts;
  for (const Verdict verdict : history_order)
    if (counts[verdict] > 0)
      texts.push_back(fmt::format("<em class=\"verdict {0}\">{1} {0}</em>", name(verdict), counts[verdict]));
  return fmt::format("<p>Held against the software before: {}</p>\n", fmt::join(texts, " "));
}

std::string history_html(const ReportedDevice& device) {
  std::vector<const ReportedProblem*> changed;
  for (const ReportedProblem& reported : device.problems)
    if (reported.periods.size() > 1) changed.push_back(&reported);
  if (changed.empty()) return {};
  std::stable_sort(changed.begin(), changed.end(), [](const ReportedProblem* a, const ReportedProblem* b) {
    const auto rank = [](const ReportedProblem* reported) {
      const Finding* finding = reported->finding();
      return std::tuple(weight_of(*reported),
                        finding == nullptr ? 0 : -std::abs(std::log(finding->winner.ratio)));
    };
    return rank(a) < rank(b);
  });
  std::string html =
      "<h3>History</h3>\n<p class=\"faint\">Problems that were measured with several kinds of software, and "
      "how the "
      "newest compares with the one before: the change of the time, and what changed. Slower means by 1% or "
      "more, and "
      "more than chance shows once in 1000 problems.</p>\n<div class=\"list\">\n";
  if (changed.size() > most_changes) {
    html += fmt::format(
        "<p class=\"faint\">The first {} of {} are shown: <code>ce-tune regressions --all</code> lists "
        "all.</p>\n",
        most_changes, changed.size());
    changed.resize(most_changes);
  }
  for (const ReportedProblem* reported : changed) html += row_of_history(*reported);
  return html + "</div>\n";
}

}  // namespace ce::cli
