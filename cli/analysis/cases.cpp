#include "cli/analysis/cases.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/in_order.hpp"
#include "cache/codec.hpp"
#include "cli/analysis/finding.hpp"
#include "cli/analysis/verdict.hpp"
#include "cli/device_names.hpp"
#include "cli/known.hpp"
#include "cli/long_work.hpp"
#include "tuner/decide.hpp"
#include "tuner/doubt.hpp"

namespace ce::cli {
namespace {

/// The cases of each device, by its text.
std::map<std::string, tuner::Noise> noises_of(const std::list<Case>& cases) {
  std::map<std::string, tuner::NoisePool> pools;
  for (const Case& problem : cases) pools[problem.key.device].add(problem.noise);
  std::map<std::string, tuner::Noise> noises;
  for (const auto& [device, pool] : pools) noises[device] = pool.noise();
  return noises;
}

/// The population to compare the newest newer one with; null if there is none.
const tuner::Population* before_of(const Case& problem) {
  if (problem.newer.empty()) return nullptr;
  const auto before =
      std::find_if(problem.older.rbegin(), problem.older.rend(),
                   [&](const tuner::Population& p) { return p.rows == problem.newer.back().rows; });
  return before == problem.older.rend() ? nullptr : &*before;
}

/// Why a problem has no finding.
std::string why_left_out(const Case& problem) {
  std::size_t timed = 0, doubtful = 0;
  for (const auto* measurements : {&problem.measurements, &problem.others})
    for (const cache::Measurement& m : *measurements) {
      if (m.outcome != cache::Outcome::measured || m.stage == cache::stage_of_screenings) continue;
      ++timed;
      doubtful += tuner::doubt_of(m).empty() ? 0 : 1;
    }
  if (timed == 0) return "neither a final nor a check was timed";
  if (timed == doubtful) return "all measurements were disturbed (throttled clocks, other processes)";
  const std::string also = doubtful > 0 ? ", except disturbed runs" : "";
  if (problem.newer.empty()) return "there is no new measurement" + also;
  if (problem.older.empty())
    return "there is no earlier measurement, or only one on another model of GPU or with other options" +
           also;
  return "the runs before and after have different numbers of rows";
}

/// Removes runs of other configs; the populations then point to the remaining ones.
std::vector<cache::Measurement> keep_runs(tuner::Population& population,
                                          const std::set<std::string>& configs) {
  std::vector<cache::Measurement> kept;
  std::erase_if(population.runs,
                [&](const cache::Measurement* run) { return !configs.contains(run->config); });
  for (const cache::Measurement* run : population.runs) kept.push_back(*run);
  return kept;
}

/// \param earliest  only times after this; empty for any
void hold_against(Case& problem, const std::string& earliest) {
  std::set<std::string> shared;
  for (const cache::Measurement& measurement : problem.others) shared.insert(cache::identity_of(measurement));
  problem.newer = tuner::populations_of(problem.measurements, [&](const cache::Measurement& measurement) {
    return measurement.created_at > earliest && !shared.contains(cache::identity_of(measurement));
  });
  problem.older = tuner::populations_of(problem.others);
  condense(problem);
}

}  // namespace

std::list<Case> cases_of_keys(const cache::Cache& cache, const std::vector<cache::Key>& keys,
                              const std::function<void(Case&)>& choose) {
  const LongWork work("comparing problems");
  std::list<Case> cases;
  for (const cache::Key& key : keys) {
    LongWork::report(cases.size(), keys.size());
    Case& problem = cases.emplace_back(Case{.key = key, .title = title_of(key)});
    problem.measurements = cache.history(key);
    choose(problem);
  }
  return cases;
}

std::list<Case> cases_against(const cache::Cache& cache, const cache::Cache& other) {
  return cases_of_keys(cache, keys_on(cache, {}), [&](Case& problem) {
    problem.others = other.history(problem.key);
    hold_against(problem, "");
  });
}

std::list<Case> cases_since(const cache::Cache& cache, const cache::Cache& baseline,
                            const std::vector<cache::Key>& keys) {
  return cases_of_keys(cache, keys, [&](Case& problem) {
    problem.others = baseline.history(problem.key);
    // Winners of an export have no machine names, so only their times show which measurements are equal.
    hold_against(problem, problem.others.empty() ? "" : problem.others.back().created_at);
  });
}

std::map<std::string, std::size_t> left_out_of(const std::list<Case>& cases) {
  std::map<std::string, std::size_t> reasons;
  for (const Case& problem : cases)
    if (!problem.left_out.empty()) ++reasons[problem.left_out];
  return reasons;
}

void condense(Case& problem) {
  for (const auto* populations : {&problem.older, &problem.newer}) problem.noise.add(*populations);
  const tuner::Population* before = before_of(problem);
  if (before == nullptr) {
    problem.left_out = why_left_out(problem);
    problem.older.clear();
    problem.newer.clear();
    problem.measurements = problem.others = {};
    return;
  }
  tuner::Population old = *before, now = std::move(problem.newer.back());
  const std::set<std::string> configs{old.winner, now.winner};
  std::vector<cache::Measurement> before_runs = keep_runs(old, configs), after_runs = keep_runs(now, configs);
  problem.others = std::move(before_runs);
  problem.measurements = std::move(after_runs);
  const auto point = [](tuner::Population& population, const std::vector<cache::Measurement>& runs) {
    for (std::size_t i = 0; i < runs.size(); ++i) population.runs[i] = &runs[i];
  };
  point(old, problem.others);
  point(now, problem.measurements);
  problem.older.clear();
  problem.newer.clear();
  problem.older.push_back(std::move(old));
  problem.newer.push_back(std::move(now));
}

Case case_by_software(const cache::Cache& cache, const cache::Key& key) {
  Case problem{.key = key, .title = title_of(key)};
  problem.measurements = cache.history(key);
  problem.older = tuner::populations_of(problem.measurements);
  if (!problem.older.empty()) {
    problem.newer.push_back(std::move(problem.older.back()));
    problem.older.pop_back();
  }
  condense(problem);
  return problem;
}

std::list<Case> cases_by_software(const cache::Cache& cache) {
  const LongWork work("comparing problems");
  std::list<Case> cases;
  const std::vector<cache::KeySummary> summaries = cache.keys();
  const auto case_of = [&](std::size_t i) { return case_by_software(cache, summaries[i].key); };
  make_in_order(summaries.size(), case_of, [&](std::size_t i, Case problem) {
    LongWork::report(i, summaries.size());
    cases.push_back(std::move(problem));
  });
  return cases;
}

SlowerWinners::SlowerWinners(const std::list<Case>& cases) {
  for (ProblemFinding& problem : findings_of(cases))
    if (problem.finding.winner.verdict == tuner::Verdict::slower)
      slower_.emplace(problem.key.id(), std::move(problem));
}

const ProblemFinding* SlowerWinners::find(const cache::Key& key) const {
  const auto found = slower_.find(key.id());
  return found == slower_.end() ? nullptr : &found->second;
}

std::vector<ProblemFinding> findings_of(const std::list<Case>& cases) {
  std::map<std::string, tuner::Noise> noises = noises_of(cases);
  std::vector<ProblemFinding> findings;
  for (const Case& problem : cases) {
    const tuner::Population* before = before_of(problem);
    if (before == nullptr) continue;
    findings.push_back({problem.key, problem.title,
                        tuner::compare(*before, problem.newer.back(), noises[problem.key.device])});
  }
  std::vector<tuner::Finding*> all;
  all.reserve(findings.size());
  std::map<std::string, std::vector<tuner::Finding*>> of_device;
  for (ProblemFinding& problem : findings) {
    all.push_back(&problem.finding);
    of_device[problem.key.device].push_back(&problem.finding);
  }
  tuner::narrow_suspects(all);
  for (const auto& [device, its] : of_device) tuner::suspect_machine(its);
  sort_by_verdict(findings);
  return findings;
}

}  // namespace ce::cli
