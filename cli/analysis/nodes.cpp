#include "cli/analysis/nodes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "cli/analysis/populations.hpp"
#include "cli/known.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;
using tuner::GpuVerdict;

std::string text_in(const Measurement& measurement, const char* name) {
  const auto found = measurement.environment.find(name);
  return found == measurement.environment.end() ? "" : found->second;
}

/// Whether it is a final or check on a GPU without other work. Throttled ones count: throttling may be why a GPU is
/// slow.
bool is_evidence(const Measurement& measurement) {
  if (measurement.outcome != cache::Outcome::measured || measurement.stage == cache::stage_of_screenings ||
      !has_time(measurement) || gpu_of(measurement.environment).empty())
    return false;
  const std::string processes = text_in(measurement, "compute_processes");
  return text_in(measurement, "disturbance").empty() &&
         (processes.empty() || std::atoi(processes.c_str()) <= 1);
}

/// Measurements of a key with equal values of these are comparable.
using Same = std::tuple<std::string, std::int64_t, std::string, std::string, std::string, std::string>;

Same same_of(const Measurement& measurement) {
  const tuner::Software software = tuner::software_of(measurement);
  return {measurement.config, measurement.rows, software.driver,
          software.toolkit,   software.library, measurement.template_digest};
}

using ByGpu = std::map<std::string, std::vector<const Measurement*>>;

const std::string& newest_of(const ByGpu& group) {
  const std::string* newest = nullptr;
  for (const auto& [gpu, list] : group)
    for (const Measurement* measurement : list)
      if (newest == nullptr || measurement->created_at > *newest) newest = &measurement->created_at;
  return *newest;
}

/// For each config and number of rows, the group with the newest software that several GPUs share.
std::vector<ByGpu> groups_of(const std::vector<Measurement>& measurements,
                             const std::function<bool(const Measurement&)>& chosen) {
  std::map<Same, ByGpu> groups;
  for (const Measurement& measurement : measurements)
    if (is_evidence(measurement) && (!chosen || chosen(measurement)))
      groups[same_of(measurement)][gpu_of(measurement.environment)].push_back(&measurement);
  std::map<std::pair<std::string, std::int64_t>, const ByGpu*> latest;
  for (const auto& [same, group] : groups) {
    if (group.size() < 2) continue;
    const ByGpu*& known = latest[{std::get<0>(same), std::get<1>(same)}];
    if (known == nullptr || newest_of(group) > newest_of(*known)) known = &group;
  }
  std::vector<ByGpu> found;
  found.reserve(latest.size());
  for (const auto& [what, group] : latest) found.push_back(*group);
  return found;
}

/// The measurements of one GPU, from which its conditions are derived.
struct Seen {
  std::string host;
  std::vector<const Measurement*> runs;
};

std::optional<double> middle_of(const std::vector<const Measurement*>& runs, const char* name) {
  std::vector<double> values;
  for (const Measurement* run : runs)
    if (const std::string text = text_in(*run, name); !text.empty())
      values.push_back(std::atof(text.c_str()));
  if (values.empty()) return std::nullopt;
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// A figure of the environment that may distinguish a GPU from the others.
struct Figure {
  const char* name;
  const char* words;
  const char* unit;
  double least;     ///< smallest difference that is reported
  bool is_bad_low;  ///< a lower value is bad; else a higher one
};
constexpr Figure figures[] = {{"power_limit_w", "power limit", "W", 1, true},
                              {"sm_clock_max_mhz", "highest SM clock", "MHz", 1, true},
                              {"memory_clock_mhz", "memory clock", "MHz", 1, true},
                              {"temperature_c", "temperature", "C", 15, false}};

/// Ignores reasons of idle GPUs, and limits that a user has set.
bool is_throttled(const std::string& reasons) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"power cap", "hardware", "thermal", "brake", "sync"},
      [&](const char* reason) { return reasons.find(reason) != std::string::npos; });
}

std::vector<std::string> conditions_of(const Seen& own, const std::map<std::string, Seen>& all,
                                       const std::string& gpu) {
  std::vector<std::string> conditions;
  std::set<std::string> reasons;
  std::size_t throttled = 0;
  for (const Measurement* run : own.runs)
    if (const std::string text = text_in(*run, "throttle"); is_throttled(text)) {
      reasons.insert(text);
      ++throttled;
    }
  if (throttled > 0)
    conditions.push_back(fmt::format("throttled in {} of {} ({})", throttled,
                                     counted(std::ssize(own.runs), "run"), fmt::join(reasons, "; ")));
  for (const Figure& figure : figures) {
    const auto mine = middle_of(own.runs, figure.name);
    std::vector<double> others;
    for (const auto& [other, seen] : all)
      if (other != gpu)
        if (const auto value = middle_of(seen.runs, figure.name)) others.push_back(*value);
    if (!mine || others.empty()) continue;
    std::sort(others.begin(), others.end());
    const double usual = others[others.size() / 2];
    if ((figure.is_bad_low ? usual - *mine : *mine - usual) >= figure.least)
      conditions.push_back(
          fmt::format("{} {:g} {}, fleet {:g} {}", figure.words, *mine, figure.unit, usual, figure.unit));
  }
  return conditions;
}

int weight_of(const Node& node) {
  switch (node.finding.verdict) {
    case GpuVerdict::slow: return 0;
    case GpuVerdict::unsure: return 1;
    case GpuVerdict::fast: return 2;
    case GpuVerdict::as_the_fleet: break;
  }
  return 3;
}

std::map<GpuVerdict, int> counts_of(const Fleet& fleet) {
  std::map<GpuVerdict, int> counts;
  for (const Node& node : fleet.nodes) ++counts[node.finding.verdict];
  return counts;
}

bool may_be_slow(const Node& node) {
  return node.finding.verdict == GpuVerdict::unsure &&
         node.finding.interval.high > 1 + tuner::least_difference;
}

/// Adds the GPUs of one model.
void add_model(Fleet& fleet, const std::string& device, const std::vector<ByGpu>& groups,
               const std::map<std::string, Seen>& all) {
  std::vector<tuner::FleetCell> cells;
  for (const ByGpu& group : groups) {
    tuner::FleetCell& cell = cells.emplace_back();
    for (const auto& [gpu, list] : group) cell.push_back({gpu, tuner::to_runs(list)});
  }
  std::set<std::string> compared;
  for (tuner::GpuFinding& finding : tuner::compare_gpus(cells)) {
    compared.insert(finding.gpu);
    const Seen& own = all.at(finding.gpu);
    fleet.nodes.push_back({.gpu = finding.gpu,
                           .host = own.host,
                           .device = device,
                           .finding = finding,
                           .conditions = conditions_of(own, all, finding.gpu)});
  }
  for (const auto& [gpu, seen] : all)
    if (!compared.contains(gpu)) fleet.alone.push_back(gpu);
}

}  // namespace

std::string gpu_of(const std::map<std::string, std::string>& environment) {
  for (const char* name : {"uuid", "host"})
    if (const auto found = environment.find(name); found != environment.end()) return found->second;
  return "";
}

Fleet fleet_of(const cache::Cache& cache, const std::function<bool(const Measurement&)>& chosen) {
  std::map<std::string, std::vector<cache::Key>> keys;  // by model
  for (const cache::KeySummary& summary : cache.keys()) keys[summary.key.device].push_back(summary.key);
  Fleet fleet;
  for (const auto& [device_text, its] : keys) {
    std::vector<std::vector<Measurement>> measurements;
    std::vector<ByGpu> groups;
    std::map<std::string, Seen> all;
    measurements.reserve(its.size());  // reserved first: the groups point into it
    for (const cache::Key& key : its) {
      const std::vector<Measurement>& list = measurements.emplace_back(cache.measurements(key));
      for (ByGpu& group : groups_of(list, chosen)) groups.push_back(std::move(group));
      for (const Measurement& measurement : list) {
        if (!is_evidence(measurement) || (chosen && !chosen(measurement))) continue;
        Seen& seen = all[gpu_of(measurement.environment)];
        seen.host = text_in(measurement, "host");
        seen.runs.push_back(&measurement);
      }
    }
    add_model(fleet, device_name_of({"", device_text}), groups, all);
  }
  std::stable_sort(fleet.nodes.begin(), fleet.nodes.end(), [](const Node& a, const Node& b) {
    return std::tuple(weight_of(a), -a.finding.ratio) < std::tuple(weight_of(b), -b.finding.ratio);
  });
  return fleet;
}

std::string text_of(const Fleet& fleet, bool all) {
  using enum Table::Align;
  Table table({{.title = "GPU", .least = 16},
               {.title = "HOST", .least = 8},
               {.title = "DEVICE", .rank = 2, .least = 8},
               {"VERDICT"},
               {"RATIO", right},
               {"99.9% INTERVAL", right, 1},
               {"CONFIGS", right, 4},
               {"RUNS", right, 3}});
  std::string notes;
  for (const Node& node : fleet.nodes) {
    const tuner::GpuFinding& finding = node.finding;
    if (!all && finding.verdict == GpuVerdict::as_the_fleet) continue;
    table.add({node.gpu, node.host.empty() ? "-" : node.host, node.device, std::string(name(finding.verdict)),
               fmt::format("{:.3f}", finding.ratio),
               fmt::format("{:.3f} .. {:.3f}", finding.interval.low, finding.interval.high),
               fmt::to_string(finding.cells), fmt::to_string(finding.runs)});
    if (!node.conditions.empty())
      notes += fmt::format("{}: {}\n", node.gpu, fmt::join(node.conditions, "; "));
  }
  std::string text = table.empty() ? "" : table.text() + "\n";
  if (!notes.empty()) text += notes + "\n";
  const auto counts = counts_of(fleet);
  const auto count_of = [&](GpuVerdict verdict) { return counts.contains(verdict) ? counts.at(verdict) : 0; };
  text += fmt::format("{} compared: {} slow, {} unsure, {} fast, {} as the fleet\n",
                      counted(std::ssize(fleet.nodes), "GPU"), count_of(GpuVerdict::slow),
                      count_of(GpuVerdict::unsure), count_of(GpuVerdict::fast),
                      count_of(GpuVerdict::as_the_fleet));
  if (!fleet.alone.empty())
    text += fmt::format("{} not compared: no other GPU has timed the same configs with the same software\n",
                        counted(std::ssize(fleet.alone), "GPU"));
  return text;
}

Json json_of(const Fleet& fleet) {
  Json nodes = Json::array();
  for (const Node& node : fleet.nodes) {
    const tuner::GpuFinding& finding = node.finding;
    nodes.push_back({{"gpu", node.gpu},
                     {"host", node.host},
                     {"device", node.device},
                     {"verdict", name(finding.verdict)},
                     {"ratio", finding.ratio},
                     {"interval", {finding.interval.low, finding.interval.high}},
                     {"configs", finding.cells},
                     {"runs", finding.runs},
                     {"others", finding.others},
                     {"conditions", node.conditions}});
  }
  Json summary = Json::object();
  const auto counts = counts_of(fleet);
  for (const GpuVerdict verdict :
       {GpuVerdict::slow, GpuVerdict::unsure, GpuVerdict::fast, GpuVerdict::as_the_fleet}) {
    const auto found = counts.find(verdict);
    summary[verdict == GpuVerdict::as_the_fleet ? "as_the_fleet" : std::string(name(verdict))] =
        found == counts.end() ? 0 : found->second;
  }
  return {{"nodes", nodes}, {"alone", fleet.alone}, {"summary", summary}};
}

ExitCode exit_code_of(const Fleet& fleet) {
  if (counts_of(fleet).contains(GpuVerdict::slow)) return ExitCode::regression;
  if (fleet.nodes.empty()) return ExitCode::nothing_compared;
  return std::ranges::any_of(fleet.nodes, may_be_slow) ? ExitCode::unsure_regression : ExitCode::success;
}

}  // namespace ce::cli
