#include "tuner/ranking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ce/error.hpp"
#include "generator/constraints.hpp"
#include "tuner/kernel.hpp"
#include "tuner/ranking_weights.hpp"

namespace ce::tuner {
namespace {

using generator::Config;
using generator::Problem;

/// Properties of a config's block on one problem.
struct Block {
  double threads, share, rows, held, ragged;  ///< as in trait_names, before the logarithm
};

Block block_of(const Config& config, const Problem& problem) {
  const double threads = 32. * config.warps;
  const double share = std::max({1, config.cluster, config.split});
  const bool is_one_row = config.rows == 0 && config.lanes == 0;
  const double rows = is_one_row ? 1 : std::max(1, config.rows) * threads / std::max(1, config.lanes);
  const double slice = static_cast<double>(problem.columns) / share;
  const double step = config.unroll > 0 ? config.unroll * (threads - 32) * config.vec : config.tile;
  const double at_once = step > 0 ? std::min(slice, step) : slice * rows;
  const double ragged = at_once < slice ? std::ceil(slice / step) * step / slice : 1;
  const double held = at_once / threads + config.hold * config.vec;
  return {threads, share, rows, generator::inputs(problem) * held, ragged};
}

/// Registers of a thread, fitted linearly to those that NVRTC 13.0 used for recorded sm_90 kernels
/// (bench/lab/fit_registers.py). `strided`, `packed` and `transpose` have too few records: their lines are fitted to
/// configs that were compiled for that purpose.
struct RegisterUse {
  std::string_view variant;
  double base, word;     ///< for each 32-bit word of the row that the thread holds
  double cross_entropy;  ///< added for cross entropy
  double two_inputs;     ///< added for two inputs
};
constexpr RegisterUse register_uses[] = {
    {"block", 15.2, 1.26, 4.8, -5.1},
    {"cluster", 24.0, 0.76, 1.9, -8.0},
    {"elementwise", 26.4, 1.02, 0.0, 0.0},
    {"persistent_reduce", 35.4, 1.35, 0.0, 0.0},
    {"two_pass", 23.3, 0.81, 2.0, -3.1},
    {"pipeline", 30.7, 2.68, 14.8, -10.1},
    {"pipeline_decoupled", 48.5, 0.87, 0.0, 0.0},
    {"persistent", 29.0, 1.06, 24.1, -8.6},
    {"split", 38.7, 0.00, -7.2, 11.7},
    {"strided", 18.5, 5.52, 7.1, 0.0},
    {"packed", 23.3, 1.21, 0.0, -3.4},
    {"transpose", 16.0, 1.25, 0.0, 0.0},
    {"warp", 16.7, 1.66, 2.1, -2.9},
};

double held_words(const Block& block, const Config& config, const Problem& problem) {
  constexpr double most = 96;  // for configs with the row in registers; others hold less at once
  if (problem.strided) return config.tile;
  if (config.hold > 0)
    return (config.hold + 2. * config.unroll) * config.vec * size_of(problem.dtype) / 4 *
           generator::inputs(problem);
  return std::min(most, block.held * size_of(problem.dtype) / 4);
}

double registers_of(const Block& block, const Config& config, const Problem& problem) {
  constexpr double least = 24, most = 255, granule = 8;
  const auto use = std::find_if(std::begin(register_uses), std::end(register_uses),
                                [&](const RegisterUse& each) { return each.variant == config.variant; });
  if (use == std::end(register_uses)) return least;
  const double registers = use->base + use->word * held_words(block, config, problem) +
                           (generator::is_cross_entropy(problem.operation) ? use->cross_entropy : 0) +
                           (generator::inputs(problem) > 1 ? use->two_inputs : 0);
  return std::clamp(std::ceil(registers / granule) * granule, least, most);
}

/// Estimated number of blocks that a multiprocessor holds at once.
double resident_blocks(const Block& block, const Config& config, const Problem& problem,
                       const runtime::Model& model) {
  constexpr double most = 32;
  const double registers = registers_of(block, config, problem);
  const int shared = generator::variant(config.variant).shared_bytes(config, problem);
  const double by_shared = shared > 0 ? static_cast<double>(model.shared_bytes_per_multiprocessor) /
                                            (shared + generator::shared_bytes_of_the_system)
                                      : most;
  return std::floor(
      std::max(1., std::min({most, model.threads_per_multiprocessor / block.threads,
                             model.registers_per_multiprocessor / (registers * block.threads), by_shared})));
}

/// From this many recorded problems on, a variant's weights are fully trusted.
constexpr int enough_problems = 20;

const VariantWeights* weights_of(std::string_view variant, const Weights& weights) {
  const auto own = std::find_if(weights.variants.begin(), weights.variants.end(),
                                [&](const VariantWeights& w) { return w.variant == variant; });
  return own == weights.variants.end() ? nullptr : &*own;
}

/// Weights for a persistent variant that was never recorded: those of the most recorded persistent variant.
const VariantWeights* weights_of_the_like(std::string_view variant, const Weights& weights) {
  if (!generator::variant(variant).persistent) return nullptr;
  const VariantWeights* like = nullptr;
  for (const VariantWeights& other : weights.variants)
    if (generator::variant(other.variant).persistent && (like == nullptr || other.problems > like->problems))
      like = &other;
  return like;
}

/// Number of recorded problems for configs with such traits; 0 if the config has fewer rows for each block than any
/// recorded one.
int recorded_problems(std::string_view variant, const Traits& traits, const Weights& weights) {
  constexpr double beyond = 0.5;
  const VariantWeights* own = weights_of(variant, weights);
  return own == nullptr || traits[trait("idle")] > own->most_idle + beyond ? 0 : own->problems;
}

double weighed(const Config& config, generator::Operation operation, const Traits& traits,
               const Weights& weights) {
  constexpr double doubt = 0.1;
  const int recorded = std::min(enough_problems, recorded_problems(config.variant, traits, weights));
  double sum = doubt * (enough_problems - recorded) / enough_problems;
  const VariantWeights* variant = weights_of(config.variant, weights);
  if (variant == nullptr || variant->problems == 0) variant = weights_of_the_like(config.variant, weights);
  if (variant != nullptr) {
    const Terms terms = terms_of(operation, traits);
    for (std::size_t i = 0; i < terms.size(); ++i) sum += terms[i] * variant->weights[i];
  }
  for (const ModifierWeights& modifier : {weights.loads[static_cast<std::size_t>(config.load)],
                                          weights.stores[static_cast<std::size_t>(config.store)]})
    sum += modifier.plain + modifier.large * traits[trait("large")];
  return sum;
}

/// The trait "large" of a problem.
double large(const Problem& problem, const runtime::Model& model) {
  if (!generator::has_output(problem)) return 0;
  const double moved = static_cast<double>(problem.rows) * static_cast<double>(problem.columns) *
                       static_cast<double>(size_of(problem.dtype)) * (generator::inputs(problem) + 1);
  const double times_l2 = moved / static_cast<double>(std::max<std::int64_t>(1, model.l2_bytes));
  return std::clamp(std::log2(std::max(1., times_l2)) / 2 - 1, 0., 1.);
}

/// A neighbour, with its losses by config text.
class Experience {
 public:
  Experience(const Neighbour& neighbour, const runtime::Model& model, const Weights& weights)
      : problem_(neighbour.problem), model_(model), weights_(weights), distance_(neighbour.distance) {
    for (const auto& [config, loss] : neighbour.losses) {
      losses_.emplace(generator::to_text(config), loss);
      variants_.insert(config.variant);
    }
  }

  /// Adds the prediction's error at the neighbour, if it is known. For a config that was not measured there it is only
  /// known that the config did not win; and not even that if no config of its variant was measured, since the variant
  /// may not have existed.
  void add(const Config& config, const std::string& text, const Traits& traits, double& sum,
           double& weight) const {
    constexpr double did_not_win = 0.05, slow = 0.7;  // larger losses are clamped to this
    const auto measured = losses_.find(text);
    if (measured == losses_.end() &&
        (!variants_.contains(config.variant) ||
         generator::variant(config.variant).rejects(config, problem_, limits_of(model_))))
      return;
    const Traits there = traits_of(config, problem_, model_);
    const double predicted = weighed(config, problem_.operation, there, weights_);
    const double missed = measured == losses_.end() ? std::max(0., did_not_win - predicted)
                                                    : std::min(measured->second, slow) - predicted;
    const auto differs = [&](std::size_t i) { return std::abs(traits[i] - there[i]); };
    const double apart = differs(trait("persistent")) + differs(trait("tail")) + differs(trait("idle")) / 2;
    const double own = std::exp(-(distance_weight * distance_ + apart));
    sum += own * missed;
    weight += own;
  }

 private:
  static constexpr double distance_weight = 0.85;

  Problem problem_;
  const runtime::Model& model_;
  const Weights& weights_;
  double distance_;
  std::unordered_map<std::string, double> losses_;
  std::unordered_set<std::string> variants_;
};

/// Configs of a kind are of one variant and share a row over equally many blocks.
using Kind = std::pair<std::string, int>;

Kind kind_of(const Config& config) { return {config.variant, std::max(config.cluster, config.split)}; }

/// The correction of a prediction by neighbours. Few or distant neighbours count less; a config unknown to all is
/// expected to be slower than predicted.
double correction(const Config& config, const Traits& traits, std::span<const Experience> experiences) {
  if (experiences.empty()) return 0;
  const std::string text = generator::to_text(config);
  constexpr double surprise = 0.02;
  double weight = 0.2, sum = weight * surprise;
  for (const Experience& experience : experiences) experience.add(config, text, traits, sum, weight);
  return sum / weight;
}

/// The problem's space with the predicted loss of each config, lowest first.
using Scored = std::vector<std::pair<double, Config>>;

void sort(Scored& scored) {
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
}

Scored scored_space(const Problem& problem, const runtime::Model& model,
                    std::span<const Neighbour> neighbours, const Weights& weights) {
  std::vector<Experience> experiences;
  for (const Neighbour& neighbour : neighbours) experiences.emplace_back(neighbour, model, weights);
  Scored scored;
  for (Config& config : generator::space(problem, limits_of(model))) {
    const Traits traits = traits_of(config, problem, model);
    const double loss =
        weighed(config, problem.operation, traits, weights) + correction(config, traits, experiences);
    scored.emplace_back(loss, std::move(config));
  }
  sort(scored);
  return scored;
}

/// Structures of a kind are much alike, and right or wrong together: each is treated as slower by this (a natural
/// logarithm) than the previous one of its kind.
constexpr double crowding = 0.004;

/// Reorders the space so that kinds alternate.
Scored spread_out(Scored scored) {
  std::map<Kind, int> structures_of_kind;
  std::unordered_map<std::string, double> handicaps;  // by structure
  for (auto& [loss, config] : scored) {
    const auto [handicap, is_new] = handicaps.try_emplace(structure_of(config));
    if (is_new) handicap->second = crowding * structures_of_kind[kind_of(config)]++;
    loss += handicap->second;
  }
  sort(scored);
  return scored;
}

std::vector<Config> configs_of(Scored scored) {
  std::vector<Config> configs;
  configs.reserve(scored.size());
  for (std::pair<double, Config>& each : scored) configs.push_back(std::move(each.second));
  return configs;
}

}  // namespace

double held_words(const Config& config, const Problem& problem) {
  return held_words(block_of(config, problem), config, problem);
}

Traits traits_of(const Config& config, const Problem& problem, const runtime::Model& model) {
  const generator::Variant& variant = generator::variant(config.variant);
  const Block block = block_of(config, problem);
  const double resident = resident_blocks(block, config, problem, model);
  const double blocks = static_cast<double>(std::max<std::int64_t>(1, variant.blocks(config, problem)));
  const double waves = blocks / (resident * std::max(1, model.multiprocessors));
  constexpr double many_waves = 40;
  const double bytes = static_cast<double>(problem.columns * size_of(problem.dtype));

  // Clamps to the recorded range: products of traits extrapolate badly.
  const double threads = std::log2(block.threads / 256),
               held = std::clamp(std::log2(block.held / 16), -6., 6.),
               idle = std::clamp(-std::log2(waves), -2., 6.),
               row = std::clamp(std::log2(bytes * generator::inputs(problem) / 32768), -8., 6.),
               share = std::log2(block.share), full = std::log2(resident * block.threads / 1024),
               tail = waves < many_waves ? std::log2(std::ceil(waves) / waves) : 0;
  const int shared_bytes = variant.shared_bytes(config, problem);
  return {1,
          full,
          held,
          tail,
          threads,
          idle,
          row,
          share,
          shared_bytes > 1024 ? std::log2(shared_bytes / 65536.) : -6,
          std::log2(block.rows),
          generator::has_output(problem) ? 1. : 0.,
          generator::reads_all_weights(problem) ? 1. : 0.,
          std::log2(block.ragged),
          large(problem, model)};
}

static_assert(load_weights.size() == generator::load_names.size() &&
              store_weights.size() == generator::store_names.size());

static_assert(static_cast<std::size_t>(generator::Operation::cross_entropy_backward) + 1 == operations);

/// The recorded operation with the same memory traffic. Operations on shards were not recorded.
generator::Operation like(generator::Operation operation) {
  using generator::Operation;
  return operation == Operation::cross_entropy_shard || operation == Operation::cross_entropy_exchange
             ? Operation::cross_entropy
         : operation == Operation::cross_entropy_shard_backward ? Operation::cross_entropy_backward
                                                                : operation;
}

Terms terms_of(generator::Operation operation, const Traits& traits) noexcept {
  Terms terms{};
  double* next = std::copy_n(traits.begin(), trait_terms, terms.begin());
  for (const Product& each : products) *next++ = traits[each.left] * traits[each.right] / 4;
  if (const auto index = static_cast<std::size_t>(like(operation)); index < operations) next[index] = 1;
  return terms;
}

Weights shipped_weights() noexcept { return {variant_weights, load_weights, store_weights}; }

double predicted_loss(const Config& config, const Problem& problem, const runtime::Model& model,
                      const Weights& weights) {
  return weighed(config, problem.operation, traits_of(config, problem, model), weights);
}

std::vector<Config> ranked_space(const Problem& problem, const runtime::Model& model,
                                 std::span<const Neighbour> neighbours, const Weights& weights) {
  return configs_of(scored_space(problem, model, neighbours, weights));
}

std::string structure_of(Config config) {
  config.load = config.store = 0;
  return generator::to_text(config);
}

std::vector<Config> search_order(const Problem& problem, const runtime::Model& model,
                                 const Weights& weights) {
  std::vector<Config> ranked = configs_of(spread_out(scored_space(problem, model, {}, weights)));
  const auto known = std::stable_partition(ranked.begin(), ranked.end(), [&](const Config& config) {
    return recorded_problems(config.variant, traits_of(config, problem, model), weights) >= enough_problems;
  });
  const std::vector<Config> little_known(known, ranked.end());
  ranked.erase(known, ranked.end());
  constexpr std::size_t new_kind_every = 3, little_known_every = 4;  // counted in structures

  std::vector<Config> order;
  std::unordered_set<std::string> structures, added;
  std::set<Kind> kinds;
  const auto add = [&](const Config& config) {
    if (!added.insert(generator::to_text(config)).second) return false;
    kinds.insert(kind_of(config));
    order.push_back(config);
    return structures.insert(structure_of(config)).second;
  };
  // Adds the first config, from `next` on, whose structure is new in the order.
  const auto add_next = [&](const std::vector<Config>& list, std::vector<Config>::const_iterator& next,
                            bool of_a_new_kind) {
    next = std::find_if(next, list.end(), [&](const Config& other) {
      return (!of_a_new_kind || !kinds.contains(kind_of(other))) && !structures.contains(structure_of(other));
    });
    if (next != list.end()) add(*next);
  };
  auto next_of_a_kind = ranked.cbegin(), next_little_known = little_known.cbegin();
  std::size_t next_little_known_at = little_known_every;  // where the next of them goes, or later
  for (const Config& config : ranked) {
    if (!add(config)) continue;
    if (structures.size() % new_kind_every == new_kind_every - 1) add_next(ranked, next_of_a_kind, true);
    if (structures.size() + 1 < next_little_known_at) continue;
    add_next(little_known, next_little_known, false);
    next_little_known_at += little_known_every;
  }
  for (const Config& config : little_known) add(config);
  return order;
}

std::vector<Config> safe_defaults(const Problem& problem, const runtime::Model& model) {
  std::vector<Config> ranked = ranked_space(problem, model);
  if (ranked.empty())
    throw Unsupported(fmt::format("no variant has a config that fits {}", generator::title(problem)));
  return ranked;
}

Config safe_default(const Problem& problem, const runtime::Model& model) {
  return std::move(safe_defaults(problem, model).front());
}

}  // namespace ce::tuner
