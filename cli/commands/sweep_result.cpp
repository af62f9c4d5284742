#include "cli/commands/sweep_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/known.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using tuner::Report;

constexpr std::size_t widest_reason = 160;

struct Sums {
  int finished = 0, not_reached = 0, measured = 0, known = 0, compiled = 0;
};

Sums sums_of(const SweepResult& result) {
  Sums sums{.not_reached = static_cast<int>(result.asked - result.problems.size())};
  for (const SweptProblem& swept : result.problems) {
    if (!swept.report && !swept.failure) ++sums.not_reached;
    if (!swept.report) continue;
    ++sums.finished;
    sums.measured += swept.report->tried - swept.report->known;
    sums.known += swept.report->known;
    sums.compiled += swept.report->compiled;
  }
  return sums;
}

int rejected_of(const Report& report) {
  return std::accumulate(report.quarantined.begin(), report.quarantined.end(), 0,
                         [](int sum, const auto& entry) { return sum + entry.second; });
}

/// Difference of its median from the winner's, relative; negative if the winner won a tie by its fewer registers.
/// Nothing if other rows were timed.
std::optional<double> behind(const SweptProblem& swept, const cache::Measurement& measurement) {
  const cache::Measurement& winner = swept.best.front().measurement;
  if (measurement.rows != winner.rows) return std::nullopt;
  return measurement.median_us / winner.median_us - 1;
}

/// Why a problem has no report, or a ceiling no search.
template <class Swept>
std::string outcome_of(const Swept& swept) {
  if (swept.failure) return swept.failure->fields.at("kind");
  return swept.is_tuned_elsewhere ? "left to another process" : "not reached";
}

std::string table_of(const SweepResult& result) {
  using enum Table::Align;
  Table table({{.title = "PROBLEM", .least = 30},
               {"KEY"},
               {.title = "WINNER", .least = 14},
               Table::times("TIME"),
               Table::throughputs(1),
               {"OF CEILING", right, 2},
               {"SPREAD", right, 3},
               {"TRIED", right, 4},
               {"REJECTED", right, 5}});
  for (const SweptProblem& swept : result.problems) {
    const std::string title = generator::title(swept.problem);
    if (!swept.report) {
      const std::string outcome = outcome_of(swept);
      table.add({title, swept.key.id(), outcome, "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const Report& report = *swept.report;
    table.add({title,
               swept.key.id(),
               {generator::to_text(report.winner), report.unfinished.empty() ? "" : " (unfinished)"},
               report.median_us,
               report.gbs,
               report.ceiling_gbs > 0 ? percent_text(report.share()) : "-",
               percent_text(report.spread),
               fmt::format("{} of {}", report.tried, report.configs),
               fmt::to_string(rejected_of(report))});
  }
  return table.text();
}

/// The best configs of each problem; empty if none were asked for.
std::string best_of(const SweepResult& result) {
  using enum Table::Align;
  Table table({{"KEY"},
               {"", right},
               {.title = "CONFIG", .least = 20},
               Table::times("TIME"),
               Table::throughputs(1),
               {"BEHIND", right},
               {"SPREAD", right, 2},
               {.title = "STAGE", .rank = 3}});
  for (const SweptProblem& swept : result.problems) {
    int rank = 0;
    for (const tuner::Candidate& candidate : swept.best) {
      const cache::Measurement& measurement = candidate.measurement;
      const auto its = behind(swept, measurement);
      table.add({rank == 0 ? swept.key.id() : "", fmt::to_string(++rank), candidate.text(),
                 measurement.median_us, throughput_of(measurement), its ? percent_text(*its) : "-",
                 percent_text(measurement.spread), std::string(stage_of(measurement))});
    }
  }
  return table.empty() ? "" : table.text() + "\n";
}

/// Notes about results that the table does not show.
std::string notes_of(const SweptProblem& swept) {
  const std::string title = generator::title(swept.problem);
  std::string text;
  if (swept.failure) text += fmt::format("{}: {}\n", title, swept.failure->fields.at("message"));
  if (!swept.report) return text;
  if (swept.report->timed_rows != swept.problem.rows)
    text += fmt::format("{}: timed with {} rows ({})\n", title, swept.report->timed_rows,
                        swept.report->tried == swept.report->known ? "known before" : "see --scratch");
  if (!swept.report->unfinished.empty())
    text +=
        fmt::format("{}: unfinished, the next search continues it: {}\n", title, swept.report->unfinished);
  for (const auto& [reason, count] : swept.report->quarantined)
    text += fmt::format("{}: rejected {}: {}\n", title, counted(count, "config"), cut(reason, widest_reason));
  return text;
}

Json entry_of(const SweptProblem& swept) {
  Json json = json_of(swept.problem);
  json["key"] = swept.key.id();
  if (!swept.device.empty()) json["device"] = swept.device;
  if (swept.failure) json["error"] = json_of(*swept.failure);
  if (!swept.report) return json;
  const Report& report = *swept.report;
  json.update({{"winner", generator::to_text(report.winner)},
               {"reason", report.reason},
               {"unfinished", report.unfinished.empty() ? Json() : Json(report.unfinished)},
               {"median_us", report.median_us},
               {"spread", report.spread},
               {"gbs", report.gbs},
               {"ceiling_gbs", report.ceiling_gbs},
               {"share_of_ceiling", report.share()},
               {"timed_rows", report.timed_rows},
               {"configs", report.configs},
               {"tried", report.tried},
               {"measured", report.tried - report.known},
               {"known", report.known},
               {"compiled", report.compiled},
               {"rejected", report.quarantined},
               {"seconds", report.seconds}});
  for (const tuner::Candidate& candidate : swept.best) {
    const cache::Measurement& measurement = candidate.measurement;
    const auto its = behind(swept, measurement);
    json["best"].push_back({{"config", candidate.text()},
                            {"median_us", measurement.median_us},
                            {"gbs", throughput_of(measurement)},
                            {"behind", its ? Json(*its) : Json()},
                            {"spread", measurement.spread},
                            {"samples", measurement.samples_us.size()},
                            {"stage", measurement.stage},
                            {"registers", measurement.registers}});
  }
  return json;
}

}  // namespace

std::string finished_line(const SweptProblem& swept) {
  const std::string title = generator::title(swept.problem);
  if (!swept.report) return fmt::format("{}: {}", title, outcome_of(swept));
  const Report& report = *swept.report;
  const int measured = report.tried - report.known;
  return fmt::format(
      "{}: {} {} {} GB/s ({})", title, generator::to_text(report.winner), time_text(report.median_us),
      throughput_text(report.gbs),
      measured == 0 ? "known" : fmt::format("{} measured in {}", measured, duration_text(report.seconds)));
}

std::string text_of(const SweepResult& result) {
  std::string text;
  if (!result.problems.empty()) text = table_of(result) + "\n" + best_of(result);
  std::string notes;
  for (const SweptProblem& swept : result.problems) notes += notes_of(swept);
  for (const SweptDevice& device : result.devices)
    if (device.failure) notes += device.failure->fields.at("message") + "\n";
  if (!notes.empty()) text += notes + "\n";
  const Sums sums = sums_of(result);
  const std::string shard =
      result.shard ? fmt::format(" of shard {} ({} listed)", result.shard->text(), result.listed) : "";
  return text + fmt::format("{} of {}{} on {} ({}): {} measured, {} known, {} compiled, in {}\n",
                            sums.finished, counted(static_cast<std::int64_t>(result.asked), "problem"), shard,
                            result.run.device, result.run.model.name, counted(sums.measured, "config"),
                            sums.known, sums.compiled, duration_text(result.run.seconds));
}

std::string title_of(const SweptCeiling& swept) {
  return fmt::format("ceiling of {}", generator::name(swept.kind));
}

std::string finished_line(const SweptCeiling& swept) {
  return fmt::format("{}: {}", title_of(swept), swept.is_searched ? "searched" : outcome_of(swept));
}

Json summary_of(const SweepResult& result) {
  const Sums sums = sums_of(result);
  return {{"problems", result.asked},        {"listed", result.listed},      {"finished", sums.finished},
          {"not_reached", sums.not_reached}, {"measured", sums.measured},    {"known", sums.known},
          {"compiled", sums.compiled},       {"seconds", result.run.seconds}};
}

Json json_of(const SweepResult& result) {
  Json problems = Json::array();
  for (const SweptProblem& swept : result.problems) problems.push_back(entry_of(swept));
  Json json = json_of(result.run);
  json["problems"] = problems;
  for (const SweptDevice& device : result.devices)
    json["devices"].push_back({{"device", device.device},
                               {"environment", device.environment},
                               {"problems", device.problems},
                               {"error", device.failure ? json_of(*device.failure) : Json()}});
  json["shard"] =
      result.shard ? Json{{"index", result.shard->index}, {"count", result.shard->count}} : Json();
  json["summary"] = summary_of(result);
  if (result.run.failure) json["error"] = json_of(*result.run.failure);
  return json;
}

}  // namespace ce::cli
