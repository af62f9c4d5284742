#include "cli/config_choice.hpp"

#include <fmt/format.h>

#include <optional>

#include "ce/base/error.hpp"
#include "generator/config.hpp"
#include "tuner/ranking.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {
namespace {

std::optional<std::string> known_winner(const CommonOptions& common, runtime::Device& device,
                                        const generator::Problem& problem) {
  try {
    cache::Cache cache = open_database(common);
    const auto decision = tuner::Tuner(device, cache, {}).known_winner(problem);
    if (decision) return decision->winner.config;
  } catch (const NotFound&) {
    if (!common.database.empty()) throw;
  }
  return std::nullopt;
}

}  // namespace

ConfigChoice choose_config(const CommonOptions& common, runtime::Device& device,
                           const generator::Problem& problem) {
  if (const auto winner = known_winner(common, device, problem))
    return {*winner, fmt::format("the known winner on {}", device.model().name)};
  return {generator::to_text(tuner::safe_default(problem, device.model())),
          fmt::format("what {} uses before anything was measured", device.model().name)};
}

}  // namespace ce::cli
