#include "cli/analysis/retime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ce/error.hpp"
#include "cli/analysis/thinned.hpp"
#include "generator/source.hpp"
#include "tuner/bench.hpp"
#include "tuner/build_ahead.hpp"
#include "tuner/ranking.hpp"
#include "tuner/statistics.hpp"
#include "tuner/turns.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::tuner {
namespace {

using generator::Operation;
using generator::Problem;

/// Number of ceiling kernels that are timed as often as the winner; a quick look at all kernels chooses them.
constexpr std::size_t contenders = 2;

/// The requested number of samples.
void accept_samples(std::span<const Turn* const> turns, int samples,
                    std::vector<cache::Measurement>& measurements, const Bench& bench) {
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    std::vector<float>& own = measurements[i].samples_us;
    append_samples(turns, i, own);
    own.resize(static_cast<std::size_t>(samples));
    bench.conclude(measurements[i]);
  }
}

/// A problem with the same kind of traffic and, rounded up to 256 bytes, the same size. It works in place if the
/// problem does, which is a little slower for the memory.
Problem ceiling_of(const Problem& problem) {
  const bool output = generator::has_output(problem);
  const int matrices = output ? 1 : generator::inputs(problem);
  Problem ceiling{.operation = ceiling_kind(problem), .in_place = problem.in_place && output, .columns = 64};
  const std::int64_t row_bytes = ceiling.columns * size_of(ceiling.dtype);
  const std::int64_t bytes = matrices * problem.rows * problem.columns * size_of(problem.dtype);
  ceiling.rows = std::max<std::int64_t>(1, (bytes + row_bytes - 1) / row_bytes);
  return ceiling;
}

Timing timing_of(const cache::Measurement& measurement) {
  return {.config = measurement.config,
          .bytes = measurement.bytes,
          .samples_us = measurement.samples_us,
          .median_us = measurement.median_us,
          .spread = measurement.spread};
}

/// The kernels that are fastest in a quick look, fastest first.
std::vector<const Kernel*> fastest(Bench& bench, const std::vector<Kernel>& kernels) {
  std::vector<std::pair<double, const Kernel*>> seen;
  for (const Kernel& kernel : kernels) {
    cache::Measurement look;
    bench.time(kernel, samples_a_turn, look);
    seen.emplace_back(look.median_us, &kernel);
  }
  std::sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Kernel*> best;
  for (const auto& [median_us, kernel] : seen)
    if (best.size() < contenders) best.push_back(kernel);
  return best;
}

}  // namespace

Retimer::Retimer(runtime::Device& device, cache::Cache& cache, const Settings& settings)
    : device_(device), cache_(cache), settings_(settings) {}

const std::vector<Kernel>& Retimer::ceilings(Operation kind) {
  const auto known = ceilings_.find(kind);
  if (known != ceilings_.end()) return known->second;
  Problem small{.operation = kind, .rows = 64, .columns = 64};
  const std::vector<generator::Config> configs =
      thinned(generator::space(small, limits_of(device_.model())), settings_.search.most_configs);
  Verifier verifier(device_, small, settings_.seed);
  BuildAhead ahead(device_, cache_, small, configs);
  std::vector<Kernel> kernels;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    try {
      const generator::Program program = ahead.take(i);
      Kernel kernel(device_, program);
      if (!kernel.fits(small) || verifier.mismatch(kernel)) continue;
      keep(cache_, program.sources);
      kernels.push_back(std::move(kernel));
    } catch (const CompileError&) {
      continue;  // not a contender
    }
  }
  if (kernels.empty())
    throw Error(ErrorKind::verification,
                fmt::format("no kernel can measure the ceiling of {}", generator::name(kind)));
  return ceilings_.emplace(kind, std::move(kernels)).first->second;
}

Retiming Retimer::time(const Problem& problem, const generator::Config& config, int samples,
                       const Hooks& hooks) {
  // Half for the winner's tensors, half for the ceiling's; 0 stays 0, the default.
  const std::int64_t scratch = (settings_.scratch_bytes + 1) / 2;
  Bench bench(device_, cache_, problem, scratch, settings_.seed);
  const generator::Program program = build(device_, cache_, problem, config);
  keep(cache_, program.sources);
  const Kernel kernel(device_, program);

  const Problem ceiling = ceiling_of(bench.problem());
  Bench ceiling_bench(device_, cache_, ceiling, scratch, settings_.seed);
  const std::vector<const Kernel*> rivals = fastest(ceiling_bench, ceilings(ceiling.operation));

  cache::Measurement winner{.config = generator::to_text(config)};
  std::vector<cache::Measurement> others(rivals.size());
  for (std::size_t i = 0; i < rivals.size(); ++i) others[i].config = generator::to_text(rivals[i]->config());
  std::vector<float> driver_copies;
  for (int done = 0; done < samples;) {
    if (hooks.stop.stop_requested()) throw Error(ErrorKind::interrupted, "stopped on request");
    const int count = std::min(samples_a_turn, samples - done);
    bench.time(kernel, count, winner);
    for (std::size_t i = 0; i < rivals.size(); ++i) ceiling_bench.time(*rivals[i], count, others[i]);
    // In place, the driver would copy nothing.
    if (ceiling.operation == Operation::copy && !ceiling.in_place)
      driver_copies.push_back(static_cast<float>(ceiling_bench.time_driver_copy(count)));
    done += count;
    if (hooks.progress)
      hooks.progress({.stage = "timing",
                      .done = done,
                      .total = samples,
                      .best = winner.config,
                      .best_us = winner.median_us,
                      .best_gbs = timing_of(winner).gbs()});
  }

  const auto best = std::min_element(others.begin(), others.end(),
                                     [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  Retiming result{.problem = bench.problem(),
                  .winner = timing_of(winner),
                  .partial_bytes = kernel.partial_bytes(),
                  .ceiling = timing_of(*best)};
  if (!driver_copies.empty() && median(driver_copies) < result.ceiling.median_us)
    result.ceiling = {.config = "driver copy",
                      .bytes = best->bytes,
                      .samples_us = driver_copies,
                      .median_us = median(driver_copies),
                      .spread = spread(driver_copies)};
  return result;
}

Beside Retimer::time_beside(const cache::Key& key, const Problem& problem,
                            std::span<const generator::Config> configs, int samples, int a_turn,
                            const Hooks& hooks) {
  BuildAhead ahead(device_, cache_, problem, configs);
  Bench bench(device_, cache_, problem, settings_.scratch_bytes, settings_.seed);
  std::vector<Kernel> kernels;
  kernels.reserve(configs.size());
  std::vector<const Kernel*> in_turns;
  Beside beside{.reference = bench.reference()};
  std::vector<cache::Measurement>& measurements = beside.measurements;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const generator::Program program = ahead.take(i);
    keep(cache_, program.sources);
    const Kernel& kernel = kernels.emplace_back(device_, program);
    in_turns.push_back(&kernel);
    measurements.push_back(
        {.key = key,
         .config = generator::to_text(configs[i]),
         .template_digest = generator::template_digest(problem.operation, configs[i].variant),
         .compile_key = kernel.compile_key(),
         .registers = kernel.resources().registers,
         .local_bytes = kernel.resources().local_bytes});
  }
  const auto wanted = static_cast<std::size_t>((samples + a_turn - 1) / a_turn);
  std::vector<Turn> turns;
  std::vector<float> references_us;
  for (std::size_t steady = 0; steady < wanted;) {  // at most twice as many turns: see steady_of()
    turns.push_back(take_turn(bench, in_turns, turns.size(), a_turn, [&] {
      if (hooks.stop.stop_requested()) throw Error(ErrorKind::interrupted, "stopped on request");
    }));
    references_us.push_back(turns.back().reference_us);
    steady = steady_of(turns, references_us).size();
    const double us = median(turns.back().samples[0]);
    if (hooks.progress)
      hooks.progress({.stage = "timing",
                      .done = std::min(samples, static_cast<int>(steady) * a_turn),
                      .total = samples,
                      .best = measurements[0].config,
                      .best_us = us,
                      .best_gbs = gbs_of(generator::traffic(bench.problem()).total(), us)});
  }
  accept_samples(steady_of(turns, references_us), samples, measurements, bench);
  if (!beside.reference.empty()) beside.references_us = references_us;
  const cache::Environment environment = bench.environment(beside.references_us);
  for (cache::Measurement& measurement : measurements) measurement.environment = environment;
  return beside;
}

double Retimer::launch_floor_us(int samples) {
  const Problem smallest{.operation = Operation::read, .rows = 1, .columns = 128};
  Bench bench(device_, cache_, smallest, settings_.scratch_bytes, settings_.seed);
  const generator::Program program =
      build(device_, cache_, smallest, safe_default(smallest, device_.model()));
  keep(cache_, program.sources);
  const Kernel kernel(device_, program);
  cache::Measurement measurement;
  bench.time(kernel, samples, measurement);
  return measurement.median_us;
}

}  // namespace ce::tuner
