#include "covering.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <future>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <variant>

#include "ce/error.hpp"
#include "generator/operations/cross_entropy_rules.hpp"
#include "templates/arguments.cuh"
#include "tests/generator/served.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::test {
namespace {

using generator::Alignment;
using generator::Config;
using generator::Operation;
using generator::Problem;
using generator::Upstream;
using Random = std::mt19937_64;

constexpr DType dtypes[] = {DType::f32, DType::f16, DType::bf16};

/// Cross entropy first: what its cases show of configs and layouts, others need not show again.
constexpr Operation operations[] = {Operation::cross_entropy,
                                    Operation::cross_entropy_backward,
                                    Operation::softmax,
                                    Operation::log_softmax,
                                    Operation::cross_entropy_shard,
                                    Operation::cross_entropy_merge,
                                    Operation::cross_entropy_shard_backward,
                                    Operation::cross_entropy_exchange,
                                    Operation::softmax_backward,
                                    Operation::log_softmax_backward};

/// Empty and full tails, fewer columns than lanes, one column, more than one tile, several blocks and chunks.
const std::vector<std::int64_t>& widths_of(std::string_view variant) {
  static const std::map<std::string_view, std::vector<std::int64_t>> widths{
      {"warp", {1000, 1, 33, 128, 7, 127, 512, 31, 513, 256, 2}},
      {"packed", {10, 1, 2, 33, 3, 127, 7, 31, 12, 5, 100}},
      {"transpose", {128, 16, 64, 256, 8, 512, 32, 192, 24}},
      {"block", {1000, 1, 33, 4099, 256, 2048, 127, 513, 31}},
      {"two_pass", {1000, 33, 4099, 2048, 20001, 127}},
      {"cluster", {16384, 24579, 18944, 20001}},
      {"pipeline", {16384, 24579, 18944, 20001}},
      {"pipeline_decoupled", {16384, 24579, 32768, 40003}},
      {"persistent", {16384, 32768, 24579, 40003, 30000}},
      {"persistent_reduce", {16384, 32768, 30000, 40003}},
      {"split", {4096, 20001, 9000, 50257}},
      {"elementwise", {1000, 1, 33, 4099, 127, 20001}},
      {"merge", {2, 1, 8, 3}},
      {"strided", {19, 1, 100, 2, 1000}},
  };
  static const std::vector<std::int64_t> of_others{1000, 33, 4099, 16384, 20001, 40003};
  const auto own = widths.find(variant);
  return own == widths.end() ? of_others : own->second;
}

bool is_strided(std::string_view variant) {
  return generator::variant(variant).serves({.operation = Operation::softmax, .strided = true});
}

bool heads(Random& random) { return random() % 2 == 0; }

void draw_options(Problem& problem, Random& random) {
  const bool forward = !generator::is_gradient_alone(problem.operation),
             shard = problem.operation == Operation::cross_entropy_shard;
  problem.reduction = static_cast<Reduction>(random() % 3);
  // What few problems are, of those that others are drawn as.
  const bool whole = problem.operation == Operation::cross_entropy, given_lse = whole && random() % 8 == 0;
  problem.gradient = always_has_gradient(problem.operation) || (whole && !given_lse && random() % 4 != 0);
  problem.probabilities = !given_lse && random() % 4 == 0;
  if (!problem.probabilities && heads(random)) problem.target_dtype = DType::i32;
  if (heads(random)) problem.loss_dtype = problem.dtype;
  problem.weights = heads(random);
  if (problem.weights && heads(random)) problem.weight_dtype = problem.dtype;
  for (const generator::CrossEntropyOption& option : generator::cross_entropy_options)
    problem.has.*option.field =
        option.of_classes ? random() % 4 == 0 && !problem.probabilities : heads(random);
  if (given_lse) problem.has.smoothing = false;
  if (problem.gradient) problem.upstream = static_cast<Upstream>(random() % 3);
  for (const generator::CrossEntropyInput& input : generator::cross_entropy_inputs)
    problem.has.*input.field = random() % (input.of_backward ? 2 : 3) == 0 && input.is_possible(problem);
  problem.has.given_lse |= given_lse;
  if (const auto* option = option_without_saved_input(problem); option != nullptr)
    problem.has.*option->saved = true;
  if (!forward) return;
  if (shard) {
    leave_out_results(problem);
    problem.loss_dtype = DType::f32;
  }
  for (const generator::CrossEntropyOutput& output : generator::cross_entropy_outputs)
    problem.has.*output.field = heads(random) && output.is_possible(problem);
}

void draw_layout(Problem& problem, bool strided, Random& random) {
  problem.rows = heads(random) ? 64 : most_fused_rows + 1;  // kernels of their own add up
  problem.in_place = has_output(problem) && heads(random);
  if (problem.operation == Operation::cross_entropy_merge) return;  // there are no columns
  problem.batched = random() % 4 == 0;
  problem.strided = strided;
  if (strided) return;
  problem.alignment = generator::alignments.at(random() % generator::alignments.size());
  if (problem.alignment == Alignment::dense && !can_be_dense(problem)) problem.alignment = Alignment::shifted;
  // The same memory is never misaligned with itself.
  if (problem.in_place && inputs(problem) == 1 && problem.alignment == Alignment::element)
    problem.alignment = Alignment::shifted;
}

/// One of the points that fit, each as likely; nothing where none does, or none of some thousands.
const Config* draw_point(const generator::Variant& variant, const Problem& problem,
                         const generator::Limits& limits, Random& random) {
  const auto& points = variant.points();
  const std::size_t tries = std::min<std::size_t>(3 * points.size(), 3000);
  for (std::size_t i = 0; i < tries; ++i)
    if (const Config& point = points[random() % points.size()]; !variant.rejects(point, problem, limits))
      return &point;
  return nullptr;
}

std::optional<Config> draw_config(const Problem& problem, std::string_view variant,
                                  const generator::Limits& limits, Random& random) {
  const generator::Variant& drawn = generator::variant(variant);
  if (!drawn.serves(problem)) return std::nullopt;
  const Config* point = draw_point(drawn, problem, limits, random);
  // As if blocks had less of it: rows that need not be as wide are held in the same way.
  generator::Limits fewer = limits;
  fewer.shared_bytes_per_block = std::min(fewer.shared_bytes_per_block, 80 * 1024);
  if (point == nullptr) point = draw_point(drawn, problem, fewer, random);
  return point == nullptr ? std::nullopt : std::optional(*point);
}

/// A case of the operation and dtype; nothing when the variant takes none of many problems, or has no config for some.
std::optional<Case> draw_case(Operation operation, DType dtype, std::string_view variant,
                              const generator::Limits& limits, Random& random) {
  constexpr int tries = 500;  // the variant may be made for one of 16 such problems
  constexpr int served = 40;
  const std::vector<std::int64_t>& widths = widths_of(variant);
  for (int i = 0, without_config = 0; i < tries && without_config < served; ++i) {
    Problem problem{.operation = operation, .dtype = dtype};
    problem.columns = widths[random() % widths.size()];
    if (is_cross_entropy(operation)) draw_options(problem, random);
    draw_layout(problem, is_strided(variant), random);
    generator::validate(problem);
    if (!generator::variant(variant).serves(problem)) continue;
    if (const auto config = draw_config(problem, variant, limits, random)) return Case{problem, *config};
    ++without_config;
  }
  return std::nullopt;
}

/// A program that was built, or why it cannot be.
using Outcome = std::variant<generator::Program, std::exception_ptr>;

}  // namespace

std::vector<std::string_view> variants_of_rows() {
  std::vector<std::string_view> names;
  for (const generator::Variant& variant : generator::variants())
    if (!variant.serves({.operation = Operation::copy})) names.push_back(variant.name);
  return names;
}

std::set<std::string> words_of(const Case& one, Covers covers) {
  std::set<std::string> words;
  std::istringstream text(generator::code_text(one.problem));
  std::string operation;
  text >> operation;
  const std::string dtype(name(one.problem.dtype));
  const std::string with_dtype = covers == Covers::options_dtypes ? " " + dtype : "";
  words.insert(operation + with_dtype);
  for (std::string word; text >> word;)
    if (!word.starts_with("cols=")) {
      words.insert(word + with_dtype);
      if (is_sharded(one.problem.operation)) words.insert(operation + " " + word);
    }
  for (const generator::Axis* axis : generator::variant(one.config.variant).axes())
    words.insert(fmt::format("{}={}", axis->name, generator::value_text(*axis, one.config.*axis->value)));
  return words;
}

std::vector<Case> covering_cases(std::string_view variant, const generator::Limits& limits,
                                 std::uint64_t seed, Covers covers) {
  Random random(seed);
  std::vector<Case> cases;
  std::set<std::string> seen;
  const auto draw = [&](Operation operation, const auto& next_dtype, int patience) {
    for (int nothing_new = 0; nothing_new < patience; ++nothing_new) {
      const std::optional<Case> one = draw_case(operation, next_dtype(), variant, limits, random);
      if (!one) return;
      const std::set<std::string> words = words_of(*one, covers);
      const std::size_t before = seen.size();
      seen.insert(words.begin(), words.end());
      if (seen.size() == before) continue;
      cases.push_back(*one);
      nothing_new = 0;
    }
  };
  for (const Operation operation : operations) {
    if (covers == Covers::options) {
      draw(
          operation, [&] { return dtypes[random() % std::size(dtypes)]; }, 80);
      continue;
    }
    for (const DType dtype : dtypes)
      draw(
          operation, [&] { return dtype; }, 40);
  }
  return cases;
}

std::vector<Case> product_of_options(const generator::Limits& limits, std::uint64_t seed, int part,
                                     int parts) {
  Random random(seed + static_cast<std::uint64_t>(part));
  std::vector<std::string_view> variants;
  for (const std::string_view variant : variants_of_rows())
    if (serves(generator::variant(variant), Operation::cross_entropy)) variants.push_back(variant);
  std::vector<Case> cases;
  constexpr int combinations = 1 << 10;  // of ten options that are on or off
  int number = 0;
  for (int bits = 0; bits < combinations; ++bits)
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
      for (const Upstream upstream : {Upstream::one, Upstream::scalar, Upstream::rows}) {
        int bit = 0;
        const auto on = [&] { return (bits >> bit++ & 1) != 0; };
        Problem problem{.operation = Operation::cross_entropy, .reduction = reduction, .upstream = upstream};
        problem.probabilities = on();
        problem.has.smoothing = on();
        problem.weights = on();
        problem.has.z_loss = on();
        problem.has.softcap = on();
        problem.has.scale = on();
        problem.has.lse_out = on();
        problem.has.argmax_out = on();
        problem.has.hit_out = on();
        problem.gradient = on();
        if (problem.has.hit_out && problem.probabilities) continue;  // there is no class to hit
        if (upstream != Upstream::one && !problem.gradient) continue;
        if (number++ % parts != part) continue;
        problem.has.z_loss_out = problem.has.z_loss && problem.has.lse_out;
        const std::size_t turn = cases.size() / variants.size() + static_cast<std::size_t>(part);
        const std::string_view variant = variants[cases.size() % variants.size()];
        problem.dtype = dtypes[(cases.size() + turn) % 3];  // each variant meets all
        const std::vector<std::int64_t>& widths = widths_of(variant);
        problem.columns = widths[random() % widths.size()];
        draw_layout(problem, is_strided(variant), random);
        auto config = draw_config(problem, variant, limits, random);
        if (!config) {  // too little in common with this variant: the one that takes everything
          problem.strided = false;
          problem.columns = 1000;
          config = draw_config(problem, "block", limits, random);
        }
        if (config) cases.push_back({problem, *config});
      }
  return cases;
}

void expect_right(runtime::Device& device, cache::Cache& cache, const std::vector<Case>& cases,
                  std::uint64_t seed, const TrialsOf& trials) {
  std::vector<std::promise<Outcome>> built(cases.size());
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> builders;
  for (int i = 0; i < device.parallel_compiles(); ++i)
    builders.emplace_back([&](const std::stop_token& stop) {
      for (std::size_t at = next++; at < cases.size() && !stop.stop_requested(); at = next++) {
        try {
          built[at].set_value(tuner::build(device, cache, cases[at].problem, cases[at].config));
        } catch (...) {
          built[at].set_value(std::current_exception());
        }
      }
    });
  for (std::size_t at = 0; at < cases.size(); ++at) {
    const auto& [problem, config] = cases[at];
    SCOPED_TRACE(
        fmt::format("{} with {}, CE_TEST_SEED={}", generator::title(problem), to_text(config), seed));
    try {
      Outcome outcome = built[at].get_future().get();
      if (const auto* error = std::get_if<std::exception_ptr>(&outcome)) std::rethrow_exception(*error);
      tuner::Verifier verifier(device, trials(problem, seed + at));
      const auto wrong = verifier.mismatch(tuner::Kernel(device, std::get<generator::Program>(outcome)));
      EXPECT_FALSE(wrong) << *wrong;
    } catch (const Error& error) {
      ADD_FAILURE() << name(error.kind()) << ": " << error.what();
    }
  }
}

std::vector<Config> some_configs(const Problem& problem, const generator::Limits& limits, std::size_t count,
                                 std::uint64_t seed) {
  Random random(seed);
  std::map<std::string, std::vector<Config>> by_variant;
  for (Config& config : generator::space(problem, limits))
    by_variant[config.variant].push_back(std::move(config));
  std::vector<Config> chosen;
  while (chosen.size() < count && !by_variant.empty())
    for (const auto& [variant, configs] : by_variant) chosen.push_back(configs[random() % configs.size()]);
  return chosen;
}

}  // namespace ce::test
