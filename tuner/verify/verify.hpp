#pragma once
/// \file
/// Is a kernel right?

#include <algorithm>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuner/trial_memory.hpp"

namespace ce::tuner {

/// Runs kernels of one problem on inputs that would expose a wrong one, against the reference in f64.
class Verifier {
 public:
  Verifier(runtime::Device& device, const generator::Problem& problem, std::uint64_t seed)
      : Verifier(device, generator::verification_trials(problem, seed)) {}
  /// \param trials  of one problem
  Verifier(runtime::Device& device, std::vector<generator::Trial> trials) {
    for (generator::Trial& trial : trials) trials_.emplace_back(device, std::move(trial));
  }

  /// What is wrong, in words; nothing when the kernel is right. It runs on all inputs, whatever it makes of the first.
  /// \throws DeviceError where it faults
  [[nodiscard]] std::optional<std::string> mismatch(const Kernel& kernel) {
    // On a thread each, where there are any: that takes longer than the kernels, and the next one runs meanwhile.
    std::vector<std::future<std::optional<std::string>>> compared;
    for (TrialMemory& trial : trials_) {
      // The device may hold a cluster for each of the few rows, so that none would take a second one. Once with rows
      // enough for each to use its places again, then as it is launched.
      const std::int64_t clusters =
          compared.empty() ? std::max<std::int64_t>(1, trial.trial().problem.rows / 6) : 0;
      compared.push_back(std::async([&of = trial.trial(), tensors = trial.run(kernel, clusters)] {
        return generator::mismatch(of, tensors);
      }));
    }
    std::optional<std::string> first;
    for (auto& wrong : compared)
      if (auto words = wrong.get(); words && !first) first = std::move(words);
    return first;
  }

 private:
  std::vector<TrialMemory> trials_;
};

}  // namespace ce::tuner
