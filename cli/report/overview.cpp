#include "cli/report/overview.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "cli/report/history.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using tuner::Verdict;

/// Most rows of a table, for a page that opens at once.
constexpr std::size_t most_changes = 200;

std::map<Verdict, int> verdicts_of(const ReportData& report) {
  std::map<Verdict, int> counts;
  for (const ReportedDevice& device : report.devices)
    for (const auto& [verdict, count] : device.verdicts()) counts[verdict] += count;
  return counts;
}

std::string badge(Verdict verdict, int count) {
  return fmt::format("<em class=\"verdict {0}\">{1} {0}</em>", name(verdict), count);
}

std::string badges(std::map<Verdict, int> counts) {
  std::vector<std::string> texts;
  for (const Verdict verdict : verdict_order)
    if (counts[verdict] > 0) texts.push_back(badge(verdict, counts[verdict]));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string by_text(double ratio) {
  return fmt::format("{:.1f}%", 100 * (ratio < 1 ? 1 - ratio : ratio - 1));
}

std::string line_of_cause(const Cause& cause, std::size_t number, const Redaction& redaction) {
  std::vector<std::string> texts;
  for (const Verdict verdict : {Verdict::slower, Verdict::faster})
    if (const int count = cause.count(verdict); count > 0)
      texts.push_back(fmt::format("{} by {}", badge(verdict, count), by_text(cause.typical_ratio(verdict))));
  if (const int unsure = cause.count(Verdict::unsure); unsure > 0)
    texts.push_back(badge(Verdict::unsure, unsure));
  return fmt::format("<li>{}: {}: <a href=\"#cause-{}\">list</a></li>\n", redaction.html(cause.text),
                     fmt::join(texts, ", "), number);
}

std::string headline_of(const ReportData& report) {
  std::map<Verdict, int> counts = verdicts_of(report);
  int compared = 0;
  for (const auto& [verdict, count] : counts) compared += count;
  std::size_t problems = 0;
  for (const ReportedDevice& device : report.devices) problems += device.problems.size();
  if (compared == 0)
    return fmt::format(
        "<p class=\"headline\">{}. All measurements have the same software, so there is nothing to "
        "compare.</p>\n",
        counted(static_cast<std::int64_t>(problems), "problem"));
  std::string html =
      fmt::format("<p class=\"headline {}\"><strong>{} of {}</strong> became slower.</p>\n",
                  counts[Verdict::slower] > 0 ? "slower" : "",
                  counts[Verdict::slower] > 0 ? fmt::to_string(counts[Verdict::slower]) : "None",
                  counted(compared, "problem"));
  html += fmt::format(
      "<p class=\"faint\">The page compares the newest software with the one before. Slower means by 1% or "
      "more, and more than chance shows only once in 1000 problems.{}{}</p>\n",
      counts[Verdict::unsure] > 0 ? fmt::format(" For {}, the runs are too few to decide.",
                                                counted(counts[Verdict::unsure], "problem"))
                                  : "",
      static_cast<std::size_t>(compared) < problems
          ? fmt::format(" {} of {} have no earlier software to compare with.",
                        problems - static_cast<std::size_t>(compared), problems)
          : "");
  return html;
}

/// "median 91.2% of the ceiling, lowest 45.0%"
std::string shares_text(const ReportedDevice& device) {
  std::vector<double> shares;
  for (const ReportedProblem& reported : device.problems)
    if (reported.problem && !generator::is_ceiling(reported.problem->operation))
      if (const auto share = reported.share()) shares.push_back(*share);
  if (shares.empty()) return device.ceilings.empty() ? "no ceiling on record" : "";
  std::sort(shares.begin(), shares.end());
  return fmt::format("median {} of the ceiling, lowest {}", percent_text(shares[shares.size() / 2]),
                     percent_text(shares.front()));
}

std::string line_of_device(const ReportedDevice& device, std::size_t number) {
  std::vector<std::string> texts{counted(static_cast<std::int64_t>(device.problems.size()), "problem")};
  if (const int count = device.without_winner(); count > 0)
    texts.push_back(fmt::format("{} without a winner today", count));
  if (std::string shares = shares_text(device); !shares.empty()) texts.push_back(std::move(shares));
  return fmt::format("<li><a href=\"#device-{}\">{}</a> {} <span class=\"faint\">{}</span></li>\n", number,
                     escaped(device.name), badges(device.verdicts()), fmt::join(texts, ", "));
}

std::string row_of_change(const Changed& changed, bool with_device) {
  const tuner::Finding& finding = changed.finding();
  return fmt::format(
      "<tr data-p=\"{0}\"><td><a href=\"#p{0}\">{1}</a></td>{2}<td>{3}</td><td class=\"num\">{4}</td><td "
      "class=\"num\">{5}</td><td class=\"num\">{6}</td><td>{7}</td></tr>\n",
      changed.problem->number, escaped(changed.problem->title),
      with_device ? fmt::format("<td>{}</td>", escaped(changed.device->name)) : "", verdict_badge(finding),
      interval_html(finding.winner), time_text(finding.before_us), time_text(finding.after_us),
      finding.config_before == finding.config_after ? "" : "another config won before");
}

std::string details_of_cause(const Cause& cause, std::size_t number, bool with_device, std::size_t& left,
                             const Redaction& redaction) {
  std::map<Verdict, int> counts;
  for (const Changed& changed : cause.problems) ++counts[changed.finding().winner.verdict];
  std::string rows;
  std::size_t shown = 0;
  for (const Changed& changed : cause.problems) {
    if (changed.finding().winner.verdict == Verdict::same || shown == left) break;
    rows += row_of_change(changed, with_device);
    ++shown;
  }
  left -= shown;
  const std::size_t changed = cause.problems.size() - static_cast<std::size_t>(counts[Verdict::same]);
  std::string html = fmt::format(
      "<details class=\"cause\" id=\"cause-{}\"{}><summary><span>{}</span> {}</summary>\n<div "
      "class=\"details\">\n",
      number, counts[Verdict::slower] > 0 && number == 1 ? " open=\"\"" : "", redaction.html(cause.text),
      badges(counts));
  if (shown > 0)
    html += fmt::format(
        "<div class=\"scroll changes\" tabindex=\"0\" role=\"region\" aria-label=\"Problems of this "
        "cause\"><table><thead><tr><th>problem</th>{}<th>verdict</th><th class=\"num\">99.9% interval of "
        "the ratio</th><th class=\"num\">before</th><th class=\"num\">after</th><th></th></tr></thead><tbody "
        "class=\"sorted\">\n{}</tbody></table></div>\n",
        with_device ? "<th>device</th>" : "", rows);
  if (shown < changed)
    html += fmt::format(
        "<p class=\"faint\">The first {} of {} are shown: <code>ce-tune regressions --all</code> lists "
        "all.</p>\n",
        shown, changed);
  if (counts[Verdict::same] > 0)
    html += fmt::format("<p class=\"faint\">{} as fast as before.</p>\n",
                        counted(counts[Verdict::same], "problem"));
  return html + "</div></details>\n";
}

}  // namespace

std::string overview_html(const ReportData& report, const std::vector<Cause>& causes,
                          const Redaction& redaction) {
  std::string html = "<section id=\"verdict\">\n" + headline_of(report);
  std::string lines;
  std::size_t number = 0;
  for (const Cause& cause : causes) {
    ++number;
    if (cause.count(Verdict::slower) + cause.count(Verdict::faster) > 0)
      lines += line_of_cause(cause, number, redaction);
  }
  if (!lines.empty()) html += "<ul class=\"causes\">\n" + lines + "</ul>\n";
  html += "<ol class=\"devices\" aria-label=\"Devices, those with trouble first\">\n";
  for (std::size_t i = 0; i < report.devices.size(); ++i) html += line_of_device(report.devices[i], i + 1);
  return html + "</ol>\n</section>\n";
}

std::string causes_html(const std::vector<Cause>& causes, bool with_device, const Redaction& redaction) {
  if (causes.empty()) return {};
  std::string html =
      "<section id=\"changes\">\n<h2>What changed</h2>\n<p class=\"faint\">Grouped by suspected cause, or by "
      "what changed if no cause is suspected.</p>\n<div class=\"list\">\n";
  std::size_t left = most_changes;
  for (std::size_t i = 0; i < causes.size(); ++i)
    html += details_of_cause(causes[i], i + 1, with_device, left, redaction);
  return html + "</div>\n</section>\n";
}

}  // namespace ce::cli
