#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/db.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* list_examples =
    "\nExamples:\n"
    "  ce-tune db list\n"
    "  ce-tune db list --device cuda:0 --json\n";

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
    using enum Table::Align;
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

}  // namespace

void add_db_list(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command = db.add_subcommand("list", "Every problem and its winner");
  command->footer(list_examples);
  add_device_option(*command, *options, "Only what this device would use: cuda, cuda:N or host");
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return list(*options); }; });
}

}  // namespace ce::cli
