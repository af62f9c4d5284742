#include "tuner/strategy.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "runtime/device.hpp"

namespace ce::tuner {
namespace {

using Indices = std::vector<std::size_t>;

constexpr std::pair<Strategy, std::string_view> names[] = {
    {Strategy::halving, "halving"}, {Strategy::exhaustive, "exhaustive"}, {Strategy::random, "random"}};

std::size_t count(int number) { return static_cast<std::size_t>(std::max(0, number)); }

/// The measured entrants, fastest first; equal ones in ranking order.
Indices by_time(std::span<const Entrant> entrants) {
  Indices measured;
  for (std::size_t i = 0; i < entrants.size(); ++i)
    if (entrants[i].median_us > 0 && !entrants[i].out) measured.push_back(i);
  std::stable_sort(measured.begin(), measured.end(), [&](std::size_t a, std::size_t b) {
    return entrants[a].median_us < entrants[b].median_us;
  });
  return measured;
}

/// The first config of each of the first structures that is not quarantined.
Indices promising(const Breadth& breadth, std::span<const Entrant> entrants) {
  Indices chosen;
  std::set<std::size_t> structures;
  for (std::size_t i = 0; i < entrants.size() && chosen.size() < count(breadth.structures); ++i)
    if (!entrants[i].out && structures.insert(entrants[i].structure).second) chosen.push_back(i);
  return chosen;
}

/// The most promising configs of each of the fastest structures, including every load: a wrong load costs the most. A
/// few configs of many structures are tried rather than many of a few, since the choice of the fastest structures rests
/// on few samples of one config each.
Indices refined(const Breadth& breadth, std::span<const Entrant> entrants) {
  std::vector<std::size_t> best;
  for (const std::size_t i : by_time(entrants))
    if (best.size() < count(breadth.refined) &&
        std::find(best.begin(), best.end(), entrants[i].structure) == best.end())
      best.push_back(entrants[i].structure);
  Indices chosen;
  for (const std::size_t structure : best) {
    Indices own, others;  // other configs with a load that is among `own`
    std::set<int> loads;
    for (std::size_t i = 0; i < entrants.size(); ++i)
      if (entrants[i].structure == structure && !entrants[i].out)
        (loads.insert(entrants[i].load).second ? own : others).push_back(i);
    own.insert(own.end(), others.begin(), others.end());
    own.resize(std::min(own.size(), count(breadth.modifiers)));
    chosen.insert(chosen.end(), own.begin(), own.end());
  }
  return chosen;
}

Indices all(std::span<const Entrant> entrants) {
  Indices chosen(entrants.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = i;
  return chosen;
}

/// Draws at random. The most promising config is always included: it would run without a search.
Indices drawn(const Breadth& breadth, std::span<const Entrant> entrants) {
  Indices chosen = all(entrants);
  std::erase_if(chosen, [&](std::size_t i) { return entrants[i].out; });
  // std::shuffle() would give another order in each standard library.
  std::mt19937_64 engine(breadth.seed);
  for (std::size_t i = chosen.size(); i > 2; --i) std::swap(chosen[i - 1], chosen[1 + engine() % (i - 1)]);
  chosen.resize(std::min(chosen.size(), count(breadth.drawn)));
  return chosen;
}

Round screening(std::string_view name, const Breadth& breadth, std::span<const Entrant> entrants,
                const Indices& chosen) {
  // Entrants that were tried before count against the bound, and are not tried again.
  auto looked_at = static_cast<std::size_t>(
      std::count_if(entrants.begin(), entrants.end(), [](const Entrant& e) { return !e.is_new(); }));
  Round round{.name = name, .samples = breadth.screening_samples};
  for (const std::size_t i : chosen)
    if (entrants[i].is_new() && (breadth.most_configs <= 0 || looked_at < count(breadth.most_configs))) {
      round.entrants.push_back(i);
      ++looked_at;
    }
  return round;
}

/// The fastest of all screened entrants or, with `again`, of those that have had turns.
Round in_turns(std::string_view name, std::span<const Entrant> entrants, bool again, int most, int samples) {
  Round round{.name = name, .samples = samples, .in_turns = true};
  for (const std::size_t i : by_time(entrants))
    if ((!again || entrants[i].in_turns) && round.entrants.size() < count(most)) round.entrants.push_back(i);
  return round;
}

/// A round between the fastest entrants that the samples hardly distinguish; nothing if there is only one.
std::optional<Round> play_off(std::string_view name, const PlayOff& play_off, int samples_so_far,
                              std::span<const Entrant> entrants) {
  Round round = in_turns(name, entrants, true, play_off.most, play_off.samples);
  if (play_off.samples <= samples_so_far || round.entrants.empty()) return std::nullopt;
  const Entrant& first = entrants[round.entrants.front()];
  if (first.error < play_off.error) return std::nullopt;
  const double most_us = first.median_us * (1 + play_off.margin);
  std::erase_if(round.entrants, [&](std::size_t i) { return entrants[i].median_us > most_us; });
  return round.entrants.size() > 1 ? std::optional(std::move(round)) : std::nullopt;
}

}  // namespace

std::string_view name(Strategy strategy) noexcept {
  for (const auto& [known, text] : names)
    if (known == strategy) return text;
  return "?";
}

std::optional<Strategy> parse_strategy(std::string_view text) noexcept {
  for (const auto& [strategy, known] : names)
    if (known == text) return strategy;
  return std::nullopt;
}

double share_of_screening(const Breadth& breadth, int measured, bool awaits_leader) noexcept {
  if (measured < breadth.least_configs) return 2;
  return awaits_leader ? 0.85 : 0.75;
}

int launches_a_sample(double us) noexcept {
  constexpr double short_us = 30;
  return us < short_us ? runtime::launch_phases : 1;
}

int times_as_many(double us) noexcept {
  constexpr double turn_us = 600, most_launches = 20;
  const int launches = launches_a_sample(us);
  return static_cast<int>(
      std::clamp(turn_us / (samples_a_turn * launches * us), 1., most_launches / launches));
}

std::optional<Round> next_round(const Breadth& breadth, int round, std::span<const Entrant> entrants) {
  const bool halving = breadth.strategy == Strategy::halving;
  const int screenings = halving ? 2 : 1;
  switch (round - screenings) {
    case 0: return in_turns("semifinal", entrants, false, breadth.semifinalists, breadth.semifinal_samples);
    case 1: return in_turns("final", entrants, true, breadth.finalists, breadth.final_samples);
    case 2: return play_off("play-off", breadth.play_off, breadth.final_samples, entrants);
    case 3: return play_off("decider", breadth.decider, breadth.play_off.samples, entrants);
    default: break;
  }
  if (round >= screenings) return std::nullopt;
  if (halving && round == 1) return screening("refining", breadth, entrants, refined(breadth, entrants));
  return screening("screening", breadth, entrants,
                   halving                                ? promising(breadth, entrants)
                   : breadth.strategy == Strategy::random ? drawn(breadth, entrants)
                                                          : all(entrants));
}

}  // namespace ce::tuner
