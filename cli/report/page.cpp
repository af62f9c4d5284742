#include "cli/report/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/known.hpp"
#include "cli/report/causes.hpp"
#include "cli/report/details.hpp"
#include "cli/report/figures.hpp"
#include "cli/report/history.hpp"
#include "cli/report/html.hpp"
#include "cli/report/overview.hpp"
#include "cli/report/style.hpp"
#include "cli/report/width_plot.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using Chosen = std::set<const ReportedProblem*>;

/// Most details in a page that opens at once, even with thousands of problems.
constexpr std::size_t most_with_details = 200;

/// Sorts slower or unsure ones first, then those farthest from their ceilings.
Chosen chosen_for_details(const ReportData& report) {
  Problems all;
  for (const ReportedDevice& device : report.devices)
    for (const ReportedProblem& reported : device.problems) all.push_back(&reported);
  const auto rank = [](const ReportedProblem* reported) {
    const tuner::Finding* finding = reported->finding();
    const tuner::Verdict verdict = finding == nullptr ? tuner::Verdict::same : finding->winner.verdict;
    return std::tuple(verdict != tuner::Verdict::slower, verdict != tuner::Verdict::unsure,
                      reported->share().value_or(2));
  };
  std::stable_sort(all.begin(), all.end(), [&](auto* a, auto* b) { return rank(a) < rank(b); });
  all.resize(std::min(all.size(), most_with_details));
  return {all.begin(), all.end()};
}

std::string percent_width(double share) { return fmt::format("{:.1f}%", 100 * std::clamp(share, 0., 1.)); }

/// Kinds in the order of the device's problems. Races have the kind "races", keys of other versions "".
Kinds by_kind(const ReportedDevice& device) {
  Kinds kinds;
  for (const ReportedProblem& reported : device.problems) {
    const bool raced = tuner::subject_of_race(reported.summary.key).has_value();
    const std::string kind = reported.problem ? kind_of(*reported.problem) : raced ? "races" : "";
    if (kinds.empty() || kinds.back().first != kind) kinds.emplace_back(kind, Problems{});
    kinds.back().second.push_back(&reported);
  }
  return kinds;
}

std::string fact(std::string_view name, const std::string& value, bool large = false) {
  return fmt::format("<div><dt>{}</dt><dd{}>{}</dd></div>\n", name, large ? " class=\"large\"" : "",
                     escaped(value));
}

std::string ceilings_text(const Ceilings& ceilings) {
  std::vector<std::string> texts;
  for (const auto& [kind, gbs] : ceilings)
    texts.push_back(fmt::format("{} {}", generator::name(kind), throughput_text(gbs)));
  return texts.empty() ? "none on record" : fmt::format("{} GB/s", fmt::join(texts, ", "));
}

std::string facts_of(const ReportedDevice& device, const Redaction& redaction) {
  std::int64_t measurements = 0, won = 0;
  std::string first = device.problems.front().summary.first_at, last;
  for (const ReportedProblem& reported : device.problems) {
    measurements += reported.summary.measurements;
    won += reported.best.empty() ? 0 : 1;
    first = std::min(first, reported.summary.first_at);
    last = std::max(last, reported.summary.last_at);
  }
  const auto joined = [&](const std::set<std::string>& values) {
    return values.empty() ? std::string("-") : redaction.text(fmt::format("{}", fmt::join(values, ", ")));
  };
  std::string html = "<dl class=\"facts\">\n";
  html += fact("problems", fmt::to_string(device.problems.size()), true);
  html += fact("with a winner today", fmt::to_string(won), true);
  html += fact("measurements", fmt::to_string(measurements), true);
  if (!device.uuids.empty()) html += fact("GPUs", fmt::to_string(device.uuids.size()), true);
  html += fact("measured (UTC)", fmt::format("{} to {}", first.substr(0, 10), last.substr(0, 10)));
  html += fact("driver", joined(device.drivers));
  html += fact("compiler", joined(device.toolkits));
  html += fact("ce", joined(device.libraries));
  html += fact("ceilings", ceilings_text(device.ceilings));
  return html + "</dl>\n";
}

// ---- winners ----

std::string share_of(const ReportedProblem& reported) {
  const auto share = reported.share();
  if (!share) return "<span class=\"share\">no ceiling</span>";
  return fmt::format("<span class=\"share\" style=\"--part: {}\">{}</span>", percent_width(*share),
                     percent_text(*share));
}

std::string shape_of(const ReportedProblem& reported, const Redaction& redaction) {
  if (!reported.problem) return redaction.html(reported.title);
  const generator::Problem& problem = *reported.problem;
  std::string shape = fmt::format("{} x {}", problem.rows, problem.columns);
  if (problem.alignment != generator::Alignment::vector)
    shape += fmt::format(" <span class=\"faint\">{}</span>", generator::name(problem.alignment));
  const tuner::Finding* finding = reported.finding();
  if (finding != nullptr && finding->winner.verdict == tuner::Verdict::slower)
    shape += " " + verdict_badge(*finding);
  return shape;
}

/// The page's sort keys.
std::string values_of(const ReportedProblem& reported) {
  std::string values;
  if (const auto share = reported.share()) values += fmt::format(" data-share=\"{:.4f}\"", *share);
  if (const tuner::Finding* finding = reported.finding())
    values += fmt::format(" data-change=\"{:.4f}\"", finding->winner.ratio);
  if (!reported.best.empty())
    values += fmt::format(" data-us=\"{:.2f}\"", reported.best.front().measurement.median_us);
  return values;
}

std::string row_of(const ReportedProblem& reported, bool with_details, const Redaction& redaction) {
  const std::string dtype(reported.problem ? name(reported.problem->dtype) : "");
  std::string cells = fmt::format("<span>{}</span><span>{}</span>", dtype, shape_of(reported, redaction));
  if (reported.best.empty()) {
    cells += "<span class=\"config faint\">no winner today</span>";
  } else {
    const cache::Measurement& measurement = reported.best.front().measurement;
    cells += fmt::format(
        "<span class=\"config\"><code>{}</code><span class=\"timed\">{}</span></span>"
        "<span class=\"num time\">{}</span><span class=\"num speed\">{} GB/s</span>{}",
        escaped(measurement.config), redaction.html(timed_text(measurement)),
        time_text(measurement.median_us), throughput_text(reported.gbs()), share_of(reported));
  }
  return fmt::format(
      "<details class=\"row\" id=\"p{0}\" data-p=\"{0}\" data-text=\"{1} {2}\"{3}><summary "
      "class=\"winner\">{4}</summary>\n<div class=\"details\">\n{5}</div></details>\n",
      reported.number, redaction.html(reported.title), reported.summary.key.id(), values_of(reported), cells,
      with_details ? details_html(reported, redaction) : commands_html(reported));
}

// ---- axes ----

std::string axis_label(const std::string& axis) {
  return fmt::format("<span><span class=\"mono\">{}</span>{}</span>", axis,
                     axis == "warps" ? "<br/><span class=\"faint small\">x 32 threads</span>" : "");
}

std::string cost_text(double cost) {
  return std::abs(cost) < 0.0005 ? "0.0%" : fmt::format("{:+.1f}%", 100 * cost);
}

/// \param problems  problems with winners
std::string axes_card(const std::string& title, const Problems& problems) {
  std::string html = fmt::format("<section><h4>{} <span class=\"faint\">{}</span></h4>\n", escaped(title),
                                 counted(static_cast<std::int64_t>(problems.size()), "problem"));
  std::string axis;
  for (const AxisValue& value : axis_values(problems)) {
    if (value.axis != axis)
      html += fmt::format("{}<div class=\"axis\">{}<ul>\n", axis.empty() ? "" : "</ul></div>\n",
                          axis_label(value.axis));
    axis = value.axis;
    html += fmt::format(
        "<li style=\"--part: {}\"><b>{}</b>{}{}</li>\n",
        percent_width(static_cast<double>(value.wins) / static_cast<double>(problems.size())), value.value,
        value.wins > 0 ? fmt::format(" won {}", value.wins) : "",
        value.cost ? fmt::format(" <span class=\"faint\">{}</span>", cost_text(*value.cost)) : "");
  }
  return html + (axis.empty() ? "" : "</ul></div>\n") + "</section>\n";
}

std::string axes_of(const Kinds& kinds) {
  std::string cards;
  for (const auto& [kind, problems] : kinds) {
    std::map<DType, Problems> by_dtype;
    for (const ReportedProblem* reported : problems)
      if (!reported->best.empty() && reported->problem)
        by_dtype[reported->problem->dtype].push_back(reported);
    for (const auto& [dtype, own] : by_dtype)
      cards += axes_card(fmt::format("{}, {}", kind, name(dtype)), own);
  }
  if (cards.empty()) return {};
  return fmt::format(
      "<h3>What the axes do</h3>\n"
      "<p class=\"faint\">How many winners have each value, shaded by their share. The percentages are for "
      "problems where another value won: the extra time with this value instead and no other change, as the "
      "median over the configs that were tried.</p>\n"
      "<div class=\"axes\">\n{}</div>\n",
      cards);
}

// ---- the page, piece by piece ----

constexpr std::string_view nothing_yet =
    "<p>There is nothing to show yet, because no problem was tuned. Run, for example,</p>\n"
    "<p><code>ce-tune sweep --op softmax --dtype bf16 --rows 8192 --cols "
    "4096,32000,50257,128256</code></p>\n";

constexpr std::string_view tools =
    R"(<div id="tools" role="search" hidden="">
<span class="field"><label for="filter">Filter</label><input id="filter" type="search" placeholder="bf16 4096" aria-describedby="count"/></span>
<span class="field"><label for="order">Sort</label><select id="order"><option value="">by operation and shape</option>
<option value="change">slowed down most first</option><option value="share">farthest from the ceiling first</option>
<option value="time">longest time first</option></select></span>
<output id="count" for="filter"></output>
</div>
)";

class Page {
 public:
  Page(const ReportData& report, const Redaction& redaction, std::ostream& stream)
      : report_(report), redaction_(redaction), stream_(stream), chosen_(chosen_for_details(report)) {}

  std::size_t write();

 private:
  void put(std::string_view piece) {
    stream_ << piece;
    bytes_ += piece.size();
  }
  void winners(const Kinds& kinds);
  void device(const ReportedDevice& device, std::size_t number);

  const ReportData& report_;
  const Redaction& redaction_;
  std::ostream& stream_;
  Chosen chosen_;
  std::size_t bytes_ = 0;
};

void Page::winners(const Kinds& kinds) {
  const auto left_out = [&](const auto& kind) {
    return std::any_of(kind.second.begin(), kind.second.end(),
                       [&](const ReportedProblem* reported) { return !chosen_.contains(reported); });
  };
  put("<h3>Winners</h3>\n<p class=\"faint\">The fastest config of each problem, when and on which GPU it was "
      "timed, its time, and its share of the ceiling, which is the speed of the fastest measured kernel that "
      "only moves memory in the same way. Open a line for its details.</p>\n");
  if (std::any_of(kinds.begin(), kinds.end(), left_out))
    put(
        fmt::format("<p class=\"faint\">The page has details of {} problems: first those that became slower "
                    "or may have, then those farthest from their ceilings. <code>ce-tune report --html FILE "
                    "KEY</code> shows details of others.</p>\n",
                    chosen_.size()));
  put("<div class=\"sorted\">\n");
  for (const auto& [kind, problems] : kinds) {
    put(fmt::format(
        "<section class=\"box\"><h4>{}</h4>\n<div class=\"head\"><span>dtype</span><span>rows x "
        "columns</span><span>config</span><span class=\"num\">time</span><span "
        "class=\"num\">speed</span><span class=\"num\">of the ceiling</span></div>\n<div class=\"list "
        "sorted\">\n",
        kind.empty() ? "Keys of other versions of ce" : escaped(kind)));
    for (const ReportedProblem* reported : problems)
      put(row_of(*reported, chosen_.contains(reported), redaction_));
    put("</div></section>\n");
  }
  put("</div>\n");
}

void Page::device(const ReportedDevice& device, std::size_t number) {
  const Kinds kinds = by_kind(device);
  put(fmt::format("<section id=\"device-{}\" data-device=\"{}\">\n<h2>{}</h2>\n{}", number,
                  escaped(device.name), escaped(device.name), facts_of(device, redaction_)));
  if (device.name.starts_with("host:"))
    put("<p>This is the host device: it shows whether kernels are correct, but its times say nothing about a "
        "GPU.</p>\n");
  if (device.ceilings.empty())
    put("<p>No ceiling is on record for this device: <code>ce-tune sweep</code> measures it.</p>\n");
  put(shares_html(kinds));
  put(variants_html(kinds));
  put(times_html(kinds, redaction_));
  winners(kinds);
  put(axes_of(kinds));
  put("</section>\n");
}

std::string title_of(const ReportData& report) {
  std::vector<std::string> names;
  for (const ReportedDevice& device : report.devices) names.push_back(device.name);
  return names.empty() ? "Tuned kernels" : fmt::format("Tuned kernels: {}", fmt::join(names, ", "));
}

std::size_t Page::write() {
  put(fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{}</title>
<style>
{}</style>
</head>
<body>
<header>
<h1>Tuned kernels</h1>
<p class="faint">{} on {}, by ce {}</p>
</header>
<main>
)",
                  report_script_digest, escaped(title_of(report_)), report_style,
                  escaped(redaction_.file(report_.database)), escaped(report_.date),
                  escaped(report_.version)));
  if (report_.devices.empty()) {
    put(nothing_yet);
  } else {
    const std::vector<Cause> causes = causes_of(report_);
    put(overview_html(report_, causes, redaction_));
    put(tools);
    put(causes_html(causes, report_.devices.size() > 1, redaction_));
  }
  for (std::size_t i = 0; i < report_.devices.size(); ++i) device(report_.devices[i], i + 1);
  put("</main>\n");
  if (!report_.devices.empty()) put(fmt::format("<script>{}</script>\n", report_script));
  put("</body>\n</html>\n");
  return bytes_;
}

}  // namespace

std::size_t write_page(const ReportData& report, const Redaction& redaction, std::ostream& stream) {
  return Page(report, redaction, stream).write();
}

}  // namespace ce::cli
