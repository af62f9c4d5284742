#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/codec.hpp"
#include "cli/analysis/cases.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* diff_examples =
    "\nExamples:\n"
    "  ce-tune db diff other.db\n"
    "  ce-tune db diff yesterday.db --db today.db --json\n"
    "\n"
    "HERE is the database of --db, THERE is FILE, which is not changed. Winners are those of the templates "
    "of "
    "this\n"
    "ce-tune; RATIO is the time there over the time here, where both are of as many rows.\n";

/// What one of the two databases knows.
struct Side {
  explicit Side(const cache::Cache& cache) : slower(cache) {
    for (const cache::KeySummary& summary : cache.keys()) {
      const Known& known = keys.emplace(summary.key.id(), Known(cache, summary.key)).first->second;
      for (const cache::Measurement& measurement : known.measurements)
        identities.insert(cache::identity_of(measurement));
    }
  }
  [[nodiscard]] const Known* find(const std::string& id) const {
    const auto found = keys.find(id);
    return found == keys.end() ? nullptr : &found->second;
  }

  std::map<std::string, Known> keys;  ///< by id
  std::set<std::string> identities;   ///< of all measurements
  SlowerWinners slower;
};

struct Difference {
  Side here, there;
  std::set<std::string> ids;  ///< of the keys of both
  std::size_t shared = 0;     ///< measurements that both have

  Difference(const cache::Cache& one, const cache::Cache& other) : here(one), there(other) {
    for (const auto* side : {&here, &there})
      for (const auto& [id, known] : side->keys) ids.insert(id);
    for (const std::string& identity : here.identities) shared += there.identities.count(identity);
  }
};

const tuner::Candidate* winner_of(const Known* known) {
  return known != nullptr && known->decision ? &known->decision->winner : nullptr;
}

Json json_of_winner(const tuner::Candidate* winner, const ProblemFinding* slower) {
  if (winner == nullptr) return {};
  return {{"config", winner->text()},
          {"median_us", winner->measurement.median_us},
          {"gbs", throughput_of(winner->measurement)},
          {"slower", json_of_slower(slower)}};
}

Json document_of(const Difference& difference) {
  Json keys = Json::array();
  for (const std::string& id : difference.ids) {
    const Known *here = difference.here.find(id), *there = difference.there.find(id);
    const cache::Key& key = (here != nullptr ? here : there)->key;
    keys.push_back({{"key", id},
                    {"problem_text", key.problem},
                    {"device_text", key.device},
                    {"in_here", here != nullptr},
                    {"in_there", there != nullptr},
                    {"here", json_of_winner(winner_of(here), difference.here.slower.find(key))},
                    {"there", json_of_winner(winner_of(there), difference.there.slower.find(key))}});
  }
  return {{"keys", keys},
          {"measurements",
           {{"shared", difference.shared},
            {"only_here", difference.here.identities.size() - difference.shared},
            {"only_there", difference.there.identities.size() - difference.shared}}}};
}

std::string text_of(const Difference& difference) {
  using enum Table::Align;
  Table table({{"KEY"},
               {"PROBLEM"},
               {"DEVICE"},
               {"HERE"},
               {"TIME", right},
               {"THERE"},
               {"TIME", right},
               {"RATIO", right}});
  const auto cells_of = [](const Side& side, const Known* known) -> std::vector<std::string> {
    if (known == nullptr) return {"no such key", "-"};
    const tuner::Candidate* winner = winner_of(known);
    if (winner == nullptr) return {"none today", "-"};
    return {winner->text() + (side.slower.find(known->key) == nullptr ? "" : " (slower)"),
            time_text(winner->measurement.median_us)};
  };
  for (const std::string& id : difference.ids) {
    const Known *here = difference.here.find(id), *there = difference.there.find(id);
    const Known& any = here != nullptr ? *here : *there;
    std::vector<std::string> cells{id, any.title(), device_name_of(any.key)};
    for (const auto& [side, known] : {std::pair{&difference.here, here}, std::pair{&difference.there, there}})
      for (std::string& cell : cells_of(*side, known)) cells.push_back(std::move(cell));
    const tuner::Candidate *one = winner_of(here), *other = winner_of(there);
    cells.push_back(one != nullptr && other != nullptr && one->measurement.rows == other->measurement.rows
                        ? fmt::format("{:.3f}", other->measurement.median_us / one->measurement.median_us)
                        : "-");
    table.add(std::move(cells));
  }
  return fmt::format("{}\n{} in both, {} only here, {} only there\n", table.empty() ? "" : table.text(),
                     counted(static_cast<std::int64_t>(difference.shared), "measurement"),
                     difference.here.identities.size() - difference.shared,
                     difference.there.identities.size() - difference.shared);
}

ExitCode diff(const CommonOptions& common, const std::string& other) {
  const Difference difference(open_database(common), cache::Cache::open_copy(other));
  if (common.json)
    print(document_of(difference));
  else
    print_text("{}", text_of(difference));
  return ExitCode::success;
}

}  // namespace

void add_db_diff(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  auto other = std::make_shared<std::string>();
  CLI::App* command = db.add_subcommand("diff", "The winners of two databases side by side");
  command->footer(diff_examples);
  command->add_option("FILE", *other, "The other database")->required();
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback(
      [options, other, &chosen] { chosen = [options, other] { return diff(*options, *other); }; });
}

}  // namespace ce::cli
