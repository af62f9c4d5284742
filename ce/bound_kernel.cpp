#include "ce/bound_kernel.hpp"

#include <algorithm>
#include <type_traits>

namespace ce {
namespace {

/// Rounds up to the alignment of vector accesses.
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

bool can_meet_bad_targets(const generator::Problem& problem) {
  return is_cross_entropy(problem.operation) && !problem.probabilities &&
         (!is_sharded(problem.operation) || has_losses(problem.operation));
}

}  // namespace

static_assert(std::is_trivially_copyable_v<BoundKernel> && std::is_trivially_destructible_v<BoundKernel>);

BoundKernel::BoundKernel(const PlanTable::Entry& entry, const Request& request)
    : choice_(&entry.choice),
      counts_bad_targets_(can_meet_bad_targets(request.problem)),
      operation_(request.problem.operation),
      arguments_(request.arguments) {
  const tuner::Kernel& kernel = entry.kernel;
  steps_ = kernel.launches(request.problem, launches_).size();
  const std::int64_t own = generator::workspace_bytes(request.problem), partials = kernel.partial_bytes();
  if (own > 0 || partials > 0 || kernel.takes_rows()) {
    // Partial results always lie behind the head of a workspace: its counters must be zero between calls.
    partials_begin_ = aligned(std::max(own, std::int64_t{sizeof(Workspace)}));
    scratch_bytes_ = partials_begin_ + partials;
  }
  if (scratch_bytes_ == 0 && !counts_bad_targets_) ready_ = Ready::everywhere;
}

void BoundKernel::make_ready(Stream stream, Workspaces& workspaces, Statuses& statuses) {
  if (ready_ == Ready::everywhere) return;
  ready_ = Ready::nowhere;
  bool stays = true;
  if (scratch_bytes_ > 0) {
    const void* output = arguments_.loss != nullptr ? arguments_.loss : arguments_.output;
    const Workspaces::Lent lent = workspaces.get(stream, output, scratch_bytes_);
    arguments_.workspace = lent.memory;
    arguments_.partials = reinterpret_cast<std::byte*>(lent.memory) + partials_begin_;
    stays = lent.stays;
  }
  if (counts_bad_targets_) arguments_.status = statuses.of(stream, operation_);
  if (!stays) return;
  stream_ = stream;
  ready_ = Ready::on_a_stream;
}

}  // namespace ce
