#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/printable.hpp"
#include "cli/analysis/populations.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;

constexpr const char* history_examples =
    "\nExamples:\n"
    "  ce-tune db history 3fa2c81b04d7\n"
    "  ce-tune db history 3fa2 --json\n"
    "\n"
    "A new line begins where the driver, the compiler or the templates of a variant change.\n";

constexpr int widest_bar = 24;
constexpr std::size_t digest_digits = 8;
constexpr double infinite = std::numeric_limits<double>::infinity();

std::string templates_text(const Measurement& measurement) {
  return tuner::subject_of_race(measurement.key) ? measurement.template_digest
                                                 : measurement.template_digest.substr(0, digest_digits);
}

/// Consecutive measurements with the same software.
struct Generation {
  std::string driver, compiler;
  std::string first_at, last_at;
  std::map<std::string, std::string> templates;  ///< digests by tuner::templates_of()
  std::set<std::string> configs;
  std::map<std::string, std::vector<const Measurement*>>
      runs;  ///< by config: runs in its highest stage, with the most rows

  /// In the highest stage, with the most rows: the config with the smallest median of runs, and its median run. (The
  /// fastest of many runs would be compared with a single one.) Null if all were rejected.
  [[nodiscard]] const Measurement* best() const {
    const Measurement* found = nullptr;
    for (const auto& [config, list] : runs) {
      std::vector<const Measurement*> sorted = list;
      const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
      std::nth_element(sorted.begin(), middle, sorted.end(),
                       [](const auto* a, const auto* b) { return time_of(*a) < time_of(*b); });
      if (found == nullptr ||
          std::tuple(rank(**middle), time_of(**middle)) < std::tuple(rank(*found), time_of(*found)))
        found = *middle;
    }
    return found;
  }

  [[nodiscard]] bool has(const Measurement& measurement, const tuner::Software& software) const {
    const auto known = templates.find(std::string(tuner::templates_of(measurement)));
    return driver == software.driver && compiler == software.toolkit &&
           (known == templates.end() || known->second == measurement.template_digest);
  }
  void add(const Measurement& measurement) {
    templates[std::string(tuner::templates_of(measurement))] = measurement.template_digest;
    configs.insert(measurement.config);
    last_at = measurement.created_at;
    if (measurement.outcome != cache::Outcome::measured) return;
    std::vector<const Measurement*>& own = runs[measurement.config];
    if (!own.empty() && rank(measurement) > rank(*own.front())) return;
    if (!own.empty() && rank(measurement) < rank(*own.front())) own.clear();
    own.push_back(&measurement);
  }

 private:
  static std::tuple<int, std::int64_t> rank(const Measurement& m) { return {-m.stage, -m.rows}; }
  static double time_of(const Measurement& m) { return has_time(m) ? m.median_us : infinite; }
};

std::vector<Generation> generations_of(const std::vector<Measurement>& measurements) {
  std::vector<Generation> generations;
  for (const Measurement& measurement : measurements) {
    const tuner::Software software = tuner::software_of(measurement);
    if (generations.empty() || !generations.back().has(measurement, software))
      generations.push_back({.driver = software.driver,
                             .compiler = software.toolkit,
                             .first_at = measurement.created_at,
                             .last_at = {},
                             .templates = {},
                             .configs = {},
                             .runs = {}});
    generations.back().add(measurement);
  }
  return generations;
}

Json document_of(const Known& known, const std::vector<Generation>& generations) {
  Json list = Json::array();
  for (const Generation& generation : generations) {
    Json entry{{"driver", generation.driver},
               {"compiler", generation.compiler},
               {"first_at", generation.first_at},
               {"last_at", generation.last_at},
               {"templates", generation.templates},
               {"configs", generation.configs.size()},
               {"best", Json()}};
    if (const Measurement* best = generation.best()) {
      entry["best"] = json_of(*best);
      entry["best"]["gbs"] = throughput_of(*best);
    }
    list.push_back(std::move(entry));
  }
  return {{"key", known.key.id()},
          {"problem_text", known.key.problem},
          {"device_text", known.key.device},
          {"generations", list}};
}

/// A bar for the throughput; times with different rows are not comparable.
std::string change_text(const Measurement* before, const Measurement& after) {
  if (before == nullptr) return "";
  if (before->rows != after.rows || throughput_of(*before) <= 0 || throughput_of(after) <= 0) return "-";
  return fmt::format("{:+.1f}%", (throughput_of(after) / throughput_of(*before) - 1) * 100);
}

/// \param most  the largest of all bars
std::string bar(double gbs, double most) {
  if (gbs <= 0) return "";
  return std::string(static_cast<std::size_t>(std::lround(widest_bar * gbs / most)), '#');
}

std::string text_of(const Known& known, const std::vector<Generation>& generations) {
  using enum Table::Align;
  Table table({{"FROM (UTC)"},
               {.title = "DRIVER", .rank = 2, .least = 8},
               {.title = "COMPILER", .rank = 3, .least = 8},
               {.title = "TEMPLATES", .rank = 4},
               {"CONFIGS", right, 5},
               {.title = "BEST", .least = 20},
               Table::times("TIME"),
               Table::throughputs(),
               {"CHANGE", right, 1},
               {.title = "", .rank = 6}});
  double most = 0;
  const Measurement* previous = nullptr;
  for (const Generation& generation : generations)
    if (const Measurement* best = generation.best()) most = std::max(most, throughput_of(*best));
  for (const Generation& generation : generations) {
    std::vector<Table::Cell> cells{generation.first_at.substr(0, 16), generation.driver, generation.compiler};
    const Measurement* found = generation.best();
    if (found == nullptr) {
      cells.insert(cells.end(),
                   {"-", fmt::to_string(generation.configs.size()), "all rejected", "-", "-", "-", ""});
    } else {
      const Measurement& best = *found;
      const double gbs = throughput_of(best);
      cells.insert(cells.end(),
                   {templates_text(best), fmt::to_string(generation.configs.size()), best.config,
                    has_time(best) ? best.median_us : 0, gbs, change_text(previous, best), bar(gbs, most)});
      previous = &best;
    }
    table.add(std::move(cells));
  }
  return fmt::format("{}  {}\ndevice   {}\n\n{}", known.key.id(), known.title(), printable(known.key.device),
                     table.text());
}

ExitCode history(const CommonOptions& common, const std::string& prefix) {
  const cache::Cache cache = open_tagged_database(common);
  const Known known(cache, find_key(cache, prefix));
  const std::vector<Generation> generations = generations_of(known.measurements);
  if (common.json)
    print(document_of(known, generations));
  else
    print_text("{}", text_of(known, generations));
  return ExitCode::success;
}

}  // namespace

void add_db_history(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  auto key = std::make_shared<std::string>();
  CLI::App* command = db.add_subcommand(
      "history", "Show how fast a problem was with each driver, compiler and version of templates");
  command->footer(history_examples);
  add_key_argument(*command, *key);
  add_tag_option(*command, *options);
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  add_wide_option(*command);
  command->callback([options, key, &chosen] { chosen = [options, key] { return history(*options, *key); }; });
}

}  // namespace ce::cli
