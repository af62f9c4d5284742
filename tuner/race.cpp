#include "tuner/race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <span>
#include <utility>

#include "base/log.hpp"
#include "cache/layers.hpp"
#include "tuner/bench.hpp"
#include "tuner/decide.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

/// Number of ways that are timed in turns.
constexpr std::size_t most_finalists = 4;
constexpr int final_turns = 4, samples_in_final = 2;

struct Runner {
  std::size_t index;
  std::vector<float> samples;
};

bool is_faster(const Runner& a, const Runner& b) { return median(a.samples) < median(b.samples); }

/// Environment name in a race that was cut short: its time limit.
constexpr const char* bound_of_race = "race_seconds";

/// Whether a race with that limit could get further. A race that is in doubt for another reason is repeated if there is
/// no limit.
bool had_less_time(const cache::Measurement& final, double seconds) {
  if (seconds == 0) return true;
  const auto bound = final.environment.find(bound_of_race);
  return bound != final.environment.end() && std::strtod(bound->second.c_str(), nullptr) < seconds;
}

bool are_all_wrong(std::span<const cache::Measurement> measurements, std::string_view maker) {
  bool any = false;
  for (const cache::Measurement& measurement : measurements) {
    if (measurement.template_digest != maker) continue;
    if (measurement.outcome != cache::Outcome::quarantined) return false;
    if (measurement.environment.contains(first_of_race)) return false;  // records of right ways are lost
    any = true;
  }
  return any;
}

std::optional<Decision> known_to(const cache::Cache& cache, const cache::Key& key, const std::string& maker) {
  auto decision = decide_race(cache.history(key), maker);
  return has_final(decision) ? decision : std::nullopt;
}

}  // namespace

RaceResult run(runtime::Device& device, const Race& race, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto is_over = [&] {
    return seconds > 0 && std::chrono::duration<double>(Clock::now() - start).count() > seconds;
  };
  const auto take = [&](Runner& runner, int samples) {
    const std::vector<float> taken = device.time(
        samples, [] {}, [&] { race.launch(runner.index); });
    runner.samples.insert(runner.samples.end(), taken.begin(), taken.end());
  };
  std::vector<double> right = race.right;
  std::vector<Runner> runners;
  RaceResult result;
  for (std::size_t i = 0; i < race.names.size(); ++i) {
    if (!runners.empty() && is_over()) {
      result.cut_short = fmt::format("the {:g} s of a race were over after {} of {} candidates", seconds, i,
                                     race.names.size());
      break;
    }
    race.set_back();
    race.launch(i);
    std::vector<double> made = race.read();
    if (right.empty()) {
      right = std::move(made);
    } else if (!race.agrees(made, right)) {
      std::string why =
          fmt::format("its result differs from {}",
                      race.right.empty() ? "the result of " + race.names.front() : "the correct one");
      log(LogLevel::warning,
          fmt::format("{} does not take part in the race of {}: {}", race.names[i], race.subject, why));
      result.runs.push_back({.name = race.names[i], .wrong = std::move(why)});
      ++result.wrong;
      continue;
    }
    take(runners.emplace_back(Runner{i, {}}), 2);
  }
  if (runners.empty()) return result;
  const Runner first = runners.front();
  std::sort(runners.begin(), runners.end(), is_faster);
  // The default way always reaches the final: the winner's gain is reported against it.
  const auto position = std::find_if(runners.begin(), runners.end(),
                                     [&](const Runner& runner) { return runner.index == first.index; });
  const std::size_t count = std::min(most_finalists, runners.size());
  if (position - runners.begin() >= static_cast<std::ptrdiff_t>(count))
    std::iter_swap(position, runners.begin() + static_cast<std::ptrdiff_t>(count) - 1);
  const std::span<Runner> last = std::span(runners).first(count);
  for (int turn = 0; turn < final_turns && count > 1; ++turn) {
    if (is_over()) {
      if (result.cut_short.empty())
        result.cut_short =
            fmt::format("the {:g} s of a race were over after {} of {} turns", seconds, turn, final_turns);
      break;
    }
    for (std::size_t i = 0; i < count; ++i)
      take(last[(i + static_cast<std::size_t>(turn)) % count], samples_in_final);
  }
  // The same rule as in decide_race().
  const Runner& fastest = *std::min_element(last.begin(), last.end(), [&](const Runner& a, const Runner& b) {
    return std::pair(median(a.samples), race.names[a.index]) <
           std::pair(median(b.samples), race.names[b.index]);
  });
  const Runner& of_first = *std::find_if(last.begin(), last.end(),
                                         [&](const Runner& runner) { return runner.index == first.index; });
  const bool gains = median(of_first.samples) > (1 + least_gain) * median(fastest.samples);
  const Runner& winner = gains ? fastest : of_first;
  result.winner = race.names[winner.index];
  result.first = race.names[first.index];
  result.winner_us = median(winner.samples);
  result.first_us = median(of_first.samples);
  result.runners = static_cast<int>(runners.size());
  for (std::size_t i = 0; i < runners.size(); ++i)
    result.runs.push_back({.name = race.names[runners[i].index],
                           .samples_us = std::move(runners[i].samples),
                           .is_final = i < count});
  return result;
}

const RaceWinners::Known& RaceWinners::of(const RaceSubject& subject) {
  const auto [found, is_new] = known_.try_emplace({subject.text, subject.maker});
  Known& known = found->second;
  if (!is_new) return known;
  const cache::Key key = race_key(subject.text, device_.model());
  std::optional<Decision> decision = known_to(cache_, key, subject.maker);
  // The nearest finished one, else the nearest.
  if (!is_finished(decision))
    for (const cache::Layer& layer : cache_.lower())
      if (auto lower = known_to(layer.cache, key, subject.maker); !decision || is_finished(lower)) {
        decision = std::move(lower);
        if (is_finished(decision)) break;
      }
  if (decision) {
    known.winner = decision->winner.text();
    known.open = !is_finished(decision) && had_less_time(decision->winner.measurement, seconds_);
  } else if (are_all_wrong(cache_.history(key), subject.maker)) {
    known.all_wrong = true;
    known.open = false;
  }
  return known;
}

void RaceWinners::keep(const RaceSubject& subject, const RaceResult& result) {
  known_[{subject.text, subject.maker}] = {.winner = result.winner, .open = false};
  if (result.runners < 2 && result.wrong == 0) return;
  runtime::Environment environment = environment_now(device_);
  environment["made_by"] = subject.maker;
  if (!result.first.empty()) {
    environment[first_of_race] = result.first;
    environment[winner_of_race] = result.winner;
  }
  if (!result.cut_short.empty()) {
    environment["cut_short"] = result.cut_short;
    environment[bound_of_race] = fmt::format("{:g}", seconds_);
  }
  const cache::Environment shared = std::move(environment);
  const cache::Key key = race_key(subject.text, device_.model());
  std::vector<cache::Measurement> measurements;
  measurements.reserve(result.runs.size());
  for (const RaceRun& run : result.runs) {
    const bool is_right = run.wrong.empty();
    measurements.push_back({.key = key,
                            .config = run.name,
                            .template_digest = subject.maker,
                            .outcome = is_right ? cache::Outcome::measured : cache::Outcome::quarantined,
                            .reason = run.wrong,
                            .stage = run.is_final ? cache::stage_of_finals : cache::stage_of_screenings,
                            .rows = subject.rows,
                            .bytes = subject.bytes,
                            .samples_us = run.samples_us,
                            .median_us = median(run.samples_us),
                            .spread = spread(run.samples_us),
                            .environment = shared});
  }
  cache_.add(measurements);
}

}  // namespace ce::tuner
