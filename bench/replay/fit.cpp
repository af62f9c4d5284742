#include "bench/replay/fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

namespace ce::replay {
namespace {

constexpr double strength = 20;  // of the ridge
constexpr double slow = 0.7;     // logarithm beyond which slower is just slow
constexpr std::size_t terms = std::tuple_size_v<tuner::Terms>, loads = generator::load_names.size(),
                      stores = generator::store_names.size();
constexpr std::size_t idle = 5;
static_assert(tuner::trait_names[idle] == "idle");

/// Columns of the regression: the terms for each variant; then two for each modifier but the first, which the
/// others are held against. A modifier that was not recorded keeps its shipped weights.
constexpr std::size_t modifier_columns = 2 * (loads - 1 + stores - 1);

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

}  // namespace

Regression::Regression(const Recording& recording)
    : recording_(recording),
      variants_([&recording] {
        std::set<std::string_view> names;
        for (const RecordedProblem& problem : recording.problems)
          for (const RecordedConfig& config : problem.configs) names.insert(config.config.variant);
        return std::vector<std::string_view>(names.begin(), names.end());
      }()),
      all_(variants_.size() * terms + modifier_columns) {
  for (const RecordedProblem& problem : recording.problems) {
    const Sums own = sums_of(problem);
    std::transform(own.matrix.begin(), own.matrix.end(), all_.matrix.begin(), all_.matrix.begin(),
                   std::plus<>());
    std::transform(own.right.begin(), own.right.end(), all_.right.begin(), all_.right.begin(), std::plus<>());
  }
}

Regression::Sums Regression::sums_of(const RecordedProblem& problem) const {
  Sums sums(all_.right.size());
  const double best_us = problem.best_us();
  const std::size_t modifiers = variants_.size() * terms;
  for (const RecordedConfig& each : problem.configs) {
    const tuner::Traits traits = tuner::traits_of(each.config, problem.problem, recording_.model);
    const tuner::Terms values = tuner::terms_of(traits);
    const auto variant = static_cast<std::size_t>(
        std::find(variants_.begin(), variants_.end(), each.config.variant) - variants_.begin());
    std::vector<std::pair<std::size_t, double>> row;  // what is not 0
    for (std::size_t i = 0; i < terms; ++i)
      if (values[i] != 0) row.emplace_back(variant * terms + i, values[i]);
    const auto add_modifier = [&](int value, std::size_t first) {
      if (value == 0) return;
      const std::size_t column = first + 2 * (static_cast<std::size_t>(value) - 1);
      row.emplace_back(column, 1);
      row.emplace_back(column + 1, traits[idle]);
    };
    add_modifier(each.config.load, modifiers);
    add_modifier(each.config.store, modifiers + 2 * (loads - 1));
    const double loss = std::min(std::log(each.median_us / best_us), slow);
    const double weight = std::exp(-6 * loss);
    for (const auto& [i, left] : row) {
      sums.right[i] += weight * left * loss;
      for (const auto& [j, right] : row) sums.matrix[i * sums.right.size() + j] += weight * left * right;
    }
  }
  return sums;
}

Fitted Regression::solved(Sums sums) const {
  constexpr double rounding = 1e-6;  // of sums that were taken away again
  const std::size_t columns = sums.right.size();
  std::vector<bool> recorded;
  for (std::size_t i = 0; i < columns; ++i) {
    double& diagonal = sums.matrix[i * columns + i];
    recorded.push_back(diagonal > rounding);
    diagonal += strength;
  }
  solve(sums.matrix, sums.right);
  Fitted fitted;
  std::size_t next = 0;
  for (const std::string_view variant : variants_)
    for (double& weight : fitted.variants.emplace_back(tuner::VariantWeights{variant}).weights)
      weight = sums.right[next++];
  const tuner::Weights shipped = tuner::shipped_weights();
  for (auto [modifiers, known] :
       {std::pair{&fitted.loads, shipped.loads}, std::pair{&fitted.stores, shipped.stores}}) {
    modifiers->resize(known.size());
    for (std::size_t i = 1; i < known.size(); ++i, next += 2)
      (*modifiers)[i] =
          recorded[next] ? tuner::ModifierWeights{sums.right[next], sums.right[next + 1]} : known[i];
  }
  return fitted;
}

Fitted Regression::fitted() const { return solved(all_); }

Fitted Regression::fitted_without(std::size_t part, std::size_t parts) const {
  Sums others = all_;
  for (std::size_t problem = part; problem < recording_.problems.size(); problem += parts) {
    const Sums own = sums_of(recording_.problems[problem]);
    for (std::size_t i = 0; i < others.matrix.size(); ++i) others.matrix[i] -= own.matrix[i];
    for (std::size_t i = 0; i < others.right.size(); ++i) others.right[i] -= own.right[i];
  }
  return solved(std::move(others));
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
  for (const auto& [variant, weights] : fitted.variants)
    fmt::format_to(out, "    {{\"{}\", {{{:.4f}}}}},\n", variant, fmt::join(weights, ", "));
  text += "}};\n";
  for (const auto& [name, modifiers] :
       {std::pair{"load_weights", &fitted.loads}, std::pair{"store_weights", &fitted.stores}}) {
    fmt::format_to(out, "inline constexpr std::array<ModifierWeights, {}> {}{{{{", modifiers->size(), name);
    for (std::size_t i = 0; i < modifiers->size(); ++i)
      fmt::format_to(out, "{}{{{:.4f}, {:.4f}}}", i == 0 ? "" : ", ", (*modifiers)[i].plain,
                     (*modifiers)[i].idle);
    text += "}};\n";
  }
  return text + "// clang-format on\n\n}  // namespace ce::tuner\n";
}

}  // namespace ce::replay
