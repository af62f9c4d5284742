#include "cli/analysis/findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/printable.hpp"
#include "cli/known.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using tuner::Comparison;
using tuner::Finding;
using tuner::Verdict;

constexpr std::array<Verdict, 4> by_weight{Verdict::slower, Verdict::unsure, Verdict::faster, Verdict::same};

/// Limit without --all. Findings are sorted by the size of their effects.
constexpr std::size_t most_unsure_listed = 10;

std::string interval_text(const Comparison& comparison) {
  return fmt::format("{:.3f} .. {:.3f}", comparison.interval.low, comparison.interval.high);
}

std::string changes_text(const Finding& finding) {
  std::vector<std::string> texts;
  for (const tuner::Change& change : finding.changes)
    texts.push_back(fmt::format("{} {} -> {}", change.what, change.before, change.after));
  return texts.empty() ? "nothing known" : fmt::format("{}", fmt::join(texts, "; "));
}

std::string suspects_text(const Finding& finding) {
  if (finding.suspects.empty()) return "-";
  return fmt::format("{}{}", fmt::join(finding.suspects, " or "),
                     finding.why.empty() ? "" : " (" + finding.why + ")");
}

/// The new config, if it differs from the old one; else empty.
std::string choice_text(const ProblemFinding& problem) {
  const Finding& finding = problem.finding;
  if (finding.config_before == finding.config_after) return {};
  std::string text = fmt::format("{}: was {}, is {}", problem.key.id(), printable(finding.config_before),
                                 printable(finding.config_after));
  if (finding.kernel)
    text += fmt::format("; {} itself: {}, {:.3f} ({})", printable(finding.kernel_config),
                        name(finding.kernel->verdict), finding.kernel->ratio, interval_text(*finding.kernel));
  return text + "\n";
}

/// The command that would decide the unsure cases; empty if there are none.
std::string missing_text(const std::vector<ProblemFinding>& findings, std::string_view again) {
  std::vector<int> more;  // further runs for each
  int without = 0, scattered = 0;
  for (const ProblemFinding& problem : findings) {
    const Comparison& winner = problem.finding.winner;
    const std::optional<int> needed = problem.finding.runs_needed;
    if (winner.verdict != Verdict::unsure) continue;
    if (!needed)
      ++without;
    else if (*needed > winner.after)
      more.push_back(*needed - winner.after);
    else
      ++scattered;
  }
  std::sort(more.begin(), more.end());
  std::string text;
  if (!more.empty()) {
    const int half = more[(more.size() - 1) / 2], all = more.back();
    text += fmt::format("{} unsure: {} of each would show an effect of 1.5%",
                        counted(std::ssize(more), "problem"), counted(all, "more run"));
    if (half < all)
      text +=
          fmt::format(", or {} for {} of them", half, std::ranges::upper_bound(more, half) - more.begin());
    text += fmt::format(" (ce-tune check --runs {}, then {})\n", all, again);
  }
  if (without > 0)
    text += fmt::format(
        "{} unsure: too few runs before the change to show an effect of 1.5%; the next check is compared "
        "with all runs so far with the newest software\n",
        counted(without, "problem"));
  if (scattered > 0)
    text += fmt::format("{} unsure: the effect is near 1%, or times of runs vary; each check adds runs\n",
                        counted(scattered, "problem"));
  return text;
}

/// The drift of each device, by its text.
std::map<std::string, tuner::MachineMove> machine_moves(const std::vector<ProblemFinding>& findings) {
  std::map<std::string, std::vector<const Finding*>> of_device;
  for (const ProblemFinding& problem : findings) of_device[problem.key.device].push_back(&problem.finding);
  std::map<std::string, tuner::MachineMove> moves;
  for (const auto& [device, its] : of_device)
    if (const tuner::MachineMove move = tuner::machine_move(its); move.problems > 0) moves[device] = move;
  return moves;
}

/// Names the devices whose reference moved.
std::string machine_text(const std::vector<ProblemFinding>& findings) {
  std::string text;
  for (const auto& [device, move] : machine_moves(findings))
    if (move.is_sure)
      text += fmt::format(
          "{}: the time of the reference kernel, which never changes, changed by {:+.1f}% in the median of "
          "{}: suspect the machine first (clocks, power, other processes, another GPU), then other changes\n",
          device_name_of({"", device}), 100 * move.drift, counted(move.problems, "problem"));
  return text;
}

Json json_of_comparison(const Comparison& comparison) {
  return {{"verdict", name(comparison.verdict)},
          {"ratio", comparison.ratio},
          {"interval", {comparison.interval.low, comparison.interval.high}},
          {"narrow_interval", {comparison.narrow.low, comparison.narrow.high}},
          {"drift", comparison.drift ? Json(*comparison.drift) : Json()},
          {"taken_out", comparison.taken_out},
          {"deviation", comparison.deviation},
          {"runs_before", comparison.before},
          {"runs_after", comparison.after}};
}

std::map<Verdict, int> counts_of(const std::vector<ProblemFinding>& findings) {
  std::map<Verdict, int> counts;
  for (const ProblemFinding& problem : findings) ++counts[problem.finding.winner.verdict];
  return counts;
}

}  // namespace

void sort_by_verdict(std::vector<ProblemFinding>& findings) {
  const auto rank = [](const ProblemFinding& problem) {
    const Comparison& winner = problem.finding.winner;
    const auto* weight = std::find(by_weight.begin(), by_weight.end(), winner.verdict);
    return std::tuple(weight, -std::abs(std::log(winner.ratio)), problem.key.id());
  };
  std::sort(findings.begin(), findings.end(),
            [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

std::string text_of(const std::vector<ProblemFinding>& findings, bool all, std::string_view again) {
  using enum Table::Align;
  Table table({{.title = "PROBLEM", .least = 26},
               {.title = "DEVICE", .rank = 5, .least = 8},
               {"KEY"},
               {"VERDICT"},
               {"RATIO", right},
               {.title = "99.9% INTERVAL", .rank = 2},
               Table::times("BEFORE", 4),
               Table::times("AFTER", 3),
               {"RUNS", right, 6},
               {.title = "CHANGED", .rank = 1, .least = 12},
               {.title = "SUSPECT", .least = 8}});
  std::string notes;
  std::size_t unsure = 0, hidden = 0;
  for (const ProblemFinding& problem : findings) {
    const Finding& finding = problem.finding;
    if (finding.winner.verdict == Verdict::same && !all) continue;
    if (finding.winner.verdict == Verdict::unsure && ++unsure > most_unsure_listed && !all) {
      ++hidden;
      continue;
    }
    table.add({problem.title, device_name_of(problem.key), problem.key.id(),
               std::string(name(finding.winner.verdict)), fmt::format("{:.3f}", finding.winner.ratio),
               interval_text(finding.winner), finding.before_us, finding.after_us,
               fmt::format("{}+{}", finding.winner.before, finding.winner.after), changes_text(finding),
               suspects_text(finding)});
    notes += choice_text(problem);
  }
  std::string text = table.empty() ? "" : table.text() + "\n";
  if (hidden > 0)
    text += fmt::format("and {} with ratios closer to 1; --all lists them\n\n",
                        counted(static_cast<std::int64_t>(hidden), "more unsure problem"));
  notes += missing_text(findings, again) + machine_text(findings);
  if (!notes.empty()) text += notes + "\n";
  std::vector<std::string> counted_verdicts;
  counted_verdicts.reserve(by_weight.size());
  std::map<Verdict, int> counts = counts_of(findings);
  for (const Verdict verdict : by_weight)
    counted_verdicts.push_back(fmt::format("{} {}", counts[verdict], name(verdict)));
  return text + fmt::format("{} compared: {}\n",
                            counted(static_cast<std::int64_t>(findings.size()), "problem"),
                            fmt::join(counted_verdicts, ", "));
}

Json json_of(const ProblemFinding& problem) {
  const Finding& finding = problem.finding;
  Json entry{{"key", problem.key.id()},
             {"title", problem.title},
             {"problem_text", problem.key.problem},
             {"device_text", problem.key.device}};
  entry.update(json_of_comparison(finding.winner));
  entry["before"] = {{"config", finding.config_before}, {"median_us", finding.before_us}};
  entry["after"] = {{"config", finding.config_after}, {"median_us", finding.after_us}};
  entry["runs_needed"] = finding.runs_needed ? Json(*finding.runs_needed) : Json();
  entry["kernel"] = nullptr;
  if (finding.kernel) {
    entry["kernel"] = {{"config", finding.kernel_config}};
    entry["kernel"].update(json_of_comparison(*finding.kernel));
  }
  entry["changes"] = Json::array();
  for (const tuner::Change& change : finding.changes)
    entry["changes"].push_back({{"what", change.what}, {"before", change.before}, {"after", change.after}});
  entry["suspects"] = finding.suspects;
  entry["why"] = finding.why;
  return entry;
}

std::string slower_text(const ProblemFinding& problem) {
  const Finding& finding = problem.finding;
  return printable(fmt::format("slower: {:.3f} of the time before ({}), {}; {}; suspect {}",
                               finding.winner.ratio, interval_text(finding.winner),
                               time_text(finding.after_us), changes_text(finding), suspects_text(finding)));
}

Json json_of_slower(const ProblemFinding* problem) {
  if (problem == nullptr) return {};
  const Finding& finding = problem->finding;
  return {{"ratio", finding.winner.ratio},
          {"interval", {finding.winner.interval.low, finding.winner.interval.high}},
          {"median_us", finding.after_us},
          {"suspects", finding.suspects}};
}

Json json_of(const std::vector<ProblemFinding>& findings) {
  Json list = Json::array(), summary;
  for (const ProblemFinding& problem : findings) list.push_back(json_of(problem));
  std::map<Verdict, int> counts = counts_of(findings);
  for (const Verdict verdict : by_weight) summary[std::string(name(verdict))] = counts[verdict];
  Json machines = Json::array();
  for (const auto& [device, move] : machine_moves(findings))
    machines.push_back({{"device_text", device},
                        {"drift", move.drift},
                        {"problems", move.problems},
                        {"sure", move.is_sure}});
  return {{"confidence", 1 - tuner::false_alarms},
          {"findings", list},
          {"summary", summary},
          {"machines", machines}};
}

ExitCode exit_code_of(const std::vector<ProblemFinding>& findings, std::size_t required) {
  const auto any = [&](const auto& is) {
    return std::any_of(findings.begin(), findings.end(),
                       [&](const ProblemFinding& problem) { return is(problem.finding.winner); });
  };
  if (any([](const Comparison& c) { return c.verdict == Verdict::slower; })) return ExitCode::regression;
  if (findings.size() < required) return ExitCode::nothing_compared;
  if (any([](const Comparison& c) { return c.may_be_slower(); })) return ExitCode::unsure_regression;
  return ExitCode::success;
}

}  // namespace ce::cli
