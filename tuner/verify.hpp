#pragma once
/// \file
/// Is a kernel right?

#include <optional>
#include <string>
#include <vector>

#include "tuner/trial_memory.hpp"

namespace ce::tuner {

/// Runs kernels of one problem on inputs that would expose a wrong one, against the reference in f64.
class Verifier {
 public:
  Verifier(runtime::Device& device, const generator::Problem& problem, std::uint64_t seed) {
    for (generator::Trial& trial : generator::verification_trials(problem, seed))
      trials_.emplace_back(device, std::move(trial));
  }

  /// What is wrong, in words; nothing when the kernel is right.
  /// \throws DeviceError where it faults
  [[nodiscard]] std::optional<std::string> mismatch(const Kernel& kernel) {
    for (TrialMemory& trial : trials_)
      if (auto wrong = trial.run_and_compare(kernel)) return wrong;
    return std::nullopt;
  }

 private:
  std::vector<TrialMemory> trials_;
};

}  // namespace ce::tuner
