#pragma once
/// \file
/// Validates the options, outputs and inputs of cross entropy against a problem.

#include <cstdint>

#include "ce/dtype.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "generator/problem.hpp"

namespace ce::generator {

constexpr bool CrossEntropyOutput::is_possible(const Problem& problem) const noexcept {
  if (is_sharded(problem.operation) && member.of_merge == nullptr) return false;
  if (problem.operation == Operation::cross_entropy_shard) return of_shards;
  return has_losses(problem.operation) && (needs == nullptr || problem.has.*needs) &&
         !(of_classes && problem.probabilities) && !(of_all_classes && problem.has.given_lse);
}
constexpr DType CrossEntropyOutput::dtype_of(const Problem& problem) const noexcept {
  return kind == Kind::of_rows ? dtype : problem.loss_dtype;
}
constexpr std::int64_t CrossEntropyOutput::elements(const Problem& problem) const noexcept {
  return kind == Kind::of_rows || problem.reduction == Reduction::none ? problem.rows : 1;
}

constexpr bool CrossEntropyInput::is_possible(const Problem& problem) const noexcept {
  return is_cross_entropy(problem.operation) &&
         (problem.operation != Operation::cross_entropy_shard || of_shards) &&
         !(of_classes && problem.probabilities) && !(of_gradient && !problem.gradient) &&
         !(of_backward && problem.operation != Operation::cross_entropy_backward) &&
         !(of_mean && problem.reduction != Reduction::mean) &&
         !(of_loss_alone &&
           (problem.operation != Operation::cross_entropy || problem.gradient || problem.has.smoothing));
}
constexpr std::int64_t CrossEntropyInput::elements(const Problem& problem) const noexcept {
  return of_rows ? problem.rows : 1;
}

/// Removes what only the losses depend on, which cross_entropy_shard does not compute.
constexpr void leave_out_results(Problem& problem) noexcept {
  problem.reduction = Reduction::none;
  for (const CrossEntropyOption& option : cross_entropy_options)
    if (option.unused_by_shards) problem.has.*option.field = false;
}

/// The option of cross_entropy_backward whose saved input the problem lacks; null if it lacks none.
constexpr const CrossEntropyOption* option_without_saved_input(const Problem& problem) noexcept {
  if (problem.operation != Operation::cross_entropy_backward) return nullptr;
  for (const CrossEntropyOption& option : cross_entropy_options)
    if (option.saved != nullptr && problem.has.*option.field && !(problem.has.*option.saved)) return &option;
  return nullptr;
}

}  // namespace ce::generator
