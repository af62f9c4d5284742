#include "tuner/doubt.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ce::tuner {
namespace {

std::string doubt_in(const cache::Environment& all) {
  const auto environment = [&](const char* name) -> std::string {
    const auto found = all.find(name);
    return found == all.end() ? "" : found->second;
  };
  std::string doubt = environment("disturbance");
  const auto add = [&doubt](const std::string& reason) { doubt += (doubt.empty() ? "" : "; ") + reason; };
  // Power capping is a property of the GPU; protection from heat or a bad supply is not.
  const std::string throttle = environment("throttle");
  for (const char* reason : {"thermal", "hardware", "brake"})
    if (throttle.find(reason) != std::string::npos) {
      add("clocks were held down: " + throttle);
      break;
    }
  if (const std::string processes = environment("compute_processes");
      !processes.empty() && processes != "0" && processes != "1")
    add(processes + " processes were on the GPU");
  return doubt;
}

/// Doubts that follow from the environment of a measurement.
struct Reservations {
  cache::Environment environment;
  std::string doubt, cut_short;
};

/// Cached; valid until the next call.
const Reservations& reservations_of(const cache::Environment& environment) {
  // A caller that scans one key asks for the same few environments repeatedly, and copies of an environment share their
  // values.
  constexpr std::size_t most = 32;
  thread_local std::vector<Reservations> recent;
  thread_local std::size_t oldest = 0;
  for (const Reservations& known : recent)
    if (&known.environment.map() == &environment.map()) return known;
  const auto found = environment.find("cut_short");
  Reservations made{environment, doubt_in(environment), found == environment.end() ? "" : found->second};
  if (recent.size() < most) return recent.emplace_back(std::move(made));
  Reservations& slot = recent[std::exchange(oldest, (oldest + 1) % most)];
  return slot = std::move(made);
}

}  // namespace

std::string doubt_of(const cache::Measurement& measurement) {
  return reservations_of(measurement.environment).doubt;
}

std::string cut_short_by(const cache::Measurement& final) {
  return reservations_of(final.environment).cut_short;
}

std::string unfinished_because(const cache::Measurement& final) {
  const Reservations& reservations = reservations_of(final.environment);
  return reservations.cut_short.empty() ? reservations.doubt : reservations.cut_short;
}

}  // namespace ce::tuner
