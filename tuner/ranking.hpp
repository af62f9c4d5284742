#pragma once
/// \file
/// Which configs are likely to be fast, before any of them is compiled.

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "generator/variant.hpp"
#include "runtime/device.hpp"
#include "tuner/nearest.hpp"

namespace ce::tuner {

/// What the ranking looks at, the same for every variant. Each is a logarithm to base 2 of a ratio, so that it
/// means the same on GPUs of different sizes.
inline constexpr std::array<std::string_view, 14> trait_names{
    "one",
    "persistent",  ///< threads that a multiprocessor holds at once, over 1024
    "held",        ///< elements that a thread holds at once, over 16
    "tail",        ///< waves rounded up over waves: the price of a last wave that is not full
    "threads",     ///< of a block, over 256
    "idle",        ///< places for blocks over blocks: above 0 where the rows do not fill the device
    "row",         ///< bytes of a row's inputs over 32 KiB
    "share",       ///< blocks that share a row
    "shared",      ///< shared memory of a block over 64 KiB
    "rows",        ///< of a block
    "writes",      ///< 1 where a value is written for each element
    "weights",     ///< 1 where rows need the weights of all classes
    "ragged",  ///< tiles of a block's part of a row over that part: above 0 where the last one is not full
    "large",   ///< of what writes for each element: 0 up to 4 times L2 that is moved, 1 from 16 times on
};
/// That predictions are made from: the last is for cache modifiers alone.
inline constexpr std::size_t trait_terms = trait_names.size() - 1;
using Traits = std::array<double, trait_names.size()>;

/// The place of the trait of that name, which is one of them, or this does not compile.
consteval std::size_t trait(std::string_view name) {
  std::size_t place = 0;
  while (trait_names.at(place) != name) ++place;
  return place;
}

/// Two traits whose product counts too, a quarter of it.
struct Product {
  std::size_t left, right;
};
consteval Product product(std::string_view left, std::string_view right) {
  return {trait(left), trait(right)};
}
inline constexpr std::array products{
    product("persistent", "tail"), product("persistent", "threads"), product("persistent", "idle"),
    product("held", "held"),       product("held", "writes"),        product("threads", "idle"),
    product("threads", "row"),     product("threads", "share"),      product("idle", "idle"),
    product("idle", "row"),        product("idle", "share"),         product("idle", "rows"),
    product("row", "row"),         product("row", "writes"),         product("share", "share"),
};

/// What a prediction is a sum of: the traits, the products, and 1 for the operation, which is no ceiling.
inline constexpr std::size_t operations = 6;
using Terms = std::array<double, trait_terms + products.size() + operations>;
[[nodiscard]] Terms terms_of(generator::Operation operation, const Traits& traits) noexcept;

/// How much each term counts of a config of the variant.
struct VariantWeights {
  std::string_view variant;
  Terms weights{};
  int problems = 0;      ///< on which it was recorded
  double most_idle = 6;  ///< the largest trait "idle" with which it was
};

/// The weights of a cache modifier, whatever the variant.
struct ModifierWeights {
  double plain = 0;
  double large = 0;  ///< of the trait of this name
};

/// What a prediction is made with.
struct Weights {
  std::span<const VariantWeights> variants;
  std::span<const ModifierWeights> loads, stores;  ///< by Config::load and Config::store
};

/// Fitted to exhaustive searches on an H200 and an H100 (`ce_replay fit`).
[[nodiscard]] Weights shipped_weights() noexcept;

/// 32-bit words of all inputs that a thread of the config holds at once.
[[nodiscard]] double held_words(const generator::Config& config, const generator::Problem& problem);

[[nodiscard]] Traits traits_of(const generator::Config& config, const generator::Problem& problem,
                               const runtime::Model& model);

/// The natural logarithm of a config's time over that of the problem's fastest, as the weights predict it: a sum of
/// terms_of() for its variant, and what its cache modifiers add in any; more, where the variant was recorded
/// on few problems, or only where there were more rows for each of its blocks. Only the order of configs means anything.
[[nodiscard]] double predicted_loss(const generator::Config& config, const generator::Problem& problem,
                                    const runtime::Model& model, const Weights& weights = shipped_weights());

/// The problem's space, most promising first; equals in the order of the space. Where neighbours were measured,
/// what the prediction missed there is added to it, the more the nearer they are and the more alike the config
/// fills the device there.
[[nodiscard]] std::vector<generator::Config> ranked_space(const generator::Problem& problem,
                                                          const runtime::Model& model,
                                                          std::span<const Neighbour> neighbours = {},
                                                          const Weights& weights = shipped_weights());

/// The text of what a config shares with those that differ in their cache modifiers alone.
[[nodiscard]] std::string structure_of(generator::Config config);

/// The order in which a search looks at the space: as ranked, but for each structure of its kind before it a structure is
/// taken to be 0.4% slower, and every third is the most promising of a kind that the order has none of yet. Of a kind
/// are configs of one variant that share a row over as many blocks. Of variants that were recorded on few problems, whose
/// predictions are worth little, every fourth structure is one, and no more.
[[nodiscard]] std::vector<generator::Config> search_order(const generator::Problem& problem,
                                                          const runtime::Model& model,
                                                          const Weights& weights = shipped_weights());

/// The configs to run when nothing is known and nothing may be tried: ranked_space(), at least one.
/// \throws Unsupported where no config fits
[[nodiscard]] std::vector<generator::Config> safe_defaults(const generator::Problem& problem,
                                                           const runtime::Model& model);
/// The first of them.
[[nodiscard]] generator::Config safe_default(const generator::Problem& problem, const runtime::Model& model);

}  // namespace ce::tuner
