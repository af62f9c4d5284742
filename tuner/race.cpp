#include "tuner/race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "base/log.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

/// As many are timed more than once.
constexpr std::size_t most_finalists = 4;
/// How much slower the first must be to be passed over: less is noise.
constexpr double least_gain = 1.005;
constexpr int final_turns = 4, samples_in_final = 2;

struct Runner {
  std::size_t index;
  std::vector<float> samples;
};

bool is_faster(const Runner& a, const Runner& b) { return median(a.samples) < median(b.samples); }

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
    if (!runners.empty() && is_over()) break;
    race.set_back();
    race.launch(i);
    std::vector<double> made = race.read();
    if (right.empty()) {
      right = std::move(made);
    } else if (!race.agrees(made, right)) {
      log(LogLevel::warning,
          fmt::format("{} of {} is left out: its result differs from {}", race.names[i], race.subject,
                      race.right.empty() ? "that of " + race.names.front() : "the right one"));
      ++result.wrong;
      continue;
    }
    take(runners.emplace_back(Runner{i, {}}), 2);
  }
  if (runners.empty()) return result;
  const Runner first = runners.front();
  std::sort(runners.begin(), runners.end(), is_faster);
  // The first takes part to the end: what it is beaten by is told.
  const auto place = std::find_if(runners.begin(), runners.end(),
                                  [&](const Runner& runner) { return runner.index == first.index; });
  const std::size_t count = std::min(most_finalists, runners.size());
  if (place - runners.begin() >= static_cast<std::ptrdiff_t>(count))
    std::iter_swap(place, runners.begin() + static_cast<std::ptrdiff_t>(count) - 1);
  const std::span<Runner> last = std::span(runners).first(count);
  for (int turn = 0; turn < final_turns && count > 1 && !is_over(); ++turn)
    for (std::size_t i = 0; i < count; ++i)
      take(last[(i + static_cast<std::size_t>(turn)) % count], samples_in_final);
  const Runner& fastest = *std::min_element(last.begin(), last.end(), is_faster);
  const Runner& of_first = *std::find_if(last.begin(), last.end(),
                                         [&](const Runner& runner) { return runner.index == first.index; });
  const bool gains = median(of_first.samples) > least_gain * median(fastest.samples);
  const Runner& winner = gains ? fastest : of_first;
  result.winner = race.names[winner.index];
  result.first = race.names[first.index];
  result.winner_us = median(winner.samples);
  result.first_us = median(of_first.samples);
  result.runners = static_cast<int>(runners.size());
  return result;
}

const std::string& RaceWinners::of(const std::string& key) {
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  std::string text;
  if (const std::optional<std::vector<std::byte>> kept = cache_.binary(key))
    text.assign(reinterpret_cast<const char*>(kept->data()), kept->size());
  return known_.emplace(key, std::move(text)).first->second;
}

void RaceWinners::keep(const std::string& key, const RaceResult& result, const std::string& maker,
                       const std::string& name) {
  if (result.runners > 1)
    cache_.keep_binary(key, std::as_bytes(std::span(result.winner)), {.compiler = maker, .name = name});
  known_[key] = result.winner;
}

}  // namespace ce::tuner
