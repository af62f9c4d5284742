#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.hpp"
#include "cache/bundle.hpp"
#include "cache/layers.hpp"
#include "cli/analysis/cases.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "tuner/decide.hpp"
#include "tuner/doubt.hpp"

namespace ce::cli {
namespace {

constexpr const char* list_examples =
    "\nExamples:\n"
    "  ce-tune db list\n"
    "  ce-tune db list --layers\n"
    "  ce-tune db list --device cuda:0 --json\n";

struct ListOptions {
  CommonOptions common;
  bool layers = false;
};

/// Each database's data for one key, nearest first.
using Found = std::vector<std::pair<const Asked*, cache::KeySummary>>;

/// Keys by device and then by problem; of one device, or all.
std::map<std::pair<std::string, std::string>, Found> find_in(const std::vector<Asked>& databases,
                                                             const CommonOptions& common) {
  const std::string device = common.device.empty() ? "" : open_device(common)->model().key();
  std::map<std::pair<std::string, std::string>, Found> found;
  for (const Asked& database : databases)
    for (cache::KeySummary& summary : database.cache->keys())
      if (device.empty() || summary.key.device == device)
        found[{summary.key.device, summary.key.problem}].emplace_back(&database, std::move(summary));
  return found;
}

using Decided = std::optional<tuner::Decision>;

Decided winner_in(const std::pair<const Asked*, cache::KeySummary>& found) {
  return tuner::decide(*found.first->cache, found.second.key);
}

/// The nearest database with a final; if there is none, the nearest.
std::pair<std::size_t, Decided> nearest_that_knows(const Found& found) {
  for (std::size_t i = 0; i < found.size(); ++i)
    if (Decided decision = winner_in(found[i]); tuner::has_final(decision)) return {i, std::move(decision)};
  return {0, winner_in(found.front())};
}

/// Empty if the winner's search is finished.
std::string why_unfinished(const tuner::Decision& decision) {
  if (!decision.pinned.empty()) return {};
  return tuner::has_final(decision) ? tuner::unfinished_because(decision.winner.measurement)
                                    : "no final was timed";
}

Json json_of_summary(const cache::KeySummary& summary, const Decided& decision,
                     const ProblemFinding* slower) {
  const auto problem = problem_of(summary.key);
  Json json{{"key", summary.key.id()},
            {"problem_text", summary.key.problem},
            {"device_text", summary.key.device},
            {"device", device_name_of(summary.key)},
            {"problem", problem ? json_of(*problem) : Json()},
            {"measurements", summary.measurements},
            {"configs", summary.configs},
            {"quarantined", summary.quarantined},
            {"first_at", summary.first_at},
            {"last_at", summary.last_at},
            {"winner", Json()}};
  if (decision) {
    const tuner::Candidate& winner = decision->winner;
    const std::string why = why_unfinished(*decision);
    json["winner"] = {{"config", winner.text()},
                      {"median_us", winner.measurement.median_us},
                      {"spread", winner.measurement.spread},
                      {"gbs", throughput_of(winner.measurement)},
                      {"unfinished", why.empty() ? Json() : Json(why)},
                      {"pinned", decision->pinned.empty() ? Json() : Json(decision->pinned)},
                      {"slower", json_of_slower(slower)}};
  }
  return json;
}

std::vector<Table::Cell> row_of(const cache::KeySummary& summary, const Decided& decision,
                                const ProblemFinding* slower) {
  std::vector<Table::Cell> cells{summary.key.id(), title_of(summary.key)};
  if (decision) {
    const tuner::Candidate& winner = decision->winner;
    const std::string marks = fmt::format("{}{}{}", decision->pinned.empty() ? "" : " (pinned)",
                                          why_unfinished(*decision).empty() ? "" : " (unfinished)",
                                          slower == nullptr ? "" : " (slower)");
    cells.insert(cells.end(), {Table::Cell(winner.text(), marks), winner.measurement.median_us,
                               throughput_of(winner.measurement)});
  } else {
    cells.insert(cells.end(), {"none today", "-", "-"});
  }
  cells.insert(cells.end(), {fmt::to_string(summary.configs), fmt::to_string(summary.quarantined),
                             summary.last_at == cache::undated ? "-" : summary.last_at.substr(0, 16)});
  return cells;
}

Json json_of_layers(const std::vector<Asked>& databases) {
  Json json = Json::array();
  for (const Asked& database : databases)
    json.push_back({{"layer", database.name}, {"place", database.place}, {"problem", database.problem}});
  return json;
}

ExitCode list(const ListOptions& options) {
  const cache::Cache user =
      options.layers ? open_layered_database(options.common) : open_tagged_database(options.common);
  const std::string path = database_path(options.common).string();
  const std::vector<Asked> databases = databases_of(user, path);
  const auto found = find_in(databases, options.common);
  std::map<const Asked*, SlowerWinners> slower;
  for (const Asked& database : databases) slower.emplace(&database, *database.cache);
  Json documents = Json::array();
  std::string text, notes, device;
  const auto new_table = [&options] {
    using enum Table::Align;
    std::vector<Table::Column> columns{{"KEY"},
                                       {.title = "PROBLEM", .least = 30},
                                       {.title = "WINNER", .least = 12},
                                       Table::times("TIME"),
                                       Table::throughputs(1),
                                       {"TRIED", right, 2},
                                       {"REJECTED", right, 3},
                                       {.title = "LAST (UTC)", .rank = 4}};
    if (options.layers) columns.push_back({"LAYER"});
    return Table(columns);
  };
  Table table = new_table();
  const auto end_device = [&] {
    if (!table.empty()) text += fmt::format("{}\n{}\n", device, table.text(2));
    table = new_table();
  };
  std::string device_text;
  for (const auto& [key, said] : found) {
    const auto [nearest, decision] = nearest_that_knows(said);
    const auto& [database, summary] = said[nearest];
    const ProblemFinding* finding = slower.at(database).find(summary.key);
    documents.push_back(json_of_summary(summary, decision, finding));
    if (finding != nullptr) notes += fmt::format("{}: {}\n", summary.key.id(), slower_text(*finding));
    if (options.layers) documents.back()["layer"] = database->name;
    if (key.first != device_text) end_device();
    device_text = key.first;
    device = printable(device_name_of(summary.key));
    std::vector<Table::Cell> cells = row_of(summary, decision, finding);
    if (options.layers) cells.emplace_back(database->name);
    table.add(std::move(cells));
  }
  end_device();
  if (!notes.empty()) text += notes + "\n";
  const std::string count = counted(static_cast<std::int64_t>(found.size()), "key");
  if (options.common.json) {
    Json document{{"database", path}, {"keys", documents}};
    if (options.layers) document["layers"] = json_of_layers(databases);
    print(document);
  } else if (options.layers) {
    print_text("{}{}\n", text, count);
    for (const Asked& database : databases)
      print_text("  {:<7} {}{}\n", database.name, database.place,
                 database.problem.empty() ? "" : ": " + database.problem);
  } else {
    print_text("{}{} in {}\n", text, count, path);
  }
  return ExitCode::success;
}

}  // namespace

void add_db_list(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = db.add_subcommand("list", "List every problem and its winner");
  command->footer(list_examples);
  CLI::Option* layers =
      command->add_flag("--layers", options->layers,
                        "Also list winners of the site's database (CE_SITE_DB) and of the one that ships "
                        "with ce,\nfor problems without a winner in the databases before them");
  add_device_option(*command, options->common, "Only keys that this device would use: cuda, cuda:N or host");
  add_tag_option(*command, options->common)->excludes(layers);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, &chosen] { chosen = [options] { return list(*options); }; });
}

}  // namespace ce::cli
