#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/printable.hpp"
#include "cli/analysis/cases.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "tuner/maker.hpp"
#include "tuner/quarantine_reason.hpp"

namespace ce::cli {
namespace {

constexpr std::size_t widest_reason = 120;

constexpr const char* show_examples =
    "\nExamples:\n"
    "  ce-tune db show 3fa2c81b04d7\n"
    "  ce-tune db show 3fa2 --json\n"
    "\nKEY is the beginning of a key that db list shows, at least 4 digits of it.\n";

Json json_of_known(const Known& known, const Asked& database, const ProblemFinding* slower) {
  Json json{{"key", known.key.id()},
            {"problem_text", known.key.problem},
            {"device_text", known.key.device},
            {"device", device_name_of(known.key)},
            {"problem", known.problem ? json_of(*known.problem) : Json()},
            {"winner", known.decision ? Json(known.decision->winner.text()) : Json()},
            {"reason", known.decision ? Json(known.decision->reason) : Json()},
            {"pinned", known.pinned().empty() ? Json() : Json(known.pinned())},
            {"layer", database.name},
            {"place", database.place},
            {"slower", json_of_slower(slower)},
            {"ranking", Json::array()},
            {"measurements", Json::array()}};
  if (known.decision)
    for (const tuner::Candidate& candidate : known.decision->ranking)
      json["ranking"].push_back(candidate.text());
  for (const cache::Measurement& measurement : known.measurements) {
    Json entry = json_of(measurement);
    entry["current"] = known.is_current(measurement);
    json["measurements"].push_back(std::move(entry));
  }
  return json;
}

std::string ranking_text(const tuner::Decision& decision) {
  using enum Table::Align;
  Table table({{"", right},
               {.title = "CONFIG", .least = 24},
               Table::times("TIME"),
               Table::throughputs(),
               {"SPREAD", right, 1},
               {"SAMPLES", right, 4},
               {.title = "STAGE", .rank = 2},
               {"REGISTERS", right, 3},
               {"LOCAL", right, 5},
               {.title = "MEASURED (UTC)", .rank = 6}});
  int rank = 0;
  for (const tuner::Candidate& candidate : decision.ranking) {
    const cache::Measurement& measurement = candidate.measurement;
    table.add({fmt::to_string(++rank), candidate.text(), measurement.median_us, throughput_of(measurement),
               percent_text(measurement.spread), fmt::to_string(measurement.samples_us.size()),
               std::string(stage_of(measurement)), fmt::to_string(measurement.registers),
               fmt::to_string(measurement.local_bytes), measurement.created_at});
  }
  return table.text();
}

std::string quarantine_text(const Known& known) {
  Table table({{.title = "REJECTED", .least = 30}, {.title = "REASON", .least = 30}});
  for (const cache::Measurement* measurement : known.quarantined)
    table.add({measurement->config, cut(tuner::first_line(measurement->reason), widest_reason)});
  return table.text();
}

std::string environment_text(const cache::Measurement& measurement) {
  Table table({{.title = "ENVIRONMENT", .least = 20}, {.title = "of the winner's measurement", .least = 20}});
  table.add({"rows", fmt::to_string(measurement.rows)});
  table.add({"bytes", fmt::to_string(measurement.bytes)});
  for (const auto& [name, value] : measurement.environment) table.add({name, value});
  table.add({"compile key", measurement.compile_key});
  table.add({"template digest", measurement.template_digest});
  return table.text();
}

std::string text_of(const Known& known, const Asked& database, const ProblemFinding* slower) {
  std::string text = fmt::format("{}  {}\nproblem  {}\ndevice   {}\n", known.key.id(), known.title(),
                                 printable(known.key.problem), printable(known.key.device));
  if (database.name != "user") text += fmt::format("layer    {}, {}\n", database.name, database.place);
  if (known.decision) {
    text += fmt::format("winner   {}\nbecause  {}\ntimed    {}\n", printable(known.decision->winner.text()),
                        printable(known.decision->reason), timed_text(known.decision->winner.measurement));
    if (slower != nullptr) text += fmt::format("now      {}\n", slower_text(*slower));
    text += "\n" + ranking_text(*known.decision);
  } else {
    text += "winner   none: nothing was measured with this version's templates\n";
  }
  if (!known.quarantined.empty()) text += "\n" + quarantine_text(known);
  if (known.decision) text += "\n" + environment_text(known.decision->winner.measurement);
  if (known.history > 0)
    text += fmt::format("\n{} with templates of other versions (--json shows them)\n",
                        counted(static_cast<std::int64_t>(known.history), "measurement"));
  return text;
}

ExitCode show(const CommonOptions& common, const std::string& prefix) {
  const cache::Cache user = open_layered_database(common);
  const FoundKey found = find_key(databases_of(user, database_path(common).string()), prefix);
  const Known known(*found.database.cache, found.key);
  const SlowerWinners winners(*found.database.cache);
  const ProblemFinding* slower = winners.find(found.key);
  if (common.json)
    print(json_of_known(known, found.database, slower));
  else
    print_text("{}", text_of(known, found.database, slower));
  return ExitCode::success;
}

}  // namespace

void add_db_show(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  auto key = std::make_shared<std::string>();
  CLI::App* command = db.add_subcommand(
      "show", "Show all configs tried on a problem, why the winner won, and its environment");
  command->footer(show_examples);
  add_key_argument(*command, *key);
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  add_wide_option(*command);
  command->callback([options, key, &chosen] { chosen = [options, key] { return show(*options, *key); }; });
}

}  // namespace ce::cli
