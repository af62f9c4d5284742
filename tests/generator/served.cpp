#include "tests/generator/served.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "ce/error.hpp"
#include "generator/operations/cross_entropy_rules.hpp"

namespace ce::test {
namespace {

using generator::Operation;
using generator::Problem;

/// Another operation, with those of the options that it has.
Problem as(Operation operation, const Problem& wanted) {
  if (!is_cross_entropy(operation))
    return {.operation = operation,
            .dtype = wanted.dtype,
            .batched = wanted.batched,
            .strided = wanted.strided && !generator::is_ceiling(operation),
            .alignment = wanted.alignment,
            .rows = wanted.rows,
            .columns = wanted.columns};
  Problem problem = wanted;
  problem.operation = operation;
  if (generator::always_has_gradient(operation))
    problem.gradient = true;
  else if (generator::is_sharded(operation))
    problem.gradient = false;
  return problem;
}

constexpr std::array<bool& (*)(Problem&), 6> switches{
    [](Problem& problem) -> bool& { return problem.strided; },
    [](Problem& problem) -> bool& { return problem.gradient; },
    [](Problem& problem) -> bool& { return problem.has.softcap; },
    [](Problem& problem) -> bool& { return problem.weights; },
    [](Problem& problem) -> bool& { return problem.has.smoothing; },
    [](Problem& problem) -> bool& { return problem.probabilities; }};

/// Whether the problem makes sense, once outputs that it cannot have are left out.
bool make_valid(Problem& problem) {
  for (const generator::CrossEntropyOutput& output : generator::cross_entropy_outputs)
    if (!output.is_possible(problem)) problem.has.*output.field = false;
  if (problem.operation == Operation::cross_entropy_merge) {
    problem.batched = problem.strided = false;
    problem.alignment = generator::Alignment::vector;
  }
  if (problem.operation == Operation::cross_entropy_shard) leave_out_results(problem);
  if (!problem.gradient) problem.upstream = generator::Upstream::one;
  for (const generator::CrossEntropyInput& input : generator::cross_entropy_inputs)
    if (!input.is_possible(problem)) problem.has.*input.field = false;
  for (const generator::CrossEntropyOption& option : generator::cross_entropy_options)
    if (option.of_classes && problem.probabilities) problem.has.*option.field = false;
  if (const auto* option = option_without_saved_input(problem); option != nullptr)
    problem.has.*option->saved = true;
  if (!has_output(problem)) problem.in_place = false;
  if (problem.strided) problem.alignment = generator::Alignment::vector;
  try {
    validate(problem);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Problems that show between them every word there is.
std::vector<Problem> wanted_problems(DType dtype) {
  std::vector<Problem> all;
  for (const Operation operation :
       {Operation::softmax, Operation::log_softmax, Operation::softmax_backward,
        Operation::log_softmax_backward, Operation::cross_entropy, Operation::cross_entropy_backward,
        Operation::cross_entropy_shard, Operation::cross_entropy_merge,
        Operation::cross_entropy_shard_backward, Operation::cross_entropy_exchange, Operation::copy,
        Operation::read, Operation::add})
    all.push_back({.operation = operation, .dtype = dtype, .rows = 64, .columns = 32768});
  const auto add = [&](const auto& change) {
    Problem problem{.operation = Operation::cross_entropy, .dtype = dtype, .rows = 64, .columns = 32768};
    change(problem);
    all.push_back(problem);
  };
  for (const generator::CrossEntropyOption& option : generator::cross_entropy_options)
    add([&](Problem& problem) { problem.has.*option.field = true; });
  for (const generator::CrossEntropyOutput& output : generator::cross_entropy_outputs)
    add([&](Problem& problem) {
      problem.has.*output.field = true;
      if (output.needs != nullptr) problem.has.*output.needs = true;
    });
  for (const generator::CrossEntropyInput& input : generator::cross_entropy_inputs)
    add([&](Problem& problem) {
      if (input.of_backward) problem.operation = Operation::cross_entropy_backward;
      problem.gradient = input.of_gradient;
      if (input.of_mean) problem.reduction = Reduction::mean;
      problem.has.*input.field = true;
    });
  for (const Reduction reduction : {Reduction::mean, Reduction::sum})
    add([&](Problem& problem) { problem.reduction = reduction; });
  for (const generator::Upstream upstream : {generator::Upstream::scalar, generator::Upstream::rows})
    add([&](Problem& problem) {
      problem.gradient = true;
      problem.upstream = upstream;
    });
  add([](Problem& problem) { problem.gradient = problem.in_place = true; });
  add([](Problem& problem) { problem.probabilities = true; });
  add([](Problem& problem) { problem.weights = true; });
  add([](Problem& problem) { problem.batched = true; });
  add([](Problem& problem) { problem.target_dtype = DType::i32; });
  add([&](Problem& problem) { problem.loss_dtype = dtype; });
  return all;
}

}  // namespace

generator::Limits limits_of(int capability) {
  return {.capability = capability, .shared_bytes_per_block = capability < 90 ? 48 * 1024 : 227 * 1024};
}

std::vector<generator::Config> configs_of(const generator::Variant& variant, const Problem& problem,
                                          const generator::Limits& limits) {
  std::vector<generator::Config> fitting;
  if (!variant.serves(problem)) return fitting;
  for (const generator::Config& point : variant.points())
    if (!variant.rejects(point, problem, limits)) fitting.push_back(point);
  return fitting;
}

std::optional<Problem> nearest_served(const generator::Variant& variant, const Problem& wanted,
                                      const std::function<bool(const Problem&)>& keeps) {
  const generator::Limits limits = limits_of(90);
  const auto is_served = [&](Problem& problem) {
    return make_valid(problem) && variant.serves(problem) && keeps(problem) &&
           std::ranges::any_of(variant.points(), [&](const generator::Config& point) {
             return !variant.rejects(point, problem, limits);
           });
  };
  std::vector<unsigned> sets(1U << switches.size());
  for (unsigned bits = 0; bits < sets.size(); ++bits) sets[bits] = bits;
  std::ranges::stable_sort(sets, {}, [](unsigned bits) { return std::popcount(bits); });
  constexpr std::int64_t narrow = 10;
  std::vector<std::pair<std::int64_t, unsigned>> tries;
  for (const std::int64_t columns :
       {wanted.columns, std::int64_t{131072}, std::int64_t{4096}, std::int64_t{256}, narrow})
    for (const unsigned bits : sets) tries.emplace_back(columns, bits);
  for (const Operation operation :
       {wanted.operation, Operation::cross_entropy, Operation::cross_entropy_backward,
        Operation::cross_entropy_merge, Operation::softmax, Operation::add})
    for (const auto& [columns, bits] : tries) {
      Problem problem = as(operation, wanted);
      problem.columns = columns;
      for (std::size_t i = 0; i < switches.size(); ++i)
        if ((bits >> i & 1U) != 0) switches[i](problem) = !switches[i](problem);
      if (columns == narrow) {
        problem.batched = false;
        if (can_be_dense(problem)) problem.alignment = generator::Alignment::dense;
      }
      if (is_served(problem)) return problem;
    }
  return std::nullopt;
}

Problem nearest_served(const generator::Variant& variant, const Problem& wanted) {
  if (const auto nearest = nearest_served(variant, wanted, [](const Problem&) { return true; }))
    return *nearest;
  throw std::logic_error(fmt::format("{} serves nothing like {}", variant.name, title(wanted)));
}

bool serves(const generator::Variant& variant, Operation operation) {
  return nearest_served(variant, {.operation = operation, .rows = 64, .columns = 32768},
                        [&](const Problem& problem) { return problem.operation == operation; })
      .has_value();
}

std::optional<Problem> problem_with(const generator::Variant& variant, DType dtype, std::string_view word) {
  const auto shows = [&](const Problem& problem) {
    std::istringstream words(code_text(problem));
    for (std::string each; words >> each;)
      if (each == word) return true;
    return false;
  };
  for (const Problem& wanted : wanted_problems(dtype))
    if (shows(wanted))
      if (const auto problem = nearest_served(variant, wanted, shows)) return problem;
  return std::nullopt;
}

std::set<std::string> words_served(const generator::Variant& variant, DType dtype) {
  std::set<std::string> all, served;
  for (const Problem& wanted : wanted_problems(dtype)) {
    std::istringstream words(code_text(wanted));
    for (std::string word; words >> word;)
      if (!word.starts_with("cols=") && !word.starts_with("align=") && word != "strided") all.insert(word);
  }
  for (const std::string& word : all)
    if (problem_with(variant, dtype, word)) served.insert(word);
  return served;
}

}  // namespace ce::test
