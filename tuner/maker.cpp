#include "tuner/maker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ce/error.hpp"
#include "generator/linear.hpp"
#include "generator/source.hpp"
#include "tuner/key.hpp"

namespace ce::tuner {
namespace {

std::string_view variant_in(std::string_view config) { return config.substr(0, config.find('/')); }

constexpr std::string_view before_digest = ", templates ";
constexpr std::size_t digits_of_maker = 8;

bool has_todays_templates(std::string_view maker) {
  const std::size_t at = maker.rfind(before_digest);
  if (at == std::string_view::npos) return true;
  const auto ends_with = [digits = maker.substr(at + before_digest.size())](const std::string& digest) {
    return digits == std::string_view(digest).substr(0, digits_of_maker);
  };
  return ends_with(generator::linear_template_digest(false)) ||
         ends_with(generator::linear_template_digest(true));
}

}  // namespace

std::string current_digest(std::string_view config, generator::Operation operation) {
  try {
    return generator::template_digest(operation, variant_of(config));
  } catch (const InvalidArgument&) {
    return {};
  }
}

bool is_current(const cache::Measurement& measurement, generator::Operation operation) {
  const std::string current = current_digest(measurement.config, operation);
  return !current.empty() && measurement.template_digest == current;
}

std::string variant_of(std::string_view config) { return std::string(variant_in(config)); }

std::string_view templates_of(const cache::Measurement& measurement) {
  return subject_of_race(measurement.key) ? "" : variant_in(measurement.config);
}

std::string maker_with_templates(std::string_view maker, std::string_view template_digest) {
  return fmt::format("{}{}{}", maker, before_digest, template_digest.substr(0, digits_of_maker));
}

std::string maker_of_race(std::span<const cache::Measurement> measurements) {
  // The last final takes precedence over the last attempt.
  const auto order = [](const cache::Measurement& measurement) {
    const bool is_final = measurement.outcome == cache::Outcome::measured && measurement.stage > 0;
    return std::pair<bool, std::string_view>(is_final, measurement.created_at);
  };
  const cache::Measurement* last = nullptr;
  for (const cache::Measurement& measurement : measurements)
    if (has_todays_templates(measurement.template_digest) &&
        (last == nullptr || order(measurement) >= order(*last)))
      last = &measurement;
  return last == nullptr ? "" : last->template_digest;
}

bool has_lost_winner(const cache::Measurement& measurement,
                     std::span<const cache::Measurement* const> measurements) {
  if (measurement.stage <= 0 || !subject_of_race(measurement.key)) return false;
  const auto winner = measurement.environment.find(winner_of_race);
  return winner != measurement.environment.end() && winner->second != measurement.config &&
         std::none_of(measurements.begin(), measurements.end(), [&](const cache::Measurement* other) {
           return other->config == winner->second && other->created_at == measurement.created_at;
         });
}

}  // namespace ce::tuner
