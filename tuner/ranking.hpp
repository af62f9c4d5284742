#pragma once
/// \file
/// Predicts which configs are fast, before any of them is compiled.

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

/// The inputs of the ranking, the same for every variant. Each is a logarithm to base 2 of a ratio, so that it has the
/// same meaning on GPUs of different sizes.
inline constexpr std::array<std::string_view, 14> trait_names{
    "one",
    "persistent",  ///< threads that a multiprocessor holds at once, over 1024
    "held",        ///< elements that a thread holds at once, over 16
    "tail",        ///< waves rounded up, over waves: the cost of a partial last wave
    "threads",     ///< threads of a block, over 256
    "idle",        ///< resident blocks over blocks: above 0 if the rows do not fill the device
    "row",         ///< bytes of a row's inputs over 32 KiB
    "share",       ///< blocks that share a row
    "shared",      ///< bytes of a block's shared memory, over 64 KiB
    "rows",        ///< rows of a block
    "writes",      ///< 1 if a value is written for each element
    "weights",     ///< 1 if rows need the weights of all classes
    "ragged",      ///< a block's slice of a row rounded up to tiles, over the slice
    "large",  ///< for problems that write each element: 0 up to 4 times L2 of traffic, 1 from 16 times on
};
/// Number of traits in predictions; the last trait is for cache modifiers only.
inline constexpr std::size_t trait_terms = trait_names.size() - 1;
using Traits = std::array<double, trait_names.size()>;

/// The index of the trait of that name; an unknown name does not compile.
consteval std::size_t trait(std::string_view name) {
  std::size_t index = 0;
  while (trait_names.at(index) != name) ++index;
  return index;
}

/// Pairs of traits whose products are terms, divided by 4.
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

/// The terms of a prediction: the traits, the products, and 1 for operations that are not ceilings.
inline constexpr std::size_t operations = 6;
using Terms = std::array<double, trait_terms + products.size() + operations>;
[[nodiscard]] Terms terms_of(generator::Operation operation, const Traits& traits) noexcept;

/// The weight of each term for configs of the variant.
struct VariantWeights {
  std::string_view variant;
  Terms weights{};
  int problems = 0;      ///< number of problems on which it was recorded
  double most_idle = 6;  ///< the largest trait "idle" in the records
};

/// The weights of a cache modifier, for all variants.
struct ModifierWeights {
  double plain = 0;
  double large = 0;  ///< weight of the trait "large"
};

/// All weights of the ranking.
struct Weights {
  std::span<const VariantWeights> variants;
  std::span<const ModifierWeights> loads, stores;  ///< indexed by Config::load and Config::store
};

/// Fitted to exhaustive searches on an H200 and an H100 (`ce_replay fit`).
[[nodiscard]] Weights shipped_weights() noexcept;

/// Number of 32-bit words of all inputs that a thread of the config holds at once.
[[nodiscard]] double held_words(const generator::Config& config, const generator::Problem& problem);

[[nodiscard]] Traits traits_of(const generator::Config& config, const generator::Problem& problem,
                               const runtime::Model& model);

/// The predicted natural logarithm of a config's time over that of the problem's fastest: the weighted sum of
/// terms_of(), plus weights of its cache modifiers; plus a penalty if the variant was recorded on few problems, or only
/// with more rows for each block. Only the order of configs is meaningful.
[[nodiscard]] double predicted_loss(const generator::Config& config, const generator::Problem& problem,
                                    const runtime::Model& model, const Weights& weights = shipped_weights());

/// The problem's space, most promising first; equal ones in the order of the space. If neighbours were measured, the
/// prediction's error there is added. It counts more for near neighbours, and for those where the config fills the
/// device alike.
[[nodiscard]] std::vector<generator::Config> ranked_space(const generator::Problem& problem,
                                                          const runtime::Model& model,
                                                          std::span<const Neighbour> neighbours = {},
                                                          const Weights& weights = shipped_weights());

/// The text of the config without its cache modifiers: its structure.
[[nodiscard]] std::string structure_of(generator::Config config);

/// The order in which a search tries the space: the ranking, but each structure is treated as 0.4% slower than the
/// previous one of its kind, and every third is the most promising of a kind that is not in the order yet. A kind is a
/// variant with the number of blocks that share a row. Variants that were recorded on few problems, whose predictions
/// are unreliable, get every fourth structure, and no more.
[[nodiscard]] std::vector<generator::Config> search_order(const generator::Problem& problem,
                                                          const runtime::Model& model,
                                                          const Weights& weights = shipped_weights());

/// The configs to run if nothing is known and nothing may be tried: ranked_space(), at least one.
/// \throws Unsupported if no config fits
[[nodiscard]] std::vector<generator::Config> safe_defaults(const generator::Problem& problem,
                                                           const runtime::Model& model);
/// The first of them.
[[nodiscard]] generator::Config safe_default(const generator::Problem& problem, const runtime::Model& model);

}  // namespace ce::tuner
