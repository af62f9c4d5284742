#pragma once
/// \file
/// A kernel that is ready to be launched for one problem. Not installed.

#include <cstdint>

#include "ce/plan_table.hpp"
#include "generator/problem.hpp"
#include "tuner/kernel.hpp"

namespace ce {

/// What a call needs beyond its tensors.
struct Scratch {
  std::int64_t partials = 0;  ///< where its partial statistics begin
  std::int64_t bytes = 0;     ///< 0: nothing
};

struct Prepared {
  const Chosen* chosen = nullptr;
  Scratch scratch;
  tuner::Launches launches;
  generator::Operation operation = generator::Operation::softmax;
  bool counts_bad_targets = false;  ///< into a TargetStatus of the stream

  /// Whether the arguments are the same on every stream and thread.
  [[nodiscard]] bool is_bound() const noexcept { return scratch.bytes == 0 && !counts_bad_targets; }
};

/// \param chosen  must outlive what is returned
[[nodiscard]] Prepared prepared_for(const Chosen& chosen, const generator::Problem& problem);

}  // namespace ce
