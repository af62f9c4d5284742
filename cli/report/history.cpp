#include "cli/report/history.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "cli/units.hpp"

namespace ce::cli {
namespace {

using tuner::Finding;
using tuner::Verdict;

std::string templates_html(const tuner::Software& software, const Redaction& redaction) {
  std::vector<std::string> texts;
  for (const auto& [variant, digest] : software.templates)
    texts.push_back(tuner::templates_text(variant, digest));
  return redaction.html(fmt::format("{}", fmt::join(texts, ", ")));
}

std::string line_of_period(const ReportedPeriod& period, const Redaction& redaction) {
  std::string verdict, interval;
  if (period.change) {
    verdict = verdict_badge(*period.change);
    interval = interval_html(period.change->winner);
  }
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td><code>{}</code></td><td class=\"num\">{}</td><td class=\"num\">{}</td>"
      "<td class=\"num\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
      redaction.html(period.first_at.substr(0, 16)), verdict, redaction.html(period.config),
      time_text(period.median_us), throughput_text(period.gbs), period.runs, interval,
      redaction.html(period.software.driver), redaction.html(period.software.toolkit),
      redaction.html(period.software.library), templates_html(period.software, redaction));
}

}  // namespace

std::string verdict_badge(const Finding& finding) {
  const tuner::Comparison& winner = finding.winner;
  const std::string verdict(name(winner.verdict));
  const bool has_changed = winner.verdict == Verdict::slower || winner.verdict == Verdict::faster;
  return fmt::format("<em class=\"verdict {0}\">{0}{1}</em>", verdict,
                     has_changed ? fmt::format(" {:+.1f}%", 100 * (winner.ratio - 1)) : "");
}

std::string interval_html(const tuner::Comparison& comparison) {
  constexpr double widest = 10;
  const tuner::Interval& interval = comparison.interval;
  if (interval.low < 1 / widest || interval.high > widest) return "<span class=\"faint\">too wide</span>";
  return fmt::format("{:.3f} .. {:.3f}", interval.low, interval.high);
}

std::string periods_html(const ReportedProblem& reported, const Redaction& redaction) {
  if (reported.periods.size() < 2) return {};
  std::string html =
      "<h5>History</h5>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"History\"><table><thead>"
      "<tr><th>from (UTC)</th><th>verdict</th><th>winner</th><th class=\"num\">time</th><th "
      "class=\"num\">GB/s</th>"
      "<th class=\"num\">runs</th><th>99.9% interval of the "
      "ratio</th><th>driver</th><th>compiler</th><th>ce</th>"
      "<th>templates</th></tr></thead><tbody>\n";
  for (const ReportedPeriod& period : reported.periods) html += line_of_period(period, redaction);
  return html + "</tbody></table></div>\n";
}

}  // namespace ce::cli
