#include "cli/report/data.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/in_order.hpp"
#include "ce/version.hpp"
#include "cli/analysis/populations.hpp"
#include "cli/known.hpp"
#include "cli/report/width_plot.hpp"
#include "generator/config.hpp"
#include "generator/variant.hpp"
#include "tuner/bench.hpp"
#include "tuner/statistics.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;
using tuner::Population;

/// A key's contribution to the report of its device.
struct KeyReport {
  std::optional<ReportedProblem> reported;  ///< nothing if it only contributes to the device's noise
  std::vector<cache::Environment> environments;
  /// Compares each period with the previous one with equal rows; called once the noise of all keys is known.
  std::vector<std::optional<tuner::Evidence>> evidence;
  tuner::NoisePool noise;
};

/// The winner's measurement that is most comparable with another one: stage, software, GPU and day should be equal.
const Measurement& winner_beside(const Measurement& other, const Measurement& winner,
                                 const std::vector<Measurement>& measurements) {
  const auto likeness = [&](const Measurement& measurement) {
    int equal = measurement.stage == other.stage ? 1 : 0;
    for (const char* name : {"driver", "nvrtc", "uuid"}) {
      const auto its = measurement.environment.find(name), the_other = other.environment.find(name);
      const bool has = its != measurement.environment.end();
      equal +=
          has == (the_other != other.environment.end()) && (!has || its->second == the_other->second) ? 1 : 0;
    }
    return std::tuple(equal, measurement.created_at == other.created_at);
  };
  const Measurement* nearest = &winner;
  for (const Measurement& measurement : measurements)
    if (measurement.config == winner.config && measurement.rows == other.rows && has_time(measurement) &&
        measurement.outcome == cache::Outcome::measured &&
        measurement.template_digest == winner.template_digest && likeness(measurement) > likeness(*nearest))
      nearest = &measurement;
  return *nearest;
}

std::vector<VariantTime> variants_of(const Known& known) {
  const std::vector<tuner::Candidate>& ranking = known.decision->ranking;
  const Measurement& winner = ranking.front().measurement;
  std::vector<VariantTime> variants;
  for (const tuner::Candidate& candidate : ranking) {
    const Measurement& its = candidate.measurement;
    const std::string_view name = generator::variant(candidate.config.variant).name;
    const auto is_this = [&](const VariantTime& time) { return time.variant == name; };
    if (its.rows != winner.rows || !has_time(its) || !has_time(winner) ||
        std::any_of(variants.begin(), variants.end(), is_this))
      continue;
    variants.push_back({name, its.median_us / winner_beside(its, winner, known.measurements).median_us - 1});
  }
  return variants;
}

ReportedProblem problem_from(const Known& known, const cache::KeySummary& summary, const Ceilings& ceilings,
                             std::size_t top) {
  ReportedProblem reported{.summary = summary,
                           .title = known.title(),
                           .problem = known.problem,
                           .best = {},
                           .variants = {},
                           .reason = {},
                           .rejected = known.rejections(),
                           .history = known.history,
                           .effects = {},
                           .periods = {}};
  if (!known.decision) return reported;
  reported.reason = known.decision->reason;
  const std::vector<tuner::Candidate>& ranking = known.decision->ranking;
  reported.ranked = ranking.size();
  reported.best.assign(ranking.begin(),
                       ranking.begin() + static_cast<std::ptrdiff_t>(std::min(top, ranking.size())));
  if (!known.problem) return reported;  // a race, whose ways have no variants and axes
  reported.variants = variants_of(known);
  reported.effects = tuner::axis_effects(known.measurements, *known.decision);
  const auto ceiling = ceilings.find(tuner::ceiling_kind(*known.problem));
  if (ceiling != ceilings.end()) reported.ceiling_gbs = ceiling->second;
  return reported;
}

/// Selects measurements that show how fast configs were, and which were rejected. Screenings are most of a database and
/// show neither.
std::vector<Measurement> telling_of_history(std::vector<Measurement> measurements) {
  std::erase_if(measurements, [](const Measurement& measurement) {
    return measurement.outcome == cache::Outcome::measured && measurement.stage == cache::stage_of_screenings;
  });
  return measurements;
}

/// Keeps the runs of configs that won in one of the periods.
void keep_winners(std::vector<Population>& populations) {
  std::set<std::string> winners;
  for (const Population& population : populations) winners.insert(population.winner);
  for (Population& population : populations)
    std::erase_if(population.runs, [&](const Measurement* run) { return !winners.contains(run->config); });
}

ReportedPeriod period_of(const Population& population) {
  const std::vector<const Measurement*> runs = population.runs_of(population.winner);
  std::vector<float> medians;
  medians.reserve(runs.size());
  for (const Measurement* run : runs) medians.push_back(static_cast<float>(run->median_us));
  const double median_us = tuner::median(medians);
  return {.software = population.software,
          .rows = population.rows,
          .first_at = population.runs.front()->created_at,
          .last_at = population.last_at(),
          .config = population.winner,
          .median_us = median_us,
          .gbs = tuner::gbs_of(runs.front()->bytes, median_us),
          .runs = runs.size(),
          .change = std::nullopt};
}

/// Fills in the periods, and their evidence.
void add_periods(KeyReport& key, const std::vector<Population>& populations) {
  for (auto after = populations.begin(); after != populations.end(); ++after) {
    key.reported->periods.push_back(period_of(*after));
    const auto before =
        std::find_if(std::reverse_iterator(after), populations.rend(),
                     [&](const Population& population) { return population.rows == after->rows; });
    key.evidence.push_back(before == populations.rend() ? std::nullopt
                                                        : std::optional(tuner::evidence_of(*before, *after)));
  }
}

/// Unique environments: copies share their values.
std::vector<cache::Environment> environments_of(const std::vector<Measurement>& measurements) {
  std::unordered_set<const cache::Environment::Map*> known;
  std::vector<cache::Environment> environments;
  for (const Measurement& measurement : measurements)
    if (known.insert(&measurement.environment.map()).second) environments.push_back(measurement.environment);
  return environments;
}

void collect_software(ReportedDevice& device, const cache::Environment& environment) {
  const tuner::Software software = tuner::software_of(environment);
  for (const auto& [set, text] : {std::pair{&device.drivers, &software.driver},
                                  {&device.toolkits, &software.toolkit},
                                  {&device.libraries, &software.library}})
    if (*text != "-") set->insert(*text);
  for (const auto& [set, name] : {std::pair{&device.uuids, "uuid"}, {&device.hosts, "host"}})
    if (const auto found = environment.find(name); found != environment.end()) set->insert(found->second);
}

KeyReport report_of_key(const cache::Cache& cache, const cache::KeySummary& summary, const Ceilings& ceilings,
                        const ReportScope& scope) {
  Known known(cache, summary.key);
  KeyReport key;
  if (scope.keys.empty() ||
      std::find(scope.keys.begin(), scope.keys.end(), summary.key) != scope.keys.end()) {
    key.reported = problem_from(known, summary, ceilings, scope.top);
    key.environments = environments_of(known.measurements);
  }
  const std::vector<Measurement> telling = telling_of_history(std::move(known.measurements));
  std::vector<Population> populations = tuner::populations_of(telling);
  key.noise.add(populations);
  keep_winners(populations);
  if (key.reported) add_periods(key, populations);
  return key;
}

/// Sorts devices with trouble first: slower problems, then possibly slower ones, then those without a winner.
auto trouble_of(const ReportedDevice& device) {
  std::map<tuner::Verdict, int> verdicts = device.verdicts();
  return std::tuple(verdicts[tuner::Verdict::slower], verdicts[tuner::Verdict::unsure],
                    device.without_winner());
}

auto rank_of(const ReportedProblem& reported) {
  const bool known = reported.problem.has_value();
  const generator::Problem problem = reported.problem.value_or(generator::Problem{});
  return std::tuple(!known, !known && !tuner::subject_of_race(reported.summary.key), problem.operation,
                    known ? kind_of(problem) : reported.title, problem.dtype, problem.columns, problem.rows);
}

/// The report of one device from its keys.
ReportedDevice device_from(const cache::Cache& cache, const std::vector<cache::KeySummary>& summaries,
                           const Ceilings& ceilings, const ReportScope& scope) {
  const std::string& text = summaries.front().key.device;
  ReportedDevice device{.text = text,
                        .name = device_name_of(summaries.front().key),
                        .problems = {},
                        .ceilings = ceilings,
                        .drivers = {},
                        .toolkits = {},
                        .libraries = {},
                        .uuids = {},
                        .hosts = {}};
  std::vector<std::vector<std::optional<tuner::Evidence>>> evidence;  // for each problem
  tuner::NoisePool pool;
  make_in_order(
      summaries.size(), [&](std::size_t i) { return report_of_key(cache, summaries[i], ceilings, scope); },
      [&](std::size_t, KeyReport key) {
        pool.add(key.noise);
        if (!key.reported) return;
        device.problems.push_back(*std::move(key.reported));
        evidence.push_back(std::move(key.evidence));
        for (const cache::Environment& environment : key.environments) collect_software(device, environment);
      });
  const tuner::Noise noise = pool.noise();
  for (std::size_t problem = 0; problem < evidence.size(); ++problem)
    for (std::size_t period = 0; period < evidence[problem].size(); ++period)
      if (std::optional<tuner::Evidence>& its = evidence[problem][period])
        device.problems[problem].periods[period].change = tuner::compare(*std::move(its), noise);
  std::stable_sort(device.problems.begin(), device.problems.end(),
                   [](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  return device;
}

/// The index of a value in its axis.
int index_of(const generator::Axis& axis, const std::string& value) {
  return generator::parse_value(axis, value).value_or(0);
}

}  // namespace

double ReportedProblem::gbs() const noexcept {
  return best.empty() ? 0 : throughput_of(best.front().measurement);
}

std::optional<double> ReportedProblem::share() const noexcept {
  if (best.empty() || ceiling_gbs <= 0) return std::nullopt;
  return gbs() / ceiling_gbs;
}

const tuner::Finding* ReportedProblem::finding() const noexcept {
  return periods.empty() || !periods.back().change ? nullptr : &*periods.back().change;
}

std::map<tuner::Verdict, int> ReportedDevice::verdicts() const {
  std::map<tuner::Verdict, int> counts;
  for (const ReportedProblem& reported : problems)
    if (const tuner::Finding* finding = reported.finding()) ++counts[finding->winner.verdict];
  return counts;
}

int ReportedDevice::without_winner() const noexcept {
  return static_cast<int>(
      std::count_if(problems.begin(), problems.end(),
                    [](const ReportedProblem& reported) { return reported.best.empty(); }));
}

ReportData report_of(const cache::Cache& cache, const ReportScope& scope) {
  ReportData report{.version = std::string(version()),
                    .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
                    .database = cache.status().path.string(),
                    .devices = {}};
  std::map<std::string, std::vector<cache::KeySummary>> by_device;
  for (cache::KeySummary& summary : cache.keys())
    if (!scope.device || summary.key.device == *scope.device)
      by_device[summary.key.device].push_back(std::move(summary));
  std::map<std::string, Ceilings> ceilings = ceilings_on_record(cache);
  for (const auto& [text, summaries] : by_device) {
    ReportedDevice device = device_from(cache, summaries, ceilings[text], scope);
    if (!device.problems.empty()) report.devices.push_back(std::move(device));
  }
  std::vector<std::vector<tuner::Finding*>> by_machine;
  std::vector<tuner::Finding*> newest;
  for (ReportedDevice& device : report.devices) {
    std::vector<tuner::Finding*>& its = by_machine.emplace_back();
    for (ReportedProblem& problem : device.problems)
      if (problem.finding() != nullptr) its.push_back(&*problem.periods.back().change);
    newest.insert(newest.end(), its.begin(), its.end());
  }
  tuner::narrow_suspects(newest);
  for (const auto& its : by_machine) tuner::suspect_machine(its);
  std::stable_sort(report.devices.begin(), report.devices.end(),
                   [](const auto& a, const auto& b) { return trouble_of(a) > trouble_of(b); });
  int number = 0;
  for (ReportedDevice& device : report.devices)
    for (ReportedProblem& problem : device.problems) problem.number = ++number;
  return report;
}

std::vector<AxisValue> axis_values(std::span<const ReportedProblem* const> problems) {
  struct Seen {
    int wins = 0;
    std::vector<float> costs;
  };
  std::map<std::string_view, std::map<int, Seen>> seen;
  for (const ReportedProblem* reported : problems) {
    if (reported->best.empty() || !reported->problem) continue;
    const generator::Config& winner = reported->best.front().config;
    for (const generator::Axis* axis : generator::variant(winner.variant).axes())
      ++seen[axis->name][winner.*axis->value].wins;
    for (const tuner::AxisEffect& effect : reported->effects)
      if (const generator::Axis* axis = generator::find_axis(effect.axis))
        seen[axis->name][index_of(*axis, effect.other)].costs.push_back(static_cast<float>(effect.median));
  }
  std::vector<AxisValue> values;
  for (const generator::Axis& axis : generator::axes())
    for (const auto& [value, found] : seen[axis.name])
      values.push_back(
          {.axis = std::string(axis.name),
           .value = generator::value_text(axis, value),
           .wins = found.wins,
           .others = static_cast<int>(found.costs.size()),
           .cost = found.costs.empty() ? std::nullopt : std::optional(tuner::median(found.costs))});
  return values;
}

}  // namespace ce::cli
