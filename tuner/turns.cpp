#include "tuner/turns.hpp"

#include "tuner/statistics.hpp"
#include "tuner/strategy.hpp"

namespace ce::tuner {

Turn take_turn(Bench& bench, std::span<const Kernel* const> kernels, std::size_t number, int samples,
               const std::function<void()>& before_each) {
  Turn turn{.reference_us = static_cast<float>(bench.time_reference(samples_a_turn))};
  turn.samples.resize(kernels.size());
  const std::size_t taken = number * static_cast<std::size_t>(samples);
  for (std::size_t n = 0; n < kernels.size(); ++n) {
    before_each();
    const std::size_t i = (number + n) % kernels.size();
    turn.samples[i] = bench.samples(*kernels[i], samples, taken);
  }
  return turn;
}

std::vector<const Turn*> steady_of(std::span<const Turn> turns, std::span<const float> references_us) {
  std::vector<const Turn*> steady;
  for (const Turn& turn : turns)
    if (is_steady(turn.reference_us, references_us)) steady.push_back(&turn);
  return steady;
}

void append_samples(std::span<const Turn* const> turns, std::size_t kernel, std::vector<float>& samples) {
  for (const Turn* turn : turns)
    samples.insert(samples.end(), turn->samples[kernel].begin(), turn->samples[kernel].end());
}

}  // namespace ce::tuner
