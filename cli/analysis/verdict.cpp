#include "cli/analysis/verdict.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

/// Deviations of runs on an H200 (docs/measuring.md): a relative part, an absolute part from the event timer and a
/// launch, and a part that grows for the shortest kernels.
constexpr double usual_relative = 0.0015, usual_us = 0.06, usual_square_us = 0.6;
/// The same if the launch overhead is subtracted.
constexpr double usual_us_without_launch = 0.07, usual_square_us_without_launch = 0.4;

/// Lower bound of the scale: a few equal medians do not prove a machine without noise.
constexpr double least_scale = 0.5;

/// Movements of the reference below the first bound are its own noise; above the second they are the machine's drift.
constexpr double reference_noise = 0.06, surely_drift = 0.09;
/// Kernels do not all drift alike: this share of a corrected drift is an error of the run.
constexpr double error_of_drift = 0.1;

/// Firm shrinkage: a continuous transition between no correction and full correction.
double drift_of(double log_reference) {
  const double size = std::abs(log_reference);
  if (size >= surely_drift) return log_reference;
  const double kept = std::max(0., size - reference_noise) / (surely_drift - reference_noise);
  return std::copysign(kept * surely_drift, log_reference);
}

/// Logarithms of one side's runs.
struct Side {
  std::vector<double> times;     ///< minus the corrections
  std::vector<double> moved;     ///< movement of the reference; 0 if not known
  std::vector<double> drifts;    ///< the part of it that is corrected
  std::vector<double> expected;  ///< variances if the scale of the noise is 1, without errors of the drift
  std::vector<double> own;       ///< variances of the medians according to their samples
};

double variance_of_drift(double drift) { return error_of_drift * error_of_drift * drift * drift; }

/// The values that runs are compared with; 0 if not known for all runs.
struct Typical {
  double reference_us = 0, launch_us = 0;
};

/// The relative deviation of a run of that length, if the scale of the noise is 1.
double expected_deviation(const Run& run, double us, bool without_launch) {
  return std::hypot(usual_deviation(us, without_launch), run.process_us / us);
}

Side side_of(std::span<const Run> runs, const Typical& typical) {
  Side side;
  for (const Run& run : runs) {
    const double moved = typical.reference_us > 0 ? std::log(run.reference_us / typical.reference_us) : 0;
    const double drift = drift_of(moved);
    const double late_us = typical.launch_us > 0 ? run.launch_us - typical.launch_us : 0;
    const double us = std::max(run.median_us - late_us, run.median_us / 2);
    const double deviation = expected_deviation(run, us, typical.launch_us > 0);
    side.times.push_back(std::log(us) - drift);
    side.moved.push_back(moved);
    side.drifts.push_back(drift);
    side.expected.push_back(deviation * deviation);
    side.own.push_back(run.error * run.error);
  }
  return side;
}

bool is_of_processes(std::span<const Run> runs) {
  return std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.process_us > 0; });
}

double typical_of(std::span<const Run> runs, double Run::*figure) {
  std::vector<float> figures;
  for (const Run& run : runs) {
    if (run.*figure <= 0) return 0;
    figures.push_back(static_cast<float>(run.*figure));
  }
  return median(figures);
}

Typical typical_of(std::span<const Run> runs) {
  return {typical_of(runs, &Run::reference_us), typical_of(runs, &Run::launch_us)};
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.) / static_cast<double>(values.size());
}

/// Variance of the mean. `scale_squared` scales the expected noise: no run is better than its own samples indicate.
double variance_of_mean(const Side& side, double scale_squared) {
  double sum = 0;
  for (std::size_t i = 0; i < side.times.size(); ++i)
    sum += std::max(scale_squared * side.expected[i], side.own[i]) +
           scale_squared * variance_of_drift(side.drifts[i]);
  const auto count = static_cast<double>(side.times.size());
  return sum / (count * count);
}

/// Sum of squared deviations from the mean, over the expected variances.
double dispersion(const Side& side) {
  const double centre = mean(side.times);
  double sum = 0;
  for (std::size_t i = 0; i < side.times.size(); ++i)
    sum += (side.times[i] - centre) * (side.times[i] - centre) /
           (side.expected[i] + variance_of_drift(side.drifts[i]));
  return sum;
}

/// Quantiles of Student's t, cached: hundreds of problems ask for the same few degrees of freedom, and each takes a
/// series.
double quantile(double degrees, double probability) {
  thread_local std::map<std::pair<double, double>, double> known;
  const auto [found, is_new] = known.try_emplace({degrees, probability});
  if (is_new) found->second = boost::math::quantile(boost::math::students_t(degrees), probability);
  return found->second;
}

/// An effect and its detection rate, which is higher than promised, since the noise is only known roughly.
struct Aim {
  double effect, power;
};
constexpr Aim aims[] = {{0.015, 0.9}, {0.03, 0.98}};
constexpr int most_runs = 1000;

Verdict verdict_of(double log_ratio, const Comparison& comparison) {
  const double effect = std::log1p(least_effect);
  if (log_ratio >= effect && comparison.interval.low > 1) return Verdict::slower;
  if (log_ratio <= -effect && comparison.interval.high < 1) return Verdict::faster;
  const bool within =
      std::log(comparison.narrow.low) >= -effect && std::log(comparison.narrow.high) <= effect;
  return within ? Verdict::same : Verdict::unsure;
}

}  // namespace

std::string_view name(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::faster: return "faster";
    case Verdict::same: return "same";
    case Verdict::slower: return "slower";
    case Verdict::unsure: break;
  }
  return "unsure";
}

double usual_deviation(double us, bool without_launch) noexcept {
  if (without_launch)
    return std::hypot(usual_relative, usual_us_without_launch / us,
                      usual_square_us_without_launch / (us * us));
  return std::hypot(usual_relative, usual_us / us, usual_square_us / (us * us));
}

Noise pooled_noise(std::span<const std::vector<Run>> repeats) {
  const double foreign = Noise{}.degrees;
  double sum = foreign, degrees = foreign;
  for (const std::vector<Run>& runs : repeats) {
    if (runs.size() < 2) continue;
    sum += dispersion(side_of(runs, typical_of(runs)));
    degrees += static_cast<double>(runs.size() - 1);
  }
  return {.scale = std::max(least_scale, std::sqrt(sum / degrees)), .degrees = degrees};
}

Comparison compare(std::span<const Run> before, std::span<const Run> after, const Noise& noise) {
  Typical typical = typical_of(before);
  const Typical other = typical_of(after);
  if (other.reference_us <= 0) typical.reference_us = 0;
  if (other.launch_us <= 0) typical.launch_us = 0;
  const Side old = side_of(before, typical), now = side_of(after, typical);
  const double log_ratio = mean(now.times) - mean(old.times);
  const double own_degrees = static_cast<double>(before.size() + after.size() - 2);
  const double known = std::min(most_prior_degrees, noise.degrees);
  const double degrees = known + own_degrees;
  // Kernels that fill the device do not show how much processes differ.
  const double prior =
      is_of_processes(before) || is_of_processes(after) ? std::max(1., noise.scale) : noise.scale;
  const double scale_squared = std::max(
      least_scale * least_scale, (known * prior * prior + dispersion(old) + dispersion(now)) / degrees);
  const double error = std::sqrt(variance_of_mean(old, scale_squared) + variance_of_mean(now, scale_squared));
  const auto within = [&](double outside) {
    const double reach = error * quantile(degrees, 1 - outside / 2);
    return Interval{std::exp(log_ratio - reach), std::exp(log_ratio + reach)};
  };
  Comparison comparison{.ratio = std::exp(log_ratio),
                        .interval = within(false_alarms),
                        .narrow = within(2 * missed),
                        .drift = std::nullopt,
                        .taken_out = std::expm1(mean(now.drifts) - mean(old.drifts)),
                        .before = static_cast<int>(before.size()),
                        .after = static_cast<int>(after.size()),
                        .deviation = error / std::sqrt(1. / static_cast<double>(before.size()) +
                                                       1. / static_cast<double>(after.size()))};
  if (typical.reference_us > 0) comparison.drift = std::expm1(mean(now.moved) - mean(old.moved));
  comparison.verdict = verdict_of(log_ratio, comparison);
  return comparison;
}

std::optional<int> runs_needed(double deviation, int before, double known) {
  const auto too_few = [&](int after) {
    const int others = before > 0 ? before : after;
    const double degrees = std::min(most_prior_degrees, known) + after + others - 2;
    const double error = deviation * std::sqrt(1. / after + 1. / others);
    const double beyond_chance = quantile(degrees, 1 - false_alarms / 2);
    return std::any_of(std::begin(aims), std::end(aims), [&](const Aim& aim) {
      return std::log1p(aim.effect) < error * (beyond_chance + quantile(degrees, aim.power));
    });
  };
  int few = 0, enough = most_runs + 1;
  while (enough - few > 1) {
    const int middle = (few + enough) / 2;
    (too_few(middle) ? few : enough) = middle;
  }
  return enough > most_runs ? std::nullopt : std::optional(enough);
}

int runs_to_make(double us, const Noise& noise) {
  const auto needed = runs_needed(noise.scale * usual_deviation(us, true));
  return std::clamp(needed.value_or(most_runs_to_make), fewest_runs_to_make, most_runs_to_make);
}

int runs_to_make(std::span<const Run> made) {
  constexpr int at_a_time = 8;
  if (made.empty()) return fewest_runs_to_make;
  const std::vector<Run> group(made.begin(), made.end());
  const Noise noise = pooled_noise({&group, 1});
  if (!is_of_processes(made)) return runs_to_make(made.front().median_us, noise);
  const auto needed =
      runs_needed(noise.scale * expected_deviation(made.front(), made.front().median_us, true));
  const int most = std::min(most_processes_to_make, static_cast<int>(made.size()) + at_a_time);
  return std::clamp(needed.value_or(most), fewest_runs_to_make, most);
}

}  // namespace ce::tuner
