#include "tuner/decide.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ce/base/error.hpp"
#include "generator/config.hpp"
#include "generator/source.hpp"

namespace ce::tuner {
namespace {

/// The digest of today's templates for the variant of a config text; empty for a variant that no longer
/// exists.
std::string current_digest(std::string_view config, generator::Operation operation) {
  try {
    return generator::template_digest(operation, variant_of(config));
  } catch (const InvalidArgument&) {
    return {};
  }
}

/// False for text that only a damaged or edited database holds.
bool can_be_parsed(std::string_view config) {
  try {
    static_cast<void>(generator::parse_config(config));
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

bool comes_before(const Candidate& a, const Candidate& b) {
  if (a.measurement.stage != b.measurement.stage) return a.measurement.stage > b.measurement.stage;
  if (a.measurement.median_us != b.measurement.median_us)
    return a.measurement.median_us < b.measurement.median_us;
  return a.config < b.config;
}

/// Among those that tie with the first: fewer registers, then the smaller text.
std::size_t break_tie(const std::vector<Candidate>& ranking) {
  const cache::Measurement& best = ranking.front().measurement;
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < ranking.size(); ++i) {
    const cache::Measurement& other = ranking[i].measurement;
    if (other.stage != best.stage || other.median_us > best.median_us * (1 + tie)) break;
    const cache::Measurement& current = ranking[chosen].measurement;
    if (other.registers < current.registers ||
        (other.registers == current.registers && ranking[i].config < ranking[chosen].config))
      chosen = i;
  }
  return chosen;
}

std::string reason_of(const std::vector<Candidate>& ranking, bool tied) {
  const Candidate& winner = ranking.front();
  if (ranking.size() == 1) return "the only config that was measured";
  const Candidate& second = ranking[1];
  const double ahead = second.measurement.median_us / winner.measurement.median_us - 1;
  if (tied || ahead < tie)
    return fmt::format("within {:.1f}% of the fastest median, with the fewest registers ({}) among those",
                       tie * 100, winner.measurement.registers);
  return fmt::format("median {:.2f} us, {:.1f}% ahead of {} (median of {} samples, spread {:.1f}%)",
                     winner.measurement.median_us, ahead * 100, second.config,
                     winner.measurement.samples_us.size(), winner.measurement.spread * 100);
}

}  // namespace

std::string doubt_of(const cache::Measurement& measurement) {
  const auto evidence = [&](const char* name) -> std::string {
    const auto found = measurement.evidence.find(name);
    return found == measurement.evidence.end() ? "" : found->second;
  };
  std::string doubt = evidence("disturbance");
  const auto add = [&doubt](const std::string& reason) { doubt += (doubt.empty() ? "" : "; ") + reason; };
  // What caps the power is part of the GPU; what protects it from heat or a bad supply is not.
  const std::string throttle = evidence("throttle");
  for (const char* reason : {"thermal", "hardware", "brake"})
    if (throttle.find(reason) != std::string::npos) {
      add("clocks were held down: " + throttle);
      break;
    }
  if (const std::string processes = evidence("compute_processes");
      !processes.empty() && processes != "0" && processes != "1")
    add(processes + " processes were on the GPU");
  return doubt;
}

bool is_current(const cache::Measurement& measurement, generator::Operation operation) {
  const std::string current = current_digest(measurement.config, operation);
  return !current.empty() && measurement.template_digest == current;
}

std::string variant_of(std::string_view config) { return std::string(config.substr(0, config.find('/'))); }

bool is_finished(const std::optional<Decision>& decision) noexcept {
  return decision && decision->winner.measurement.stage > 0;
}

std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                               generator::Operation operation) {
  std::map<std::string, std::string> digests;
  for (const cache::Measurement& measurement : measurements) {
    const auto [digest, added] = digests.try_emplace(variant_of(measurement.config));
    if (added) digest->second = current_digest(measurement.config, operation);
  }
  std::erase_if(digests, [](const auto& digest) { return digest.second.empty(); });
  return decide(measurements, digests);
}

std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                               const std::map<std::string, std::string>& digests) {
  std::map<std::string, const cache::Measurement*> counting;
  for (const cache::Measurement& measurement : measurements) {
    const auto digest = digests.find(variant_of(measurement.config));
    if (digest == digests.end() || measurement.template_digest != digest->second) continue;
    if (!can_be_parsed(measurement.config)) continue;
    const cache::Measurement*& counted = counting[measurement.config];
    // A later quarantine withdraws what was measured before.
    if (measurement.outcome != cache::Outcome::measured)
      counted = nullptr;
    else if (counted == nullptr || measurement.stage >= counted->stage)
      counted = &measurement;
  }

  Decision decision;
  for (const auto& [config, measurement] : counting)
    if (measurement != nullptr) decision.ranking.push_back({config, *measurement});
  if (decision.ranking.empty()) return std::nullopt;
  std::sort(decision.ranking.begin(), decision.ranking.end(), comes_before);
  const std::size_t chosen = break_tie(decision.ranking);
  std::rotate(decision.ranking.begin(), decision.ranking.begin() + static_cast<std::ptrdiff_t>(chosen),
              decision.ranking.begin() + static_cast<std::ptrdiff_t>(chosen) + 1);
  decision.winner = decision.ranking.front();
  decision.reason = reason_of(decision.ranking, chosen != 0);
  if (const std::string doubt = doubt_of(decision.winner.measurement); !doubt.empty())
    decision.reason += "; measured under doubt: " + doubt;
  return decision;
}

}  // namespace ce::tuner
