#include "cli/analysis/explain.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/printable.hpp"
#include "ce/error.hpp"
#include "cli/analysis/cases.hpp"
#include "cli/commands.hpp"
#include "cli/commands/ceilings.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "tuner/bench.hpp"

namespace ce::cli {
namespace {

using tuner::Explanation;

constexpr const char* explain_examples =
    "\nExamples:\n"
    "  ce-tune explain 3fa2c81b04d7\n"
    "  ce-tune explain 3fa2 --json\n"
    "\nKEY is the beginning of a key that db list shows, at least 4 digits of it. db show shows all measured "
    "configs.\n";

constexpr std::size_t widest_rejection = 120;
constexpr std::size_t most_finalists = 16;

/// The fastest kernel in the database that only moves as much memory on this device.
struct Ceiling {
  std::string_view kind;
  double gbs = 0;
};

std::optional<Ceiling> ceiling_of(const cache::Cache& cache, const Known& known) {
  const generator::Operation kind = tuner::ceiling_kind(*known.problem);
  const Ceilings ceilings = ceilings_on_record(cache)[known.key.device];
  const auto found = ceilings.find(kind);
  if (found == ceilings.end()) return std::nullopt;
  return Ceiling{generator::name(kind), found->second};
}

std::string signed_percent(double share) { return fmt::format("{:+.1f}%", 100 * share); }

std::string sureness_of(const Explanation& why) {
  const auto open = std::count_if(why.finalists.begin(), why.finalists.end(),
                                  [](const tuner::Finalist& finalist) { return finalist.is_open(); });
  return fmt::format(
      "the fastest in {:.0f}% of {} resamplings, within {:.1f}% of the fastest in {:.0f}%; {} of {} cannot "
      "be "
      "told apart from it",
      100 * why.fastest, tuner::resamplings, 100 * tuner::tie, 100 * why.near_fastest, open - 1,
      counted(static_cast<std::int64_t>(why.finalists.size()) - 1, "other finalist"));
}

std::string finalists_text(const Explanation& why) {
  using enum Table::Align;
  Table table({{.title = "FINALIST", .least = 20},
               Table::times("TIME"),
               Table::throughputs(1),
               {"BEHIND", right},
               {"95% INTERVAL", right, 2},
               {"SAMPLES", right, 6},
               {"REGISTERS", right, 3},
               {"LOCAL", right, 5},
               {"WARPS/SM", right, 4},
               {""}});
  for (std::size_t i = 0; i < std::min(most_finalists, why.finalists.size()); ++i) {
    const tuner::Finalist& finalist = why.finalists[i];
    const cache::Measurement& measurement = finalist.candidate.measurement;
    table.add({measurement.config, measurement.median_us, throughput_of(measurement),
               i == 0 ? "-" : signed_percent(finalist.behind),
               i == 0 ? "-"
                      : fmt::format("{} to {}", signed_percent(finalist.interval.low),
                                    signed_percent(finalist.interval.high)),
               fmt::to_string(measurement.samples_us.size()), fmt::to_string(measurement.registers),
               fmt::to_string(measurement.local_bytes),
               finalist.resident_warps > 0 ? fmt::to_string(finalist.resident_warps) : "-",
               i == 0               ? "winner"
               : finalist.tied      ? "tie"
               : finalist.is_open() ? "not told apart"
                                    : ""});
  }
  return table.text();
}

std::string effects_text(const Explanation& why) {
  using enum Table::Align;
  Table table({{"AXIS"},
               {.title = "OTHER VALUE", .least = 11},
               {"AT THE WINNER", right},
               {"ALL PAIRS", right},
               {"PAIRS", right}});
  for (const tuner::AxisEffect& effect : why.effects)
    table.add({fmt::format("{}={}", effect.axis, effect.value), effect.other,
               effect.at_winner ? signed_percent(*effect.at_winner) : "-", signed_percent(effect.median),
               fmt::to_string(effect.pairs)});
  return table.text();
}

std::string coverage_text(const Explanation& why) {
  using enum Table::Align;
  Table table({{.title = "VARIANT", .least = 16},
               {"POINTS", right},
               {"CONFIGS", right},
               {"TRIED", right},
               {"NEVER TRIED", right},
               Table::times("BEST")});
  for (const tuner::Coverage& variant : why.coverage)
    table.add({variant.variant, fmt::to_string(variant.points), fmt::to_string(variant.configs),
               fmt::to_string(variant.tried), fmt::to_string(variant.configs - variant.tried),
               variant.best_us});
  return table.text();
}

std::string rejections_text(const Known& known) {
  using enum Table::Align;
  Table table({{"REJECTED", right}, {.title = "REASON", .least = 40}});
  for (const auto& [reason, count] : known.rejections())
    table.add({counted(count, "config"), cut(reason, widest_rejection)});
  return table.text();
}

/// Known facts besides the search.
struct Beside {
  Asked database;
  std::optional<Ceiling> ceiling;
  const ProblemFinding* slower;  ///< null if the winner is not known to be slower
};

std::string text_of(const Known& known, const Explanation& why, const Beside& beside) {
  const std::optional<Ceiling>& ceiling = beside.ceiling;
  const tuner::Candidate& winner = why.decision.winner;
  std::string text =
      fmt::format("{}  {}\nwinner   {}\nbecause  {}\ntimed    {}\n", known.key.id(), known.title(),
                  printable(winner.text()), printable(why.decision.reason), timed_text(winner.measurement));
  if (!known.pinned().empty())
    text +=
        fmt::format("pinned   {}: {}\n", printable(known.decision->winner.text()), printable(known.pinned()));
  if (beside.slower != nullptr) text += fmt::format("now      {}\n", slower_text(*beside.slower));
  if (beside.database.name != "user")
    text += fmt::format("layer    {}, {}\n", beside.database.name, beside.database.place);
  if (why.finalists.size() > 1) text += fmt::format("sure     {}\n", sureness_of(why));
  if (!why.ties.empty()) text += fmt::format("ties     {}\n", printable(why.ties));
  if (ceiling)
    text += fmt::format("ceiling  {} of {} GB/s, {}, the speed of the fastest measured {} kernel\n",
                        throughput_text(throughput_of(winner.measurement)), throughput_text(ceiling->gbs),
                        percent_text(throughput_of(winner.measurement) / ceiling->gbs), ceiling->kind);
  if (!why.coverage.empty())
    text += fmt::format("search   {} of {} tried; {}\n", why.tried(), counted(why.configs(), "config"),
                        why.tried() == why.configs() ? "the search tried every config"
                                                     : "the other configs were less promising, or the budget "
                                                       "was used up (sweep --strategy exhaustive tries all)");
  text += "\n" + finalists_text(why);
  if (why.finalists.size() > most_finalists)
    text += fmt::format("and {} more (--json)\n", why.finalists.size() - most_finalists);
  if (!why.effects.empty()) text += "\nCost of other values if nothing else changes:\n" + effects_text(why);
  if (!why.coverage.empty()) text += "\n" + coverage_text(why);
  if (!known.quarantined.empty()) text += "\n" + rejections_text(known);
  return text;
}

/// Null if the measurement has no such value.
Json uuid_of(const cache::Measurement& measurement) {
  const auto found = measurement.environment.find("uuid");
  return found == measurement.environment.end() ? Json() : Json(found->second);
}

Json document_of(const Known& known, const Explanation& why, const Beside& beside) {
  const std::optional<Ceiling>& ceiling = beside.ceiling;
  const tuner::Candidate& winner = why.decision.winner;
  Json document{{"key", known.key.id()},
                {"problem", json_of(*known.problem)},
                {"device_text", known.key.device},
                {"winner", winner.text()},
                {"reason", why.decision.reason},
                {"pinned", known.pinned().empty() ? Json() : Json(known.decision->winner.text())},
                {"timed_at", winner.measurement.created_at},
                {"uuid", uuid_of(winner.measurement)},
                {"layer", beside.database.name},
                {"place", beside.database.place},
                {"slower", json_of_slower(beside.slower)},
                {"fastest", why.fastest},
                {"near_fastest", why.near_fastest},
                {"ties", why.ties},
                {"ceiling", Json()},
                {"finalists", Json::array()},
                {"effects", Json::array()},
                {"variants", Json::array()},
                {"rejected", known.rejections()}};
  if (ceiling)
    document["ceiling"] = {{"operation", ceiling->kind},
                           {"gbs", ceiling->gbs},
                           {"share", throughput_of(winner.measurement) / ceiling->gbs}};
  for (const tuner::Finalist& finalist : why.finalists) {
    const cache::Measurement& measurement = finalist.candidate.measurement;
    document["finalists"].push_back({{"config", measurement.config},
                                     {"median_us", measurement.median_us},
                                     {"gbs", throughput_of(measurement)},
                                     {"behind", finalist.behind},
                                     {"behind_low", finalist.interval.low},
                                     {"behind_high", finalist.interval.high},
                                     {"tied", finalist.tied},
                                     {"samples", measurement.samples_us.size()},
                                     {"registers", measurement.registers},
                                     {"local_bytes", measurement.local_bytes},
                                     {"resident_warps", finalist.resident_warps}});
  }
  for (const tuner::AxisEffect& effect : why.effects) document["effects"].push_back(json_of(effect));
  for (const tuner::Coverage& variant : why.coverage)
    document["variants"].push_back({{"variant", variant.variant},
                                    {"points", variant.points},
                                    {"configs", variant.configs},
                                    {"tried", variant.tried},
                                    {"best_us", variant.best_us}});
  return document;
}

ExitCode explain(const CommonOptions& common, const std::string& prefix) {
  const cache::Cache user = open_layered_database(common);
  const FoundKey found = find_key(databases_of(user, database_path(common).string()), prefix);
  const cache::Cache& cache = *found.database.cache;
  const Known known(cache, found.key);
  const auto why = tuner::explain(known.measurements, known.key, known.problem_or_throw());
  if (!why)
    throw NotFound(
        fmt::format("{} ({}) has no winner, because nothing was measured with this version's templates",
                    known.key.id(), known.title()));
  const SlowerWinners winners(cache);
  const Beside beside{found.database, ceiling_of(cache, known), winners.find(found.key)};
  if (common.json)
    print(document_of(known, *why, beside));
  else
    print_text("{}", text_of(known, *why, beside));
  return ExitCode::success;
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  auto key = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("explain", "Explain why a config won, and how sure that is");
  command->footer(explain_examples);
  add_key_argument(*command, *key);
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  add_wide_option(*command);
  command->callback([options, key, &chosen] { chosen = [options, key] { return explain(*options, *key); }; });
}

}  // namespace ce::cli
