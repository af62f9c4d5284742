#include "cli/commands/config_choice.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ce/error.hpp"
#include "cli/units.hpp"
#include "generator/variant.hpp"
#include "tuner/kernel.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {
namespace {

/// The first config, unless a GPU's compiler finds a better one. The compiled kernels are not stored.
generator::Config fallback_of(runtime::Device& device, const generator::Problem& problem,
                              const std::vector<generator::Config>& ranked) {
  if (device.model().capability == 0) return ranked.front();
  cache::Cache binaries = cache::Cache::in_memory();
  try {
    return tuner::fallback(device, binaries, problem, ranked).kernel.config();
  } catch (const Unsupported&) {  // without a compiler nothing could run, but the source can be printed
    return ranked.front();
  }
}

}  // namespace

generator::Config parse_config_option(const std::string& text) {
  try {
    return generator::parse_config(text);
  } catch (const InvalidArgument& error) {
    const std::string& part = error.argument();
    throw InvalidArgument(
        "--config", in_quotes(text),
        part == "config" ? error.expected() : fmt::format("a {} that is {}", part, error.expected()));
  }
}

InvalidArgument not_serving(const generator::Config& config, const generator::Problem& problem,
                            const runtime::Model& model, const std::string& why) {
  return {"--config", generator::to_text(config),
          fmt::format("a config for {} on {}: {}", generator::title(problem), model.name, why)};
}

void require_serves(const generator::Config& config, const generator::Problem& problem,
                    const runtime::Model& model) {
  const generator::Variant& variant = generator::variant(config.variant);
  if (!variant.serves(problem))
    throw not_serving(config, problem, model, fmt::format("{} cannot run it", variant.name));
  if (const auto why = variant.rejects(config, problem, tuner::limits_of(model)))
    throw not_serving(config, problem, model, *why);
}

ConfigChoice named_config(const std::string& text) { return {parse_config_option(text), "of --config"}; }

ConfigChoice choose_config(const CommonOptions& common, runtime::Device& device,
                           const generator::Problem& problem) {
  cache::Cache cache = open_layered_database(common);
  const tuner::Tuner tuner(device, cache, {});
  const std::string& model = device.model().name;
  if (const auto decision = tuner.known_winner(problem))
    return {decision->winner.config, fmt::format("the known winner on {}", model)};
  const auto [ranked, from_neighbours] = tuner.untried(problem);
  return {fallback_of(device, problem, ranked),
          fmt::format("the config that {} uses{}", model,
                      from_neighbours ? ", chosen from similar problems that were tuned"
                                      : " before anything was measured")};
}

}  // namespace ce::cli
