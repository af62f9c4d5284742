#include "cli/commands/ceilings.hpp"

#include <algorithm>

#include "cli/known.hpp"

namespace ce::cli {

std::map<std::string, Ceilings> ceilings_on_record(const cache::Cache& cache) {
  std::map<std::string, Ceilings> ceilings;
  for (const cache::KeySummary& summary : cache.keys()) {
    const auto problem = problem_of(summary.key);
    if (!problem || !generator::is_ceiling(problem->operation)) continue;
    const Known known(cache, summary.key);
    if (!known.decision) continue;
    double& gbs = ceilings[summary.key.device][problem->operation];
    gbs = std::max(gbs, throughput_of(known.decision->winner.measurement));
  }
  return ceilings;
}

}  // namespace ce::cli
