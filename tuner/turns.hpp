#pragma once
/// \file
/// Times kernels side by side.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tuner/bench.hpp"
#include "tuner/kernel.hpp"

namespace ce::tuner {

/// A few samples of each kernel, one kernel after the other.
struct Turn {
  float reference_us = 0;                   ///< time of the reference kernel; 0 on the host
  std::vector<std::vector<float>> samples;  ///< by kernel
};

/// Takes a turn. Each turn begins with another kernel, so that drift of the machine affects all alike.
/// \param number  number of earlier turns
/// \param samples  samples of each kernel
/// \param before_each  called with the kernel's index; may throw to stop
[[nodiscard]] Turn take_turn(Bench& bench, std::span<const Kernel* const> kernels, std::size_t number,
                             int samples, const std::function<void()>& before_each);

/// The turns in which the machine was as fast as usual. Uses an odd number of turns, and always returns more than half
/// of them.
/// \param references_us  reference times of these and perhaps other turns
[[nodiscard]] std::vector<const Turn*> steady_of(std::span<const Turn> turns,
                                                 std::span<const float> references_us);

/// Appends all samples of one of the kernels.
void append_samples(std::span<const Turn* const> turns, std::size_t kernel, std::vector<float>& samples);

}  // namespace ce::tuner
