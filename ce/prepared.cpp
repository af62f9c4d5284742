#include "ce/prepared.hpp"

#include <algorithm>

#include "templates/arguments.cuh"

namespace ce {
namespace {

/// To the boundary that vector accesses need.
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

Scratch scratch_of(const tuner::Kernel& kernel, const generator::Problem& problem) {
  const std::int64_t own = generator::workspace_bytes(problem), partials = kernel.partial_bytes();
  if (own == 0 && partials == 0 && !kernel.takes_rows()) return {};
  // Parts lie behind the head of a workspace in any case: its counters are zero between calls.
  const std::int64_t start = aligned(std::max(own, std::int64_t{sizeof(Workspace)}));
  return {.partials = start, .bytes = start + partials};
}

}  // namespace

Prepared prepared_for(const Chosen& chosen, const generator::Problem& problem) {
  return {.chosen = &chosen,
          .scratch = scratch_of(chosen.kernel, problem),
          .launches = chosen.kernel.launches(problem),
          .operation = problem.operation,
          .counts_bad_targets = is_cross_entropy(problem.operation) && !problem.probabilities &&
                                (!is_sharded(problem.operation) || has_losses(problem.operation))};
}

}  // namespace ce
