#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
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
    "HERE is the database of --db, THERE is FILE, which is not changed. Winners are those of the templates "
    "of "
    "this\n"
    "ce-tune; RATIO is the time there over the time here, where both are of as many rows.\n";

/// What one of the two databases knows, one key at a time.
struct Side {
  explicit Side(const cache::Cache& its) : cache(&its), slower(its) {}

  [[nodiscard]] std::optional<cache::Measurement> winner_of(const cache::Key& key) const {
    const auto problem = problem_of(key);
    auto decision = problem ? tuner::decide(*cache, key, *problem) : std::nullopt;
    return decision ? std::optional(std::move(decision->winner.measurement)) : std::nullopt;
  }

  const cache::Cache* cache;
  SlowerWinners slower;
};

/// A key that one of them has, or both.
struct Row {
  struct Half {
    bool is_there = false;
    std::optional<cache::Measurement> winner;
    const ProblemFinding* slower = nullptr;
  };
  cache::Key key;
  Half here, there;
};

struct Difference {
  Side here, there;
  std::map<std::string, Row> rows;                        ///< by the key's id
  std::size_t shared = 0, only_here = 0, only_there = 0;  ///< measurements

  /// Both sides are looked through at once, where there is a thread more.
  Difference(const cache::Cache& one, const cache::Cache& other)
      : Difference(one, std::async([&other] { return Side(other); })) {}

 private:
  Difference(const cache::Cache& one, std::future<Side> other) : here(one), there(other.get()) {
    for (const auto& [side, half] : {std::pair{&here, &Row::here}, std::pair{&there, &Row::there}})
      for (const cache::KeySummary& summary : side->cache->keys()) {
        Row& row = rows[summary.key.id()];
        row.key = summary.key;
        (row.*half).is_there = true;
      }
    std::vector<Row*> list;
    for (auto& [id, row] : rows) list.push_back(&row);
    make_in_order(
        list.size(), [&](std::size_t i) { return filled(*list[i]); },
        [&](std::size_t, const Counts& counts) {
          shared += counts.shared;
          only_here += counts.only_here;
          only_there += counts.only_there;
        });
  }

  struct Counts {
    std::size_t shared = 0, only_here = 0, only_there = 0;
  };

  /// Fills in the row. \returns what it adds to the counts
  [[nodiscard]] Counts filled(Row& row) const {
    for (const auto& [side, half] : {std::pair{&here, &row.here}, std::pair{&there, &row.there}})
      if (half->is_there) {
        half->winner = side->winner_of(row.key);
        half->slower = side->slower.find(row.key);
      }
    std::vector<std::string> mine = here.cache->identities(row.key),
                             others = there.cache->identities(row.key);
    std::sort(mine.begin(), mine.end());
    const auto both =
        static_cast<std::size_t>(std::count_if(others.begin(), others.end(), [&](const auto& identity) {
          return std::binary_search(mine.begin(), mine.end(), identity);
        }));
    return {both, mine.size() - both, others.size() - both};
  }
};

Json json_of_winner(const Row::Half& half) {
  if (!half.winner) return {};
  return {{"config", half.winner->config},
          {"median_us", half.winner->median_us},
          {"gbs", throughput_of(*half.winner)},
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
  CLI::App* command = db.add_subcommand("diff", "The winners of two databases side by side");
  command->footer(diff_examples);
  command->add_option("FILE", *other, "The other database")->required();
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  add_wide_option(*command);
  command->callback(
      [options, other, &chosen] { chosen = [options, other] { return diff(*options, *other); }; });
}

}  // namespace ce::cli
