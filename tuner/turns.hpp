#pragma once
/// \file
/// Kernels timed beside each other.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tuner/bench.hpp"
#include "tuner/kernel.hpp"

namespace ce::tuner {

/// A few samples of each kernel, one after the other.
struct Turn {
  float reference_us = 0;                   ///< how fast the machine was; 0 on the host
  std::vector<std::vector<float>> samples;  ///< by kernel
};

/// Each turn begins with another kernel, so that drift of the machine meets all alike.
/// \param number  of turns before this one
/// \param samples  of each kernel
/// \param before_each  kernel: may throw to stop
[[nodiscard]] Turn take_turn(Bench& bench, std::span<const Kernel* const> kernels, std::size_t number,
                             int samples, const std::function<void()>& before_each);

/// The turns in which the machine was as fast as it usually is: of an odd number of turns alone, always more than half.
/// \param references_us  of these and perhaps other turns
[[nodiscard]] std::vector<const Turn*> steady_of(std::span<const Turn> turns,
                                                 std::span<const float> references_us);

/// All samples of one of the kernels.
void append_samples(std::span<const Turn* const> turns, std::size_t kernel, std::vector<float>& samples);

}  // namespace ce::tuner
