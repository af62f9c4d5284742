#include "tuner/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "base/built_version.hpp"
#include "base/log.hpp"
#include "base/tags.hpp"
#include "ce/error.hpp"
#include "generator/source.hpp"
#include "tuner/ranking.hpp"
#include "tuner/statistics.hpp"
#include "tuner/strategy.hpp"

namespace ce::tuner {
namespace {

constexpr std::size_t digest_digits = 8;

/// Bounds on the copies of small tensors, in number and bytes: more copies do not change the result.
constexpr std::int64_t most_copies = 12, most_bytes_of_copies = std::int64_t{256} << 20;

/// Scratch bytes of a row: the inputs, and an output or the backup of an overwritten input.
std::int64_t row_bytes(const generator::Problem& problem) {
  return (generator::inputs(problem) + 1) * (problem.columns * size_of(problem.dtype) + 32) + 64;
}

generator::Problem fitting(generator::Problem problem, std::int64_t scratch_bytes) {
  problem.rows = rows_that_fit(problem, scratch_bytes);
  return problem;
}

generator::Problem flush_problem(const runtime::Model& model) {
  generator::Problem problem{.operation = generator::Operation::read, .columns = 4096};
  problem.rows = 2 * model.l2_bytes / (problem.columns * size_of(problem.dtype)) + 1;
  return problem;
}

}  // namespace

generator::Operation ceiling_kind(const generator::Problem& problem) noexcept {
  if (!generator::has_output(problem)) return generator::Operation::read;
  return generator::inputs(problem) == 2 ? generator::Operation::add : generator::Operation::copy;
}

runtime::Environment environment_now(const runtime::Device& device) {
  runtime::Environment environment = device.environment();
  environment["ce"] = built_version();
  try {
    for (auto& [name, value] : tags_of_environment())
      environment[environment_name_of_tag(name)] = std::move(value);
  } catch (const InvalidArgument& error) {  // a wrong tag must not stop a program
    log_once(LogLevel::warning, fmt::format("{}; ce stores measurements without tags", error.what()));
  }
  return environment;
}

std::int64_t usual_scratch(const runtime::Device& device) {
  return static_cast<std::int64_t>(device.free_bytes() / 4);
}

std::int64_t rows_that_fit(const generator::Problem& problem, std::int64_t scratch_bytes) {
  return std::clamp<std::int64_t>(scratch_bytes / row_bytes(problem), 1, problem.rows);
}

generator::Config reference_config(const runtime::Model& model) {
  generator::Config config = safe_default(flush_problem(model), model);
  config.load = 0;  // the flush kernel must not keep its own lines in L2
  return config;
}

Bench::Bench(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
             std::int64_t scratch_bytes, std::uint64_t seed)
    : device_(device) {
  const std::int64_t scratch = scratch_bytes > 0 ? scratch_bytes : usual_scratch(device);
  const generator::Trial trial = generator::timing_trial(fitting(problem, scratch), seed);
  const std::int64_t bytes = trial.problem.rows * row_bytes(trial.problem),
                     copies = std::clamp<std::int64_t>(std::min(scratch, most_bytes_of_copies) / bytes, 1,
                                                       device.model().is_host() ? 1 : most_copies);
  copies_.reserve(static_cast<std::size_t>(copies));
  for (std::int64_t i = 0; i < copies; ++i) {
    try {
      copies_.emplace_back(device, trial);
    } catch (const DeviceError&) {
      if (copies_.empty()) throw;
      break;  // memory is short: use the copies that fit
    }
  }
  if (device.model().is_host()) return;
  const generator::Problem flush = flush_problem(device.model());
  const generator::Config config = reference_config(device.model());
  const generator::Program program = build(device, cache, flush, config);
  keep(cache, program.sources);
  flush_kernel_.emplace(device, program);
  flush_memory_.emplace(device, generator::timing_trial(flush, seed));
}

void Bench::flush_l2() {
  if (flush_kernel_) flush_memory_->launch(*flush_kernel_);
}

std::vector<float> Bench::take(int count, std::size_t taken,
                               const std::function<void(const TrialMemory&)>& timed) {
  std::vector<float> samples;
  for (int left = count; left > 0; left -= samples_a_turn) {
    TrialMemory& copy = copies_[(taken + samples.size()) / samples_a_turn % copies_.size()];
    const auto before = [&] {
      copy.reset_eviction_priorities();
      copy.restore();
      flush_l2();
    };
    const auto launched = [&] { timed(copy); };
    const float not_counted_us = device_.time(1, before, launched).front();
    const int each = flush_kernel_ ? launches_a_sample(not_counted_us) : 1;
    const std::vector<float> times = device_.time(std::min(left, samples_a_turn) * each, before, launched);
    copy.reset_eviction_priorities();
    for (auto launch = times.begin(); launch != times.end(); launch += each)
      samples.push_back(std::accumulate(launch, launch + each, 0.F) / static_cast<float>(each));
  }
  return samples;
}

std::vector<float> Bench::samples(const Kernel& kernel, int count, std::size_t taken) {
  return take(count, taken, [&](const TrialMemory& copy) { copy.launch(kernel); });
}

void Bench::conclude(cache::Measurement& measurement) const {
  measurement.rows = problem().rows;
  measurement.bytes = generator::traffic(problem()).total();
  measurement.median_us = median(measurement.samples_us);
  measurement.spread = spread(measurement.samples_us);
}

void Bench::time(const Kernel& kernel, int samples, cache::Measurement& measurement) {
  const std::vector<float> taken = this->samples(kernel, samples, measurement.samples_us.size());
  measurement.samples_us.insert(measurement.samples_us.end(), taken.begin(), taken.end());
  conclude(measurement);
}

double Bench::time_reference(int samples) {
  if (!flush_kernel_) return 0;
  generator::Problem row = flush_memory_->trial().problem;
  row.rows = 1;
  const std::vector<float> launches = take(samples, 0, [&](const TrialMemory&) {
    flush_kernel_->launch(row, flush_memory_->trial().arguments, device_.trial_stream());
  });
  launches_us_.insert(launches_us_.end(), launches.begin(), launches.end());
  return median(take(samples, 0, [&](const TrialMemory&) { flush_l2(); }));
}

std::string Bench::reference() const {
  if (!flush_kernel_) return {};
  const generator::Problem& problem = flush_memory_->trial().problem;
  const generator::Config& config = flush_kernel_->config();
  return fmt::format("{} {} {}", generator::title(problem), generator::to_text(config),
                     generator::template_digest(problem.operation, config.variant).substr(0, digest_digits));
}

runtime::Environment Bench::environment(std::span<const float> references_us) const {
  runtime::Environment environment = environment_now(device_);
  if (const double us = median(references_us); us > 0) {
    environment["reference"] = reference();
    environment["reference_us"] = fmt::format("{:.3f}", us);
    environment["launch_us"] = fmt::format("{:.3f}", middle_mean(launches_us_));
  }
  // Measurements of one process share their noise.
  static const std::string process = fmt::format("{:08x}", std::random_device()());
  environment["process"] = process;
  environment["places"] = fmt::to_string(copies_.size());
  return environment;
}

double Bench::time_driver_copy(int samples) {
  const std::int64_t bytes = problem().rows * problem().columns * size_of(problem().dtype);
  return median(take(samples, 0, [&](const TrialMemory& copy) {
    const Arguments& arguments = copy.trial().arguments;
    device_.copy(arguments.output, arguments.input, static_cast<std::size_t>(bytes), device_.trial_stream());
  }));
}

}  // namespace ce::tuner
