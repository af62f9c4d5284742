#include "tuner/ranking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "ce/base/error.hpp"
#include "tuner/kernel.hpp"
#include "tuner/ranking_weights.hpp"

namespace ce::tuner {
namespace {

using generator::Config;
using generator::Problem;

/// Registers of a thread beyond what it holds of the row.
constexpr double working_registers = 28;

/// What a block of the config is and does, on one problem.
struct Block {
  double threads, share, rows, held;  ///< as in trait_names, not yet logarithms
};

Block block_of(const Config& config, const Problem& problem) {
  const double threads = 32. * config.warps;
  const double share = std::max({1, config.cluster, config.split});
  const double rows = config.lanes > 0 ? config.rows * threads / config.lanes : 1;
  const double part = static_cast<double>(problem.columns) / share;
  const double at_once = config.tile > 0 ? std::min<double>(part, config.tile) : part * rows;
  return {threads, share, rows, generator::inputs(problem) * at_once / threads};
}

/// Blocks that a multiprocessor holds at once, as far as can be told before compiling.
double resident_blocks(const Block& block, const Config& config, const Problem& problem,
                       const runtime::Model& model) {
  constexpr double most = 32;
  const double words = block.held * size_of(problem.dtype) / 4;
  const double registers = std::min(255., working_registers + words);
  const int shared = generator::variant(config.variant).shared_bytes(config, problem);
  const double by_shared =
      shared > 0 ? static_cast<double>(model.shared_bytes_per_multiprocessor) / shared : most;
  return std::floor(
      std::max(1., std::min({most, model.threads_per_multiprocessor / block.threads,
                             model.registers_per_multiprocessor / (registers * block.threads), by_shared})));
}

/// A neighbour with its losses by the text of the config.
class Experience {
 public:
  Experience(const Neighbour& neighbour, const runtime::Model& model)
      : problem_(neighbour.problem), model_(model), weight_(std::exp(-2 * neighbour.distance)) {
    for (const auto& [config, loss] : neighbour.losses) losses_.emplace(generator::to_text(config), loss);
  }

  [[nodiscard]] double weight() const noexcept { return weight_; }

  /// What the prediction missed. Of a config that was not measured there, only that it did not win.
  [[nodiscard]] double missed(const Config& config, const std::string& text) const {
    constexpr double did_not_win = 0.1;
    const double predicted = predicted_loss(config, problem_, model_);
    const auto measured = losses_.find(text);
    return measured == losses_.end() ? std::max(0., did_not_win - predicted) : measured->second - predicted;
  }

 private:
  Problem problem_;
  const runtime::Model& model_;
  double weight_;
  std::unordered_map<std::string, double> losses_;
};

/// Of few and far neighbours less is believed.
double correction(const Config& config, std::span<const Experience> experiences) {
  if (experiences.empty()) return 0;
  const std::string text = generator::to_text(config);
  double sum = 0, weight = 0.05;
  for (const Experience& experience : experiences) {
    sum += experience.weight() * experience.missed(config, text);
    weight += experience.weight();
  }
  return sum / weight;
}

double weighed(const Traits& traits, const Traits& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < traits.size(); ++i) sum += traits[i] * weights[i];
  return sum;
}

}  // namespace

Traits traits_of(const Config& config, const Problem& problem, const runtime::Model& model) {
  const generator::Variant& variant = generator::variant(config.variant);
  const Block block = block_of(config, problem);
  const double resident = resident_blocks(block, config, problem, model);
  const double blocks = static_cast<double>(std::max<std::int64_t>(1, variant.blocks(config, problem)));
  const double waves = blocks / (resident * std::max(1, model.multiprocessors));
  constexpr double many_waves = 40;
  const double bytes = static_cast<double>(problem.columns * size_of(problem.dtype));

  const double threads = std::log2(block.threads / 256), held = std::log2(block.held / 16),
               idle = std::clamp(-std::log2(waves), -2., 6.),
               row = std::log2(bytes * generator::inputs(problem) / 32768), share = std::log2(block.share);
  const int shared_bytes = variant.shared_bytes(config, problem);
  return {1,
          std::log2(resident * block.threads / 1024),
          held,
          waves < many_waves ? std::log2(std::ceil(waves) / waves) : 0,
          threads,
          idle,
          row,
          share,
          std::log2(std::max(1, config.vec) * size_of(problem.dtype) / 16.),
          shared_bytes > 1024 ? std::log2(shared_bytes / 65536.) : -6,
          std::log2(block.rows),
          generator::has_output(problem) ? 1. : 0.,
          threads * threads,
          held * held,
          idle * idle,
          row * row,
          share * share,
          idle * row};
}

double predicted_loss(const Config& config, const Problem& problem, const runtime::Model& model) {
  const Traits traits = traits_of(config, problem, model);
  const double idle = traits[5];
  const auto of = [idle](const ModifierWeights& modifier) { return modifier.plain + modifier.idle * idle; };
  const auto variant = std::find_if(variant_weights.begin(), variant_weights.end(),
                                    [&](const VariantWeights& w) { return w.variant == config.variant; });
  const double structure = variant == variant_weights.end() ? 0 : weighed(traits, variant->weights);
  return structure + of(load_weights[static_cast<std::size_t>(config.load)]) +
         of(store_weights[static_cast<std::size_t>(config.store)]);
}

std::vector<Config> ranked_space(const Problem& problem, const runtime::Model& model,
                                 std::span<const Neighbour> neighbours) {
  std::vector<Experience> experiences;
  for (const Neighbour& neighbour : neighbours) experiences.emplace_back(neighbour, model);
  std::vector<std::pair<double, Config>> scored;
  for (Config& config : generator::space(problem, limits_of(model))) {
    const double loss = predicted_loss(config, problem, model) + correction(config, experiences);
    scored.emplace_back(loss, std::move(config));
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Config> ranked;
  ranked.reserve(scored.size());
  for (auto& [loss, config] : scored) ranked.push_back(std::move(config));
  return ranked;
}

Config safe_default(const Problem& problem, const runtime::Model& model) {
  std::vector<Config> ranked = ranked_space(problem, model);
  if (ranked.empty())
    throw Unsupported(fmt::format("no config of any variant fits {}", generator::title(problem)));
  return std::move(ranked.front());
}

}  // namespace ce::tuner
