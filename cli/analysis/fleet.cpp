#include "cli/analysis/fleet.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace ce::tuner {
namespace {

/// Coverage of the interval that must lie within the fleet's bounds.
constexpr double outside_of_narrow = 0.1;

/// The runs of one GPU in one cell.
struct LogTime {
  std::string gpu;
  double log_us = 0;    ///< mean over its runs
  double variance = 0;  ///< variance of that mean, with the usual noise
  int runs = 0;
};

std::vector<LogTime> log_times(const FleetCell& cell) {
  std::vector<LogTime> times;
  for (const GpuRuns& gpu : cell) {
    LogTime time{.gpu = gpu.gpu};
    for (const Run& run : gpu.runs) {
      if (run.median_us <= 0) continue;
      const double deviation =
          std::max(std::hypot(usual_deviation(run.median_us), run.process_us / run.median_us), run.error);
      time.log_us += std::log(run.median_us);
      time.variance += deviation * deviation;
      ++time.runs;
    }
    if (time.runs == 0) continue;
    time.log_us /= time.runs;
    time.variance /= static_cast<double>(time.runs) * time.runs;
    times.push_back(std::move(time));
  }
  return times;
}

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The difference of one GPU from the others in one cell.
struct Difference {
  double log_ratio = 0;
  double variance = 0;  ///< variance with the usual noise
};

Difference difference_of(const LogTime& own, const std::vector<LogTime>& all) {
  constexpr double of_median = 1.5707963267948966;  // pi/2: a median's variance over a mean's
  std::vector<double> others;
  double variances = 0;
  for (const LogTime& other : all) {
    if (other.gpu == own.gpu) continue;
    others.push_back(other.log_us);
    variances += other.variance;
  }
  const auto count = static_cast<double>(others.size());
  return {.log_ratio = own.log_us - middle_of(others),
          .variance = own.variance + (count > 2 ? of_median : 1) * variances / (count * count)};
}

/// The noise of a device, from repeats on one GPU.
Noise noise_of(std::span<const FleetCell> cells) {
  std::vector<std::vector<Run>> repeats;
  for (const FleetCell& cell : cells)
    for (const GpuRuns& gpu : cell) {
      std::vector<Run>& runs = repeats.emplace_back(gpu.runs);
      for (Run& run : runs) run.reference_us = run.launch_us = 0;
    }
  return pooled_noise(repeats);
}

GpuVerdict verdict_of(double log_ratio, const Interval& interval, const Interval& narrow) {
  const double effect = std::log1p(least_difference);
  if (log_ratio >= effect && interval.low > 1) return GpuVerdict::slow;
  if (log_ratio <= -effect && interval.high < 1) return GpuVerdict::fast;
  const bool within = std::log(narrow.low) >= -effect && std::log(narrow.high) <= effect;
  return within ? GpuVerdict::as_the_fleet : GpuVerdict::unsure;
}

/// As compare() for two populations: combines the noise that is known in advance with the scatter between cells,
/// weighted by their degrees of freedom.
void judge(GpuFinding& finding, const std::vector<Difference>& differences, const Noise& noise) {
  const auto count = static_cast<double>(differences.size());
  double sum = 0, usual = 0, dispersion = 0;
  for (const Difference& difference : differences) {
    sum += difference.log_ratio;
    usual += difference.variance;
  }
  const double mean = sum / count;
  for (const Difference& difference : differences)
    dispersion += (difference.log_ratio - mean) * (difference.log_ratio - mean) / difference.variance;
  const double known = std::min(most_prior_degrees, noise.degrees), degrees = known + count - 1;
  const double scale_squared = (known * noise.scale * noise.scale + dispersion) / degrees;
  const double error = std::sqrt(scale_squared * usual) / count;
  const boost::math::students_t distribution(degrees);
  const auto within = [&](double outside) {
    const double reach = error * boost::math::quantile(distribution, 1 - outside / 2);
    return Interval{std::exp(mean - reach), std::exp(mean + reach)};
  };
  finding.ratio = std::exp(mean);
  finding.interval = within(false_alarms);
  finding.verdict = verdict_of(mean, finding.interval, within(outside_of_narrow));
}

}  // namespace

std::string_view name(GpuVerdict verdict) noexcept {
  switch (verdict) {
    case GpuVerdict::as_the_fleet: return "as the fleet";
    case GpuVerdict::slow: return "slow";
    case GpuVerdict::fast: return "fast";
    case GpuVerdict::unsure: break;
  }
  return "unsure";
}

std::vector<GpuFinding> compare_gpus(std::span<const FleetCell> cells) {
  const Noise noise = noise_of(cells);
  std::map<std::string, GpuFinding> findings;
  std::map<std::string, std::vector<Difference>> differences;
  std::map<std::string, std::set<std::string>> others;
  for (const FleetCell& cell : cells) {
    const std::vector<LogTime> times = log_times(cell);
    if (times.size() < 2) continue;
    for (const LogTime& own : times) {
      GpuFinding& finding = findings[own.gpu];
      finding.gpu = own.gpu;
      ++finding.cells;
      finding.runs += own.runs;
      differences[own.gpu].push_back(difference_of(own, times));
      for (const LogTime& other : times)
        if (other.gpu != own.gpu) others[own.gpu].insert(other.gpu);
    }
  }
  std::vector<GpuFinding> all;
  for (auto& [gpu, finding] : findings) {
    finding.others = static_cast<int>(others[gpu].size());
    judge(finding, differences[gpu], noise);
    all.push_back(std::move(finding));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const GpuFinding& a, const GpuFinding& b) { return a.ratio > b.ratio; });
  return all;
}

}  // namespace ce::tuner
