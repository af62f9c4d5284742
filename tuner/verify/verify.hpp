#pragma once
/// \file
/// Verifies kernels.

#include <algorithm>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuner/trial_memory.hpp"

namespace ce::tuner {

/// Runs kernels of one problem on inputs that expose a wrong kernel, and compares with the f64 reference.
class Verifier {
 public:
  Verifier(runtime::Device& device, const generator::Problem& problem, std::uint64_t seed)
      : Verifier(device, generator::verification_trials(problem, seed)) {}
  /// \param trials  of one problem
  Verifier(runtime::Device& device, std::vector<generator::Trial> trials) {
    for (generator::Trial& trial : trials) trials_.emplace_back(device, std::move(trial));
  }

  /// The error, in words; nothing if the kernel is right. Runs all trials, even if the first one fails.
  /// \throws DeviceError if it faults
  [[nodiscard]] std::optional<std::string> mismatch(const Kernel& kernel) {
    // Each trial is compared on its own thread, if possible: that takes longer than the kernels, and the next kernel
    // runs meanwhile.
    std::vector<std::future<std::optional<std::string>>> compared;
    for (TrialMemory& trial : trials_) {
      // The device may hold a cluster for each of the few rows, so that no cluster would process a second row. So run
      // once with few clusters, which then reuse their shared memory, and once with the normal launch.
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
