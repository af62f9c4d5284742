#include "cli/cases.hpp"

#include <algorithm>
#include <map>

#include "tuner/finding.hpp"
#include "tuner/verdict.hpp"

namespace ce::cli {
namespace {

/// Of each device, by its text.
std::map<std::string, tuner::Noise> noises_of(const std::list<Case>& cases) {
  std::map<std::string, tuner::NoisePool> pools;
  for (const Case& problem : cases)
    for (const auto* populations : {&problem.older, &problem.newer})
      pools[problem.key.device].add(*populations);
  std::map<std::string, tuner::Noise> noises;
  for (const auto& [device, pool] : pools) noises[device] = pool.noise();
  return noises;
}

}  // namespace

std::vector<ProblemFinding> findings_of(const std::list<Case>& cases) {
  std::map<std::string, tuner::Noise> noises = noises_of(cases);
  std::vector<ProblemFinding> findings;
  for (const Case& problem : cases) {
    if (problem.newer.empty()) continue;
    const tuner::Population& after = problem.newer.back();
    const auto before = std::find_if(problem.older.rbegin(), problem.older.rend(),
                                     [&](const tuner::Population& p) { return p.rows == after.rows; });
    if (before == problem.older.rend()) continue;
    findings.push_back(
        {problem.key, problem.title, tuner::compare(*before, after, noises[problem.key.device])});
  }
  std::vector<tuner::Finding*> all;
  all.reserve(findings.size());
  for (ProblemFinding& problem : findings) all.push_back(&problem.finding);
  tuner::narrow_suspects(all);
  sort_by_verdict(findings);
  return findings;
}

}  // namespace ce::cli
