#include "cli/commands/bench_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/width_plot.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using generator::Problem;
using tuner::Retiming;
using tuner::Timing;

std::string group_of(const Problem& problem) {
  return fmt::format("{}, {}", kind_of(problem), name(problem.dtype));
}

std::string outcome_of(const BenchedProblem& benched) {
  return benched.failure ? benched.failure->fields.at("kind") : "unfinished";
}

Table new_table(bool bounded) {
  using enum Table::Align;
  std::vector<Table::Column> columns{
      {"ROWS", right},
      {"COLUMNS", right},
      Table::times("TIME"),
      Table::throughputs(),
      {.title = "CEILING", .align = right, .rank = 3, .of = Table::Of::throughputs},
      {"OF CEILING", right, 1},
      {"SPREAD", right, 4},
      {.title = "CONFIG", .least = 18}};
  if (bounded) columns.insert(columns.begin() + 3, {Table::times("BOUND", 3), {"OF BOUND", right, 2}});
  return Table(columns);
}

std::vector<Table::Cell> row_of(const BenchedProblem& benched, bool bounded) {
  std::vector<Table::Cell> cells{fmt::to_string(benched.problem.rows),
                                 fmt::to_string(benched.problem.columns)};
  if (!benched.timing) {
    cells.resize(bounded ? 9 : 7, "-");
    cells.emplace_back(outcome_of(benched));
    return cells;
  }
  const Retiming& timing = *benched.timing;
  cells.emplace_back(timing.winner.median_us);
  if (bounded) {
    cells.emplace_back(benched.bound_us);
    cells.emplace_back(percent_text(timing.winner.median_us / benched.bound_us));
  }
  cells.insert(cells.end(), {timing.winner.gbs(), timing.ceiling.gbs(), percent_text(timing.share()),
                             percent_text(timing.winner.spread), timing.winner.config});
  return cells;
}

/// Notes about results that the tables do not show.
std::string notes_of(const BenchedProblem& benched) {
  const std::string title = generator::title(benched.problem);
  if (benched.failure) return fmt::format("{}: {}\n", title, benched.failure->fields.at("message"));
  if (benched.timing && benched.timing->problem.rows != benched.problem.rows)
    return fmt::format("{}: timed with {} rows (see --scratch)\n", title, benched.timing->problem.rows);
  return {};
}

std::int64_t finished_of(const BenchResult& result) {
  return std::count_if(result.problems.begin(), result.problems.end(),
                       [](const BenchedProblem& benched) { return benched.timing.has_value(); });
}

/// Memory that a call needs besides its inputs: outputs that do not overwrite them, and the workspace.
std::int64_t extra_bytes(const Problem& problem) {
  const std::int64_t over_inputs =
      problem.in_place ? problem.rows * problem.columns * size_of(problem.dtype) : 0;
  return generator::traffic(problem).written - over_inputs + generator::workspace_bytes(problem);
}

Json entry_of(const Timing& timing) {
  return {{"config", timing.config}, {"bytes", timing.bytes}, {"median_us", timing.median_us},
          {"spread", timing.spread}, {"gbs", timing.gbs()},   {"samples_us", timing.samples_us}};
}

Json entry_of(const BenchedProblem& benched) {
  Json json = json_of(benched.problem);
  json["key"] = benched.key.id();
  json["tuned"] = benched.tuned;
  if (benched.failure) json["error"] = json_of(*benched.failure);
  if (!benched.timing) return json;
  const Retiming& timing = *benched.timing;
  json["timed_rows"] = timing.problem.rows;
  json["extra_bytes"] = extra_bytes(benched.problem) + timing.partial_bytes;
  json.update(entry_of(timing.winner));
  json["ceiling"] = entry_of(timing.ceiling);
  json["share_of_ceiling"] = timing.share();
  if (benched.bound_us > 0) json["bound_us"] = benched.bound_us;
  return json;
}

}  // namespace

std::string finished_line(const BenchedProblem& benched) {
  const std::string title = generator::title(benched.problem);
  if (!benched.timing) return fmt::format("{}: {}", title, outcome_of(benched));
  const Timing& winner = benched.timing->winner;
  return fmt::format("{}: {} {} {} GB/s, {} of the ceiling", title, winner.config,
                     time_text(winner.median_us), throughput_text(winner.gbs()),
                     percent_text(benched.timing->share()));
}

std::string text_of(const BenchResult& result) {
  const bool bounded = result.launch_floor_us > 0;
  std::string text, group, notes;
  Table table = new_table(bounded);
  const auto end_group = [&] {
    if (!table.empty()) text += fmt::format("{}\n{}\n", group, table.text(2));
    table = new_table(bounded);
  };
  for (const BenchedProblem& benched : result.problems) {
    if (group_of(benched.problem) != group) end_group();
    group = group_of(benched.problem);
    table.add(row_of(benched, bounded));
    notes += notes_of(benched);
  }
  end_group();
  if (!notes.empty()) text += notes + "\n";
  if (bounded)
    text += fmt::format("BOUND is 1.4 x bytes / ceiling of 1 GiB + 3 x launch floor; launch floor {}\n\n",
                        time_text(result.launch_floor_us));
  const auto tuned = std::count_if(result.problems.begin(), result.problems.end(),
                                   [](const BenchedProblem& benched) { return benched.tuned; });
  return text + fmt::format("{} of {} on {} ({}): {} tuned, {} each, in {}\n", finished_of(result),
                            counted(static_cast<std::int64_t>(result.asked), "problem"), result.run.device,
                            result.run.model.name, tuned, counted(result.samples, "sample"),
                            duration_text(result.run.seconds));
}

Json json_of(const BenchResult& result) {
  Json problems = Json::array();
  for (const BenchedProblem& benched : result.problems) problems.push_back(entry_of(benched));
  Json json{{"command", result.command}};
  json.update(json_of(result.run));
  json.update({{"suite", result.suite}, {"samples", result.samples}});
  if (result.launch_floor_us > 0) json["launch_floor_us"] = result.launch_floor_us;
  json["problems"] = problems;
  json["summary"] = {
      {"problems", result.asked}, {"finished", finished_of(result)}, {"seconds", result.run.seconds}};
  if (result.run.failure) json["error"] = json_of(*result.run.failure);
  return json;
}

LinePlot plot_of(const BenchResult& result) {
  LinePlot plot{.title = fmt::format("{}, cold L2", result.run.model.name),
                .subtitle = fmt::format("GB/s over the fewest bytes that must move; median of {}; {}",
                                        counted(result.samples, "sample"), result.run.date.substr(0, 10)),
                .x_label = "columns",
                .y_label = "GB/s"};
  std::vector<Throughput> throughputs;
  for (const BenchedProblem& benched : result.problems)
    if (benched.timing)
      throughputs.push_back({benched.problem, benched.timing->winner.gbs(), benched.timing->ceiling.gbs()});
  plot.panels = panels_of(throughputs);
  return plot;
}

}  // namespace ce::cli
