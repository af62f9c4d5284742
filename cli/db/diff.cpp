#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/in_order.hpp"
#include "cache/cache.hpp"
#include "cli/analysis/cases.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/long_work.hpp"
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
    "HERE is the database of --db; THERE is FILE, which is not changed. Winners belong to the templates of "
    "this ce-tune.\nRATIO is the time there over the time here, if both have the same number of rows.\n";

/// A key of one database or of both.
struct Row {
  struct Winner {
    std::string config;
    std::int64_t rows;
    double median_us, gbs;
  };
  struct Half {
    bool is_there = false;
    std::optional<Winner> winner;
    const ProblemFinding* slower = nullptr;
  };
  cache::Key key;
  Half here, there;
};

std::optional<Row::Winner> winner_of(const cache::Cache& cache, const cache::Key& key) {
  const auto decision = tuner::decide(cache, key);
  if (!decision) return std::nullopt;
  const cache::Measurement& its = decision->winner.measurement;
  return Row::Winner{its.config, its.rows, its.median_us, throughput_of(its)};
}

/// Both databases are read one key at a time, while its pages are in memory.
class Difference {
 public:
  std::map<std::string, Row> rows;                        ///< by the key's id
  std::size_t shared = 0, only_here = 0, only_there = 0;  ///< numbers of measurements

  Difference(const cache::Cache& one, const cache::Cache& other)
      : here_{.cache = one}, there_{.cache = other} {
    for (const auto& [side, half] : {std::pair{&here_, &Row::here}, std::pair{&there_, &Row::there}})
      for (const cache::KeySummary& summary : side->cache.keys()) {
        Row& row = rows[summary.key.id()];
        row.key = summary.key;
        (row.*half).is_there = true;
      }
    // The order of keys(), which is that of the cases.
    std::vector<Row*> list;
    for (auto& [id, row] : rows) list.push_back(&row);
    std::sort(list.begin(), list.end(), [](const Row* a, const Row* b) {
      return std::tie(a->key.device, a->key.problem) < std::tie(b->key.device, b->key.problem);
    });
    make_in_order(
        list.size(), [&](std::size_t i) { return filled(*list[i]); },
        [&](std::size_t i, Found found) {
          LongWork::report(i, list.size());
          shared += found.shared;
          only_here += found.only_here;
          only_there += found.only_there;
          here_.cases.splice(here_.cases.end(), found.here);
          there_.cases.splice(there_.cases.end(), found.there);
        });
    for (const auto& [side, half] : {std::pair{&here_, &Row::here}, std::pair{&there_, &Row::there}}) {
      side->slower.emplace(side->cases);
      side->cases.clear();
      for (Row* row : list) (row->*half).slower = side->slower->find(row->key);
    }
  }

 private:
  struct Side {
    const cache::Cache& cache;
    std::list<Case> cases{};
    std::optional<SlowerWinners> slower{};
  };
  /// The cases of one key.
  struct Found {
    std::size_t shared = 0, only_here = 0, only_there = 0;
    std::list<Case> here{}, there{};  ///< one case, or none
  };

  /// Fills in the winners of the row. \returns the other results of its key
  [[nodiscard]] Found filled(Row& row) const {
    Found found;
    std::vector<std::string> mine, others;
    const auto look = [&](const Side& side, Row::Half& half, std::list<Case>& cases,
                          std::vector<std::string>& identities) {
      if (!half.is_there) return;
      cases.push_back(case_by_software(side.cache, row.key));
      half.winner = winner_of(side.cache, row.key);
      identities = side.cache.identities(row.key);
    };
    look(here_, row.here, found.here, mine);
    look(there_, row.there, found.there, others);
    std::sort(mine.begin(), mine.end());
    found.shared =
        static_cast<std::size_t>(std::count_if(others.begin(), others.end(), [&](const auto& identity) {
          return std::binary_search(mine.begin(), mine.end(), identity);
        }));
    found.only_here = mine.size() - found.shared;
    found.only_there = others.size() - found.shared;
    return found;
  }

  Side here_, there_;
};

Json json_of_winner(const Row::Half& half) {
  if (!half.winner) return {};
  return {{"config", half.winner->config},
          {"median_us", half.winner->median_us},
          {"gbs", half.winner->gbs},
          {"slower", json_of_slower(half.slower)}};
}

Json document_of(const Difference& difference) {
  Json keys = Json::array();
  for (const auto& [id, row] : difference.rows)
    keys.push_back({{"key", id},
                    {"problem_text", row.key.problem},
                    {"device_text", row.key.device},
                    {"in_here", row.here.is_there},
                    {"in_there", row.there.is_there},
                    {"here", json_of_winner(row.here)},
                    {"there", json_of_winner(row.there)}});
  return {{"keys", keys},
          {"measurements",
           {{"shared", difference.shared},
            {"only_here", difference.only_here},
            {"only_there", difference.only_there}}}};
}

std::string text_of(const Difference& difference) {
  using enum Table::Align;
  Table table({{"KEY"},
               {.title = "PROBLEM", .least = 20},
               {.title = "DEVICE", .rank = 3, .least = 8},
               {.title = "HERE", .least = 12},
               Table::times("TIME"),
               {.title = "THERE", .least = 12},
               Table::times("TIME", 2),
               {"RATIO", right}});
  const auto cells_of = [](const Row::Half& half) -> std::vector<Table::Cell> {
    if (!half.is_there) return {"no such key", "-"};
    if (!half.winner) return {"none today", "-"};
    return {{half.winner->config, half.slower == nullptr ? "" : " (slower)"}, half.winner->median_us};
  };
  for (const auto& [id, row] : difference.rows) {
    std::vector<Table::Cell> cells{id, title_of(row.key), device_name_of(row.key)};
    for (const Row::Half* half : {&row.here, &row.there})
      for (Table::Cell& cell : cells_of(*half)) cells.push_back(std::move(cell));
    const auto &one = row.here.winner, &other = row.there.winner;
    cells.emplace_back(one && other && one->rows == other->rows
                           ? fmt::format("{:.3f}", other->median_us / one->median_us)
                           : "-");
    table.add(std::move(cells));
  }
  return fmt::format("{}\n{} in both, {} only here, {} only there\n", table.empty() ? "" : table.text(),
                     counted(static_cast<std::int64_t>(difference.shared), "measurement"),
                     difference.only_here, difference.only_there);
}

ExitCode diff(const CommonOptions& common, const std::string& other) {
  const cache::Cache here = open_database(common), there = cache::Cache::read_existing(other);
  const Difference difference = [&] {
    const LongWork work("comparing databases");
    return Difference(here, there);
  }();
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
  CLI::App* command = db.add_subcommand("diff", "Compare the winners of two databases");
  command->footer(diff_examples);
  command->add_option("FILE", *other, "The other database")->required();
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  add_wide_option(*command);
  command->callback(
      [options, other, &chosen] { chosen = [options, other] { return diff(*options, *other); }; });
}

}  // namespace ce::cli
