#include "bench/lab/replay/fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "ce/error.hpp"

namespace ce::replay {
namespace {

constexpr double strength = 8, strength_of_modifiers = 20;  // of the ridge
constexpr double slow = 0.7;                                // logarithm beyond which slower is just slow
constexpr std::size_t terms = std::tuple_size_v<tuner::Terms>, loads = generator::load_names.size(),
                      stores = generator::store_names.size();

/// Columns of a variant: its terms; then two for each modifier but the first, which the others are held against. A
/// modifier that was not recorded keeps its shipped weights.
constexpr std::size_t weights_of_modifier = 2,
                      modifier_columns = weights_of_modifier * (loads - 1 + stores - 1);

/// Solves a symmetric positive definite system in place, by Cholesky.
void solve(std::vector<double>& matrix, std::vector<double>& right) {
  const std::size_t n = right.size();
  const auto at = [&](std::size_t row, std::size_t column) -> double& { return matrix[row * n + column]; };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = at(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
      at(i, j) = i == j ? std::sqrt(sum) : sum / at(j, j);
    }
    for (std::size_t k = 0; k < i; ++k) right[i] -= at(i, k) * right[k];
    right[i] /= at(i, i);
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) right[i] -= at(k, i) * right[k];
    right[i] /= at(i, i);
  }
}

using ModifierRow = std::array<double, modifier_columns>;
/// Configs that differ in their cache modifiers alone, with their losses.
using Structure = std::vector<std::pair<ModifierRow, double>>;

ModifierRow modifier_row(const generator::Config& config, const tuner::Traits& traits) {
  ModifierRow row{};
  const auto add = [&](int value, std::size_t first) {
    if (value == 0) return;
    const std::size_t column = first + weights_of_modifier * (static_cast<std::size_t>(value) - 1);
    row[column] = 1;
    row[column + 1] = traits[tuner::trait("large")];
  };
  add(config.load, 0);
  add(config.store, weights_of_modifier * (loads - 1));
  return row;
}

/// How much a config counts: fast ones more, as only their order matters.
double weight_of(double loss) { return std::exp(-9 * loss); }
/// How much a structure does for the cache modifiers, by the loss of its fastest config.
double weight_of_structure(double loss) { return std::exp(-6 * loss); }

std::vector<const RecordedProblem*> all_of(const Recording& recording) {
  std::vector<const RecordedProblem*> all;
  for (const auto* problems : {&recording.problems, &recording.partial})
    for (const RecordedProblem& problem : *problems) all.push_back(&problem);
  return all;
}

/// Takes the means away. \returns the least loss
double centre(Structure& structure) {
  const auto count = static_cast<double>(structure.size());
  ModifierRow mean{};
  double mean_loss = 0, least = slow;
  for (const auto& [row, loss] : structure) {
    for (std::size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / count;
    mean_loss += loss / count;
    least = std::min(least, loss);
  }
  for (auto& [row, loss] : structure) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] -= mean[i];
    loss -= mean_loss;
  }
  return least;
}

/// Of a variant, from its sums, for what the modifiers leave.
std::vector<double> weights_of(const std::vector<double>& matrix, const std::vector<double>& right,
                               const std::vector<double>& modifiers, const Kept& kept) {
  std::vector<std::size_t> places;  // of what is fitted
  for (std::size_t i = 0; i < terms; ++i)
    if (kept[i]) places.push_back(i);
  const std::size_t n = places.size();
  std::vector<double> left(n * n), of(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double* row = &matrix[places[i] * right.size()];
    for (std::size_t j = 0; j < n; ++j) left[i * n + j] = row[places[j]];
    left[i * n + i] += strength;
    of[i] = right[places[i]] - std::inner_product(modifiers.begin(), modifiers.end(), row + terms, 0.);
  }
  solve(left, of);
  std::vector<double> weights(terms);
  for (std::size_t i = 0; i < n; ++i) weights[places[i]] = of[i];
  return weights;
}

}  // namespace

std::vector<Concept> concepts() {
  using tuner::trait_names;
  std::vector<Concept> all;
  for (std::size_t i = 1; i < tuner::trait_terms; ++i) all.push_back({std::string(trait_names[i]), {i}});
  std::size_t next = tuner::trait_terms;
  for (const auto& [left, right] : tuner::products) {
    for (const std::size_t trait : std::set{left, right}) all[trait - 1].terms.push_back(next);
    all.push_back({fmt::format("{}*{}", trait_names[left], trait_names[right]), {next++}});
  }
  Concept& operations = all.emplace_back(Concept{"operation", {}});
  while (next < terms) operations.terms.push_back(next++);
  return all;
}

Kept kept_without(const std::vector<std::string>& names) {
  Kept kept(terms, true);
  const std::vector<Concept> all = concepts();
  for (const std::string& name : names) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Concept& c) { return c.name == name; });
    if (found == all.end())
      throw InvalidArgument("--without", name, "a trait, a product of two, or operation");
    for (const std::size_t term : found->terms) kept[term] = false;
  }
  return kept;
}

void Regression::Sums::add(const Sums& other, double times) {
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] += times * other.matrix[i];
  for (std::size_t i = 0; i < right.size(); ++i) right[i] += times * other.right[i];
}

Regression::Parts::Parts(std::size_t count)
    : variants(count, Sums(terms + modifier_columns)), modifiers(modifier_columns) {}

void Regression::Parts::add(const Parts& other, double times) {
  for (std::size_t i = 0; i < variants.size(); ++i) variants[i].add(other.variants[i], times);
  modifiers.add(other.modifiers, times);
}

Regression::Regression(const Recording& recording, Kept kept)
    : recording_(recording),
      kept_(std::move(kept)),
      variants_([&recording] {
        std::set<std::string_view> names;
        for (const RecordedProblem* problem : all_of(recording))
          for (const RecordedConfig& config : problem->configs) names.insert(config.config.variant);
        return std::vector<std::string_view>(names.begin(), names.end());
      }()),
      all_(variants_.size()) {
  const std::vector<const RecordedProblem*> problems = all_of(recording);
  for (const RecordedProblem* problem : problems) all_.add(parts_of(*problem), 1);
  for (const std::string_view variant : variants_) {
    double& most = most_idle_.emplace_back(-std::numeric_limits<double>::infinity());
    for (const RecordedProblem* problem : problems)
      for (const RecordedConfig& each : problem->configs)
        if (each.config.variant == variant)
          most = std::max(
              most, tuner::traits_of(each.config, problem->problem, problem->model)[tuner::trait("idle")]);
    problems_.push_back(
        static_cast<int>(std::count_if(problems.begin(), problems.end(), [&](const RecordedProblem* problem) {
          return std::any_of(problem->configs.begin(), problem->configs.end(),
                             [&](const RecordedConfig& each) { return each.config.variant == variant; });
        })));
  }
}

Regression::Parts Regression::parts_of(const RecordedProblem& problem) const {
  Parts parts(variants_.size());
  const double best_us = problem.best_us();
  std::map<std::string, Structure> structures;
  for (const RecordedConfig& each : problem.configs) {
    const tuner::Traits traits = tuner::traits_of(each.config, problem.problem, problem.model);
    const tuner::Terms values = tuner::terms_of(problem.problem.operation, traits);
    const auto variant = static_cast<std::size_t>(
        std::find(variants_.begin(), variants_.end(), each.config.variant) - variants_.begin());
    const double loss = std::min(std::log(each.median_us / best_us), slow);
    const ModifierRow own = modifier_row(each.config, traits);
    structures[tuner::structure_of(each.config)].emplace_back(own, loss);

    std::vector<std::pair<std::size_t, double>> row;  // what is not 0
    for (std::size_t i = 0; i < terms; ++i)
      if (values[i] != 0) row.emplace_back(i, values[i]);
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i] != 0) row.emplace_back(terms + i, own[i]);
    Sums& sums = parts.variants[variant];
    const double weight = weight_of(loss);
    for (const auto& [i, left] : row) {
      sums.right[i] += weight * left * loss;
      for (const auto& [j, right] : row) sums.matrix[i * sums.right.size() + j] += weight * left * right;
    }
  }
  for (auto& [text, structure] : structures) {
    const double weight = weight_of_structure(centre(structure));
    Sums& sums = parts.modifiers;
    for (const auto& [row, loss] : structure)
      for (std::size_t i = 0; i < row.size(); ++i) {
        sums.right[i] += weight * row[i] * loss;
        for (std::size_t j = 0; j < row.size(); ++j)
          sums.matrix[i * row.size() + j] += weight * row[i] * row[j];
      }
  }
  return parts;
}

Fitted Regression::solved(Parts parts) const {
  constexpr double rounding = 1e-6;  // of sums that were taken away again
  std::vector<double>& modifiers = parts.modifiers.right;
  std::vector<bool> recorded;
  for (std::size_t i = 0; i < modifier_columns; ++i) {
    double& diagonal = parts.modifiers.matrix[i * modifier_columns + i];
    recorded.push_back(diagonal > rounding);
    diagonal += strength_of_modifiers;
  }
  solve(parts.modifiers.matrix, modifiers);

  Fitted fitted;
  for (std::size_t i = 0; i < variants_.size(); ++i) {
    // What is left is for the terms.
    const std::vector<double> weights =
        weights_of(parts.variants[i].matrix, parts.variants[i].right, modifiers, kept_);
    tuner::VariantWeights& own = fitted.variants.emplace_back(tuner::VariantWeights{.variant = variants_[i]});
    own.problems = problems_[i];
    own.most_idle = most_idle_[i];
    std::copy(weights.begin(), weights.end(), own.weights.begin());
  }
  const tuner::Weights shipped = tuner::shipped_weights();
  std::size_t next = 0;
  for (auto [fitting, known] :
       {std::pair{&fitted.loads, shipped.loads}, std::pair{&fitted.stores, shipped.stores}}) {
    fitting->resize(known.size());
    for (std::size_t i = 1; i < known.size(); ++i, next += weights_of_modifier)
      (*fitting)[i] =
          recorded[next] ? tuner::ModifierWeights{modifiers[next], modifiers[next + 1]} : known[i];
  }
  return fitted;
}

Fitted Regression::fitted() const { return solved(all_); }

Fitted Regression::fitted_without(std::size_t part, std::size_t parts) const {
  Parts others = all_;
  const auto leave_out = [&](const RecordedProblem& problem) { others.add(parts_of(problem), -1); };
  std::set<std::string> keys;
  const std::vector<std::size_t> numbers = part_numbers(recording_);
  for (std::size_t problem = 0; problem < recording_.problems.size(); ++problem) {
    if (numbers[problem] % parts != part) continue;
    leave_out(recording_.problems[problem]);
    keys.insert(generator::key_text(recording_.problems[problem].problem));
  }
  for (const RecordedProblem& problem : recording_.partial)
    if (keys.contains(generator::key_text(problem.problem))) leave_out(problem);
  return solved(std::move(others));
}

std::vector<std::size_t> part_numbers(const Recording& recording) {
  std::map<std::string, std::size_t> keys;
  std::vector<std::size_t> numbers;
  for (const RecordedProblem& problem : recording.problems)
    numbers.push_back(keys.try_emplace(generator::key_text(problem.problem), keys.size()).first->second);
  return numbers;
}

std::string header_of(const Fitted& fitted) {
  std::string text = R"(#pragma once
/// \file
/// Made by `ce_replay fit`; not edited by hand.

#include <array>

#include "tuner/ranking.hpp"

namespace ce::tuner {

// clang-format off
)";
  auto out = std::back_inserter(text);
  fmt::format_to(out, "inline constexpr std::array<VariantWeights, {}> variant_weights{{{{\n",
                 fitted.variants.size());
  for (const auto& [variant, weights, problems, most_idle] : fitted.variants)
    fmt::format_to(out, "    {{\"{}\", {{{:.4f}}}, {}, {:.2f}}},\n", variant, fmt::join(weights, ", "),
                   problems, most_idle);
  text += "}};\n";
  for (const auto& [name, modifiers] :
       {std::pair{"load_weights", &fitted.loads}, std::pair{"store_weights", &fitted.stores}}) {
    fmt::format_to(out, "inline constexpr std::array<ModifierWeights, {}> {}{{{{", modifiers->size(), name);
    for (std::size_t i = 0; i < modifiers->size(); ++i)
      fmt::format_to(out, "{}{{{:.4f}, {:.4f}}}", i == 0 ? "" : ", ", (*modifiers)[i].plain,
                     (*modifiers)[i].large);
    text += "}};\n";
  }
  return text + "// clang-format on\n\n}  // namespace ce::tuner\n";
}

}  // namespace ce::replay
