#include "cli/report/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "cli/known.hpp"
#include "cli/report/causes.hpp"
#include "cli/report/chart.hpp"
#include "cli/report/html.hpp"
#include "cli/units.hpp"
#include "generator/variant.hpp"

namespace ce::cli {
namespace {

/// Shades of lines in page.css.
constexpr std::size_t shades = 6;

std::string figure(std::string_view caption, std::string_view content) {
  return fmt::format("<figure class=\"box\"><figcaption>{}</figcaption>\n{}</figure>\n", escaped(caption),
                     content);
}

std::string figures(std::string_view title, std::string_view text, const std::string& content,
                    std::string_view look = {}) {
  if (content.empty()) return {};
  return fmt::format(
      "<section class=\"box\"><h3>{}</h3>\n<p class=\"faint\">{}</p>\n<div class=\"plots "
      "sorted{}\">\n{}</div></section>\n",
      title, text, look, content);
}

/// Writes the figures of all kinds and dtypes, without ceilings.
template <typename Figure>
std::string each(const Kinds& kinds, Figure figure_of) {
  std::string html;
  for (const auto& [kind, problems] : kinds) {
    std::map<DType, Problems> by_dtype;
    for (const ReportedProblem* reported : problems)
      if (reported->problem && !generator::is_ceiling(reported->problem->operation))
        by_dtype[reported->problem->dtype].push_back(reported);
    for (const auto& [dtype, own] : by_dtype)
      html += figure_of(fmt::format("{}, {}", kind, name(dtype)), own);
  }
  return html;
}

// ---- shares of the ceiling ----

std::string rows_text(const generator::Problem& problem, bool with_alignment) {
  return counted(problem.rows, "row") +
         (with_alignment ? fmt::format(", {}", generator::name(problem.alignment)) : "");
}

/// A line for each number of rows. If a width was measured with several alignments, the line has the best aligned one;
/// the others have lines of their own.
std::vector<ChartLine> lines_by_rows(Problems problems, bool as_share) {
  std::stable_sort(problems.begin(), problems.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->problem->rows, a->problem->alignment, a->problem->columns) <
           std::tuple(b->problem->rows, b->problem->alignment, b->problem->columns);
  });
  std::map<std::pair<std::int64_t, std::string>, ChartLine> lines;
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const ReportedProblem* reported : problems) {
    const generator::Problem& problem = *reported->problem;
    const bool is_first = seen.emplace(problem.rows, problem.columns).second;
    const std::string label = rows_text(problem, !is_first);
    ChartLine& line = lines[{problem.rows, label}];
    line.label = label;
    line.points.push_back(
        {static_cast<double>(problem.columns), as_share ? reported->share().value_or(0) : reported->gbs(),
         reported->number,
         fmt::format("{} x {}: {} GB/s{}", problem.rows, problem.columns, throughput_text(reported->gbs()),
                     as_share ? ", " + percent_text(reported->share().value_or(0)) : "")});
  }
  std::vector<ChartLine> sorted;
  for (auto& [rows, line] : lines) {
    std::stable_sort(line.points.begin(), line.points.end(),
                     [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
    sorted.push_back(std::move(line));
  }
  // Few rows are light, many are dark. Neighbouring lines with equal shades differ in their dashes.
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::size_t steps = std::max<std::size_t>(sorted.size(), 2) - 1;
    const std::size_t shade = sorted.size() == 1 ? shades - 1 : i * (shades - 1) / steps;
    const bool is_shared = i > 0 && sorted.size() > 1 && (i - 1) * (shades - 1) / steps == shade;
    sorted[i].look = fmt::format("shade-{}{}", shade, is_shared ? " dashed" : "");
  }
  return sorted;
}

std::string share_figure(const std::string& caption, const Problems& problems) {
  Problems known;
  for (const ReportedProblem* reported : problems)
    if (!reported->best.empty() && reported->problem && reported->problem->columns > 0)
      known.push_back(reported);
  std::set<std::int64_t> widths;
  for (const ReportedProblem* reported : known) widths.insert(reported->problem->columns);
  if (widths.size() < 2) return {};
  const bool as_share = std::all_of(known.begin(), known.end(),
                                    [](const auto* reported) { return reported->share().has_value(); });
  Chart chart{
      .title = caption + (as_share ? ": share of the ceiling over the columns" : ": GB/s over the columns"),
      .y_axis = as_share ? YAxis::percent : YAxis::number};
  if (as_share) chart.level = 1;
  chart.lines = lines_by_rows(known, as_share);
  return figure(caption + (as_share ? "" : ", GB/s"), html_of(chart));
}

// ---- variants ----

/// The class in page.css of a cell, by its distance from the winner.
int heat_of(double behind) {
  int heat = 0;
  for (const double most : {0.003, 0.02, 0.05, 0.1, 0.25, 0.5}) heat += behind > most ? 1 : 0;
  return heat;
}

std::string lag_text(double behind) {
  if (behind < 10) return fmt::format("{:.0f}%", 100 * behind);
  return behind < 1000 ? fmt::format("{:.0f}x", 1 + behind) : ">1000x";
}

std::string cell_of(const ReportedProblem& reported, std::string_view variant) {
  const auto known = std::find_if(reported.variants.begin(), reported.variants.end(),
                                  [&](const VariantTime& time) { return time.variant == variant; });
  if (known == reported.variants.end()) return "<td></td>";
  // Screenings are rough: one may be a little faster than the winner's by chance.
  const double behind = std::max(known->behind, 0.);
  const bool won = known == reported.variants.begin();
  return fmt::format("<td class=\"heat-{}\">{}</td>", won ? 0 : heat_of(behind),
                     won ? "<b>0%</b>" : lag_text(behind));
}

std::string variant_figure(const std::string& caption, const Problems& problems) {
  std::set<std::string_view> seen;
  for (const ReportedProblem* reported : problems)
    for (const VariantTime& time : reported->variants) seen.insert(time.variant);
  if (seen.size() < 2) return {};
  std::vector<std::string_view> variants;  // in the generator's order
  for (const generator::Variant& variant : generator::variants())
    if (seen.contains(variant.name)) variants.push_back(variant.name);
  std::string head = "<th scope=\"col\">rows x columns</th>", body;
  for (const std::string_view variant : variants)
    head += fmt::format("<th scope=\"col\" class=\"upright\"><span>{}</span></th>", escaped(variant));
  for (const ReportedProblem* reported : problems) {
    if (reported->variants.empty()) continue;
    body += fmt::format("<tr data-p=\"{0}\"><th scope=\"row\"><a href=\"#p{0}\">{1} x {2}</a></th>",
                        reported->number, reported->problem->rows, reported->problem->columns);
    for (const std::string_view variant : variants) body += cell_of(*reported, variant);
    body += "</tr>\n";
  }
  return figure(caption, fmt::format("<div class=\"scroll tall\" tabindex=\"0\" role=\"region\" "
                                     "aria-label=\"{}\"><table class=\"heat\"><thead><tr>{}</tr></thead>"
                                     "<tbody class=\"sorted\">\n{}</tbody></table></div>\n",
                                     escaped(caption), head, body));
}

// ---- times over the years ----

/// Most lines in a chart.
constexpr std::size_t most_lines = 60;

/// Seconds since 1970; nothing for text that does not begin with a time.
std::optional<double> seconds_of(std::string_view text) {
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (const char c : text.substr(at, digits)) {
      if (c < '0' || c > '9') return -1;
      value = 10 * value + (c - '0');
    }
    return value;
  };
  if (text.size() < 16 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':')
    return std::nullopt;
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2), hour = number(11, 2),
            minute = number(14, 2);
  if (year < 1970 || month < 0 || day < 0 || hour < 0 || minute < 0) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::duration<double>(std::chrono::sys_days(date).time_since_epoch()).count() +
         60. * (60 * hour + minute);
}

/// The periods with the newest one's rows: their times over the oldest one's.
ChartLine time_line(const ReportedProblem& reported) {
  const tuner::Finding* finding = reported.finding();
  ChartLine line{.label = {},
                 .look = finding == nullptr ? "same" : std::string(name(finding->winner.verdict)),
                 .points = {}};
  std::optional<double> first_us;
  for (const ReportedPeriod& period : reported.periods) {
    const auto at = seconds_of(period.first_at);
    if (period.rows != reported.periods.back().rows || !at || period.median_us <= 0) continue;
    if (!first_us) first_us = period.median_us;
    line.points.push_back(
        {*at, period.median_us / *first_us, reported.number,
         fmt::format("{}, {}: {}, {:+.1f}%", reported.title, period.first_at.substr(0, 10),
                     time_text(period.median_us), 100 * (period.median_us / *first_us - 1))});
  }
  std::stable_sort(line.points.begin(), line.points.end(),
                   [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  return line;
}

/// The first use of each driver except the oldest.
std::vector<ChartMark> driver_marks(const Problems& problems, const Redaction& redaction) {
  std::map<std::string, double> first;
  for (const ReportedProblem* reported : problems)
    for (const ReportedPeriod& period : reported->periods)
      if (const auto at = seconds_of(period.first_at); at && period.software.driver != "-") {
        const auto [known, is_new] = first.emplace(period.software.driver, *at);
        if (!is_new) known->second = std::min(known->second, *at);
      }
  std::vector<ChartMark> marks;
  marks.reserve(first.size());
  for (const auto& [driver, at] : first) marks.push_back({at, "driver " + redaction.text(driver)});
  std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  if (!marks.empty()) marks.erase(marks.begin());
  return marks;
}

std::string time_figure(const std::string& caption, const Problems& problems, const Redaction& redaction) {
  Problems changed;
  std::vector<ChartLine> lines;
  const auto index_of = [](const ChartLine& line) {
    const auto has_look = [&](tuner::Verdict verdict) { return name(verdict) == line.look; };
    return std::find_if(verdict_order.begin(), verdict_order.end(), has_look) - verdict_order.begin();
  };
  for (const ReportedProblem* reported : problems) {
    ChartLine line = time_line(*reported);
    if (line.points.size() < 2) continue;
    changed.push_back(reported);
    lines.push_back(std::move(line));
  }
  if (lines.empty()) return {};
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const auto& a, const auto& b) { return index_of(a) < index_of(b); });
  const std::size_t all = lines.size();
  lines.resize(std::min(all, most_lines));
  std::reverse(lines.begin(), lines.end());  // slower lines are drawn over the others
  Chart chart{.title = caption + ": time of the winner over its time with the oldest software",
              .x_axis = XAxis::days,
              .low = 0.98,
              .high = 1.02,
              .level = 1};
  chart.marks = driver_marks(changed, redaction);
  chart.lines = std::move(lines);
  std::string content = html_of(chart);
  if (all > most_lines)
    content += fmt::format("<p class=\"faint\">{} of {} problems, slower and unsure ones first</p>\n",
                           most_lines, all);
  return figure(caption, content);
}

}  // namespace

std::string shares_html(const Kinds& kinds) {
  return figures("Share of the ceiling over the columns",
                 "The speed over the fewest bytes that must move, as a share of the ceiling, with a line for "
                 "each number of rows. The dashed line is the ceiling. Data in the cache may exceed it.",
                 each(kinds, share_figure));
}

std::string variants_html(const Kinds& kinds) {
  return figures("Variants",
                 "How much longer the fastest config of each variant takes than the winner, by times of the "
                 "same round and software if both have them. Times of screenings are less exact than those "
                 "of finals. An empty field was not measured.",
                 each(kinds, variant_figure), " wide");
}

std::string times_html(const Kinds& kinds, const Redaction& redaction) {
  return figures("Times with other software",
                 "Time of the winner over its time with the oldest software, with a line for each problem: "
                 "<span class=\"key slower\">slower</span>, <span class=\"key unsure\">unsure</span>, <span "
                 "class=\"key faster\">faster</span> or <span class=\"key same\">the same</span> at its end. "
                 "Vertical lines are new drivers.",
                 each(kinds, [&](const std::string& caption, const Problems& problems) {
                   return time_figure(caption, problems, redaction);
                 }));
}

}  // namespace ce::cli
