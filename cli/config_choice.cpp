#include "cli/config_choice.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "ce/base/error.hpp"
#include "generator/config.hpp"
#include "tuner/ranking.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {
namespace {

std::optional<ConfigChoice> known_choice(const CommonOptions& common, runtime::Device& device,
                                         const generator::Problem& problem) {
  try {
    cache::Cache cache = open_database(common);
    const tuner::Tuner tuner(device, cache, {});
    if (const auto decision = tuner.known_winner(problem))
      return ConfigChoice{decision->winner.config,
                          fmt::format("the known winner on {}", device.model().name)};
    if (const auto near = tuner.likely_config(problem))
      return ConfigChoice{
          generator::to_text(*near),
          fmt::format("what {} uses, from near problems that were tuned", device.model().name)};
  } catch (const NotFound&) {
    if (!common.database.empty()) throw;
  }
  return std::nullopt;
}

}  // namespace

ConfigChoice choose_config(const CommonOptions& common, runtime::Device& device,
                           const generator::Problem& problem) {
  if (auto known = known_choice(common, device, problem)) return *std::move(known);
  return {generator::to_text(tuner::safe_default(problem, device.model())),
          fmt::format("what {} uses before anything was measured", device.model().name)};
}

}  // namespace ce::cli
