#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using enum Table::Align;

constexpr std::size_t widest_reason = 120;

constexpr const char* list_examples =
    "\nExamples:\n"
    "  ce-tune db list\n"
    "  ce-tune db list --device cuda:0 --json\n";
constexpr const char* show_examples =
    "\nExamples:\n"
    "  ce-tune db show 3fa2c81b04d7\n"
    "  ce-tune db show 3fa2 --json\n"
    "\nKEY is the beginning of a key that db list shows, at least 4 digits of it.\n";

/// The keys of one device, or all.
std::vector<cache::KeySummary> wanted_keys(const cache::Cache& cache, const CommonOptions& common) {
  std::vector<cache::KeySummary> keys = cache.keys();
  if (common.device.empty()) return keys;
  const std::string device = open_device(common)->model().key();
  std::erase_if(keys, [&device](const cache::KeySummary& summary) { return summary.key.device != device; });
  return keys;
}

Json json_of_summary(const cache::KeySummary& summary, const Known& known) {
  Json json{{"key", summary.key.id()},
            {"problem_text", summary.key.problem},
            {"device_text", summary.key.device},
            {"device", device_name_of(summary.key)},
            {"problem", known.problem ? json_of(*known.problem) : Json()},
            {"measurements", summary.measurements},
            {"configs", summary.configs},
            {"quarantined", known.quarantined.size()},
            {"first_at", summary.first_at},
            {"last_at", summary.last_at},
            {"winner", Json()}};
  if (known.decision) {
    const tuner::Candidate& winner = known.decision->winner;
    json["winner"] = {{"config", winner.config},
                      {"median_us", winner.measurement.median_us},
                      {"spread", winner.measurement.spread},
                      {"gbs", throughput_of(winner.measurement)}};
  }
  return json;
}

std::vector<std::string> row_of(const cache::KeySummary& summary, const Known& known) {
  std::vector<std::string> cells{summary.key.id(), known.title()};
  if (known.decision) {
    const tuner::Candidate& winner = known.decision->winner;
    cells.insert(cells.end(), {winner.config, time_text(winner.measurement.median_us),
                               throughput_text(throughput_of(winner.measurement))});
  } else {
    cells.insert(cells.end(), {"none today", "-", "-"});
  }
  cells.insert(cells.end(), {fmt::to_string(summary.configs), fmt::to_string(known.quarantined.size()),
                             summary.last_at.substr(0, 16)});
  return cells;
}

ExitCode list(const CommonOptions& common) {
  const cache::Cache cache = open_database(common);
  const std::string path = database_path(common).string();
  const std::vector<cache::KeySummary> keys = wanted_keys(cache, common);
  Json documents = Json::array();
  std::string text, device;
  const auto new_table = [] {
    return Table({{"KEY"},
                  {"PROBLEM"},
                  {"WINNER"},
                  {"TIME", right},
                  {"GB/s", right},
                  {"TRIED", right},
                  {"REJECTED", right},
                  {"LAST (UTC)"}});
  };
  Table table = new_table();
  const auto end_device = [&] {
    if (!table.empty()) text += fmt::format("{}\n{}\n", device, table.text(2));
    table = new_table();
  };
  std::string device_text;
  for (const cache::KeySummary& summary : keys) {
    const Known known(cache, summary.key);
    documents.push_back(json_of_summary(summary, known));
    if (summary.key.device != device_text) end_device();
    device_text = summary.key.device;
    device = device_name_of(summary.key);
    table.add(row_of(summary, known));
  }
  end_device();
  if (common.json)
    print({{"database", path}, {"keys", documents}});
  else
    fmt::print("{}{} in {}\n", text, counted(static_cast<std::int64_t>(keys.size()), "key"), path);
  return ExitCode::success;
}

Json json_of_known(const Known& known) {
  Json json{{"key", known.key.id()},
            {"problem_text", known.key.problem},
            {"device_text", known.key.device},
            {"device", device_name_of(known.key)},
            {"problem", known.problem ? json_of(*known.problem) : Json()},
            {"winner", known.decision ? Json(known.decision->winner.config) : Json()},
            {"reason", known.decision ? Json(known.decision->reason) : Json()},
            {"ranking", Json::array()},
            {"measurements", Json::array()}};
  if (known.decision)
    for (const tuner::Candidate& candidate : known.decision->ranking)
      json["ranking"].push_back(candidate.config);
  for (const cache::Measurement& measurement : known.measurements) {
    Json entry = json_of(measurement);
    entry["current"] = known.problem && tuner::is_current(measurement, known.problem->operation);
    json["measurements"].push_back(std::move(entry));
  }
  return json;
}

std::string ranking_text(const tuner::Decision& decision) {
  Table table({{"", right},
               {"CONFIG"},
               {"TIME", right},
               {"GB/s", right},
               {"SPREAD", right},
               {"SAMPLES", right},
               {"STAGE"},
               {"REGISTERS", right},
               {"LOCAL", right},
               {"MEASURED (UTC)"}});
  int place = 0;
  for (const auto& [config, measurement] : decision.ranking)
    table.add({fmt::to_string(++place), config, time_text(measurement.median_us),
               throughput_text(throughput_of(measurement)), percent_text(measurement.spread),
               fmt::to_string(measurement.samples_us.size()), measurement.stage > 0 ? "final" : "screening",
               fmt::to_string(measurement.registers), fmt::to_string(measurement.local_bytes),
               measurement.created_at});
  return table.text();
}

std::string quarantine_text(const Known& known) {
  Table table({{"REJECTED"}, {"REASON"}});
  for (const cache::Measurement* measurement : known.quarantined)
    table.add({measurement->config,
               cut(measurement->reason.substr(0, measurement->reason.find('\n')), widest_reason)});
  return table.text();
}

std::string evidence_text(const cache::Measurement& measurement) {
  Table table({{"EVIDENCE"}, {"of the winner's measurement"}});
  table.add({"rows", fmt::to_string(measurement.rows)});
  table.add({"bytes", fmt::to_string(measurement.bytes)});
  for (const auto& [name, value] : measurement.evidence) table.add({name, value});
  table.add({"compile key", measurement.compile_key});
  table.add({"template digest", measurement.template_digest});
  return table.text();
}

std::string text_of(const Known& known) {
  std::string text = fmt::format("{}  {}\nproblem  {}\ndevice   {}\n", known.key.id(), known.title(),
                                 known.key.problem, known.key.device);
  if (known.decision) {
    text += fmt::format("winner   {}\nbecause  {}\n\n{}", known.decision->winner.config,
                        known.decision->reason, ranking_text(*known.decision));
  } else {
    text += "winner   none: nothing was measured with the templates of this version\n";
  }
  if (!known.quarantined.empty()) text += "\n" + quarantine_text(known);
  if (known.decision) text += "\n" + evidence_text(known.decision->winner.measurement);
  if (known.history > 0)
    text += fmt::format("\n{} with templates of other versions (--json shows them)\n",
                        counted(static_cast<std::int64_t>(known.history), "measurement"));
  return text;
}

ExitCode show(const CommonOptions& common, const std::string& prefix) {
  const cache::Cache cache = open_database(common);
  const Known known(cache, find_key(cache, prefix));
  if (common.json)
    print(json_of_known(known));
  else
    fmt::print("{}", text_of(known));
  return ExitCode::success;
}

}  // namespace

void add_db(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("db", "Read what the database knows");
  command->require_subcommand(1);

  auto list_options = std::make_shared<CommonOptions>();
  CLI::App* list_command = command->add_subcommand("list", "Every problem and its winner");
  list_command->footer(list_examples);
  add_device_option(*list_command, *list_options, "Only what this device would use: cuda, cuda:N or host");
  add_database_option(*list_command, *list_options);
  add_json_option(*list_command, *list_options);
  list_command->callback(
      [list_options, &chosen] { chosen = [list_options] { return list(*list_options); }; });

  auto show_options = std::make_shared<CommonOptions>();
  auto key = std::make_shared<std::string>();
  CLI::App* show_command =
      command->add_subcommand("show", "All configs tried on a problem, why the winner won, and the evidence");
  show_command->footer(show_examples);
  show_command->add_option("KEY", *key, "Of db list; its first 4 digits or more")->required();
  add_database_option(*show_command, *show_options);
  add_json_option(*show_command, *show_options);
  show_command->callback(
      [show_options, key, &chosen] { chosen = [show_options, key] { return show(*show_options, *key); }; });
}

}  // namespace ce::cli
