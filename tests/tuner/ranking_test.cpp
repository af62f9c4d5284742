// What is thought of configs before any of them is compiled.
#include "tuner/ranking.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <ranges>
#include <set>

#include "ce/error.hpp"
#include "generator/config.hpp"
#include "tuner/bench.hpp"
#include "tuner/kernel.hpp"

namespace ce::test {
namespace {

using generator::Operation;
using generator::Problem;

const runtime::Model h200{.name = "NVIDIA H200",
                          .capability = 90,
                          .multiprocessors = 132,
                          .l2_bytes = 62914560,
                          .shared_bytes_per_block = 232448,
                          .shared_bytes_per_multiprocessor = 233472,
                          .registers_per_multiprocessor = 65536,
                          .threads_per_multiprocessor = 2048};
const runtime::Model t4{.name = "Tesla T4",
                        .capability = 75,
                        .multiprocessors = 40,
                        .l2_bytes = 4194304,
                        .shared_bytes_per_block = 65536,
                        .shared_bytes_per_multiprocessor = 65536,
                        .registers_per_multiprocessor = 65536,
                        .threads_per_multiprocessor = 1024};
const runtime::Model host{.name = "host: test",
                          .multiprocessors = 2,
                          .shared_bytes_per_block = 232448,
                          .shared_bytes_per_multiprocessor = 232448,
                          .registers_per_multiprocessor = 65536,
                          .threads_per_multiprocessor = 2048};

std::vector<Problem> problems() {
  std::vector<Problem> problems;
  for (const std::int64_t columns : {1, 2, 31, 128, 1000, 4096, 50257, 262144, 1 << 28})
    for (const std::int64_t rows : {1, 64, 8192}) {
      for (const Operation operation : {Operation::softmax, Operation::softmax_backward})
        problems.push_back(
            {.operation = operation,
             .dtype = DType::bf16,
             .alignment = columns % 8 == 0 ? generator::Alignment::vector : generator::Alignment::element,
             .rows = rows,
             .columns = columns});
      problems.push_back({.operation = Operation::cross_entropy,
                          .gradient = true,
                          .strided = true,
                          .rows = rows,
                          .columns = columns});
    }
  return problems;
}

std::vector<std::string> structures_of(const std::vector<generator::Config>& configs) {
  std::vector<std::string> structures;
  for (const generator::Config& config : configs)
    if (std::string text = tuner::structure_of(config);
        std::find(structures.begin(), structures.end(), text) == structures.end())
      structures.push_back(std::move(text));
  return structures;
}

/// How many of the first structures share a row in which way: by variant, over how many blocks.
std::map<std::pair<std::string, int>, int> ways_of_the_first(const std::vector<generator::Config>& configs,
                                                             std::size_t count) {
  std::set<std::string> structures;
  std::map<std::pair<std::string, int>, int> ways;
  for (const generator::Config& config : configs) {
    if (!structures.insert(tuner::structure_of(config)).second) continue;
    if (structures.size() > count) break;
    ++ways[{config.variant, std::max(config.cluster, config.split)}];
  }
  return ways;
}

/// Of 64 rows of 262144 columns the best of 1176 configs has clusters of eight, as what is ranked first.
TEST(Ranking, ASearchLooksAtSeveralWaysToShareARow) {
  const Problem problem{.dtype = DType::f16, .rows = 64, .columns = 262144};
  const std::vector<generator::Config> ranked = tuner::ranked_space(problem, h200),
                                       order = tuner::search_order(problem, h200);
  EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), ranked.begin(), ranked.end()));
  EXPECT_EQ(order.front(), ranked.front());
  const std::vector<std::string> first = structures_of(order), predicted = structures_of(ranked);
  for (int i = 0; i < 7; ++i)
    EXPECT_LT(std::find(first.begin(), first.end(), predicted[i]) - first.begin(), 24) << predicted[i];
  const auto ways = ways_of_the_first(order, 24);
  EXPECT_GE(ways.size(), ways_of_the_first(ranked, 24).size() + 2);
  const auto count = [](const auto& way) { return way.second; };
  EXPECT_LE(std::ranges::max(ways | std::views::transform(count)), 12) << "of one kind";
}

/// What is slow in one wave need not be slow in sixteen, and the other way round.
TEST(Ranking, NeighboursWithOtherNumbersOfWavesSayLess) {
  Problem problem{.operation = Operation::softmax, .dtype = DType::bf16, .rows = 8 * 132, .columns = 4096};
  const std::vector<generator::Config> ranked = tuner::ranked_space(problem, h200);
  const generator::Config praised = *std::ranges::find(ranked, "block", &generator::Config::variant);
  const double idle = tuner::traits_of(praised, problem, h200)[tuner::trait("idle")];
  const auto one_wave = static_cast<std::int64_t>(132 * std::lround(std::exp2(idle + 3)));
  problem.rows = 16 * one_wave;
  // There all were as fast as predicted, but for the one.
  const auto place_where_slow_at = [&](std::int64_t rows) {
    tuner::Neighbour near{problem, 0, {}};
    near.problem.operation = Operation::log_softmax;
    near.problem.rows = rows;
    for (const generator::Config& config : generator::space(near.problem, tuner::limits_of(h200)))
      near.losses.emplace_back(
          config, tuner::predicted_loss(config, near.problem, h200) + (config == praised ? 0.2 : 0));
    const std::vector<generator::Config> told =
        tuner::ranked_space(problem, h200, std::vector<tuner::Neighbour>{near});
    return std::find(told.begin(), told.end(), praised) - told.begin();
  };
  EXPECT_GT(place_where_slow_at(problem.rows), place_where_slow_at(one_wave));
}

/// As if nobody had recorded `pipeline`, and then as if few problems had been.
TEST(Ranking, ASearchTriesSomeOfWhatWasHardlyRecordedAndNothingElseDoes) {
  const Problem problem{.dtype = DType::bf16, .rows = 4096, .columns = 65536};
  tuner::Weights weights = tuner::shipped_weights();
  std::vector<tuner::VariantWeights> variants(weights.variants.begin(), weights.variants.end());
  const auto pipeline = std::find_if(variants.begin(), variants.end(),
                                     [](const auto& own) { return own.variant == "pipeline"; });
  ASSERT_NE(pipeline, variants.end());
  const auto expect_some = [&](const char* recorded) {
    weights.variants = variants;
    const std::vector<generator::Config> ranked = tuner::ranked_space(problem, h200, {}, weights),
                                         order = tuner::search_order(problem, h200, weights);
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), ranked.begin(), ranked.end()));
    EXPECT_NE(ranked.front().variant, "pipeline") << recorded;
    const auto little_known_of_the_first = [](const std::vector<generator::Config>& configs,
                                              std::ptrdiff_t count) {
      const std::vector<std::string> structures = structures_of(configs);
      return std::count_if(structures.begin(), structures.begin() + count, [](const std::string& text) {
        return text.starts_with("pipeline/") || text.starts_with("persistent/");
      });
    };
    // One that is due where the order looks away from the ranking as well follows that.
    EXPECT_EQ(little_known_of_the_first(order, 25), 6) << recorded;
  };
  pipeline->problems = 3;
  expect_some("on 3 problems");
  variants.erase(pipeline);
  expect_some("never");
}

/// `persistent` was recorded with many rows only: with a row for every second multiprocessor it took all places of a search,
/// and a `cluster` that is 17% faster was not looked at.
TEST(Ranking, AVariantIsBelievedWhereItWasRecordedOnly) {
  const Problem few{
      .dtype = DType::bf16, .alignment = generator::Alignment::shifted, .rows = 64, .columns = 100277};
  EXPECT_NE(tuner::safe_default(few, h200).variant, "persistent");
  const auto looked_at = [](const Problem& problem) {
    std::vector<std::string> first = structures_of(tuner::search_order(problem, h200));
    first.resize(24);
    return first;
  };
  const auto contains = [](const std::vector<std::string>& structures, const char* config) {
    return std::find(structures.begin(), structures.end(),
                     tuner::structure_of(generator::parse_config(config))) != structures.end();
  };
  const auto persistent_of = [](const std::vector<std::string>& structures) {
    return std::count_if(structures.begin(), structures.end(),
                         [](const std::string& structure) { return structure.starts_with("persistent/"); });
  };
  const std::vector<std::string> of_few = looked_at(few);
  EXPECT_LE(persistent_of(of_few), 6);
  EXPECT_TRUE(contains(of_few, "cluster/warps=16,vec=8,tile=8192,cluster=2,load=evict_last,store=cg"));
  const Problem many{.operation = Operation::cross_entropy,
                     .dtype = DType::f32,
                     .reduction = Reduction::mean,
                     .gradient = true,
                     .in_place = true,
                     .alignment = generator::Alignment::vector,
                     .rows = 2048,
                     .columns = 128256};
  EXPECT_GE(persistent_of(looked_at(many)), 6) << "one won on an H200";
}

std::multiset<std::string> texts(const std::vector<generator::Config>& configs) {
  std::multiset<std::string> texts;
  for (const generator::Config& config : configs) texts.insert(generator::to_text(config));
  return texts;
}

TEST(Ranking, IsThePermutedSpaceOnEveryDevice) {
  for (const Problem& problem : problems())
    for (const runtime::Model& model : {h200, t4, host}) {
      std::vector<generator::Config> ranked = tuner::ranked_space(problem, model);
      const std::vector<generator::Config> space = generator::space(problem, tuner::limits_of(model));
      EXPECT_EQ(texts(ranked), texts(space)) << title(problem);
      EXPECT_EQ(tuner::safe_default(problem, model), ranked.front());
      double last = -INFINITY;
      for (const generator::Config& config : ranked) {
        const double loss = tuner::predicted_loss(config, problem, model);
        ASSERT_TRUE(std::isfinite(loss)) << title(problem) << ": " << generator::to_text(config);
        EXPECT_GE(loss, last);
        last = loss;
      }
    }
}

TEST(Ranking, LetsLoadsLeaveL2LastWhereMuchIsReadAndWritten) {
  const auto load = [](const Problem& problem) {
    return generator::load_names[static_cast<std::size_t>(tuner::safe_default(problem, h200).load)];
  };
  const Problem softmax{.alignment = generator::Alignment::vector, .rows = 4096, .columns = 32768};
  EXPECT_EQ(load(softmax), "evict_last");
  const Problem with_gradient{.operation = Operation::cross_entropy,
                              .dtype = DType::bf16,
                              .gradient = true,
                              .alignment = generator::Alignment::vector,
                              .rows = 8192,
                              .columns = 128256};
  EXPECT_EQ(load(with_gradient), "evict_last");

  Problem loss = with_gradient;
  loss.gradient = false;
  EXPECT_NE(load(loss), "evict_last") << "nothing is written for each element";
}

TEST(Ranking, LeavesTheReferenceKernelAlone) {
  // Times of years are compared with its times: Bench::reference().
  EXPECT_EQ(generator::to_text(tuner::reference_config(h200)),
            "bandwidth/warps=8,vec=4,tile=4096,load=ca,store=wb");
}

TEST(Ranking, NamesTheProblemThatNoConfigFits) {
  const runtime::Model without_registers{.name = "none", .capability = 90};
  EXPECT_THROW(static_cast<void>(tuner::safe_default({.rows = 4, .columns = 128}, without_registers)),
               Unsupported);
}

TEST(Traits, AreTermsThemselvesAndInProductsOfTwo) {
  tuner::Traits traits{};
  for (std::size_t i = 0; i < traits.size(); ++i) traits[i] = static_cast<double>(i + 1);
  const tuner::Terms terms = tuner::terms_of(Operation::log_softmax, traits);
  EXPECT_TRUE(std::equal(traits.begin(), traits.begin() + tuner::trait_terms, terms.begin()));
  const auto products = terms.begin() + tuner::trait_terms;
  EXPECT_EQ(products[0], traits[tuner::trait("persistent")] * traits[tuner::trait("tail")] / 4);
  EXPECT_EQ(products[3], traits[tuner::trait("held")] * traits[tuner::trait("held")] / 4);
  const auto operations = products + static_cast<std::ptrdiff_t>(tuner::products.size());
  EXPECT_EQ(operations[-1], traits[tuner::trait("share")] * traits[tuner::trait("share")] / 4);
  ASSERT_EQ(terms.end() - operations, 6);
  EXPECT_TRUE(std::equal(operations, terms.end(), std::array{0., 1., 0., 0., 0., 0.}.begin()));
}

TEST(Traits, ProblemsAreLargeFrom16TimesL2OnIfTheyWriteForEachElement) {
  const generator::Config config = generator::parse_config("block/warps=32,vec=4,load=ca,store=wb");
  runtime::Model model = h200;
  model.l2_bytes = std::int64_t{64} << 20;
  const auto large = [&](std::int64_t times_l2, Operation operation) {
    const std::int64_t columns = 8192, bytes_of_a_row = 2 * 4 * columns;
    const Problem problem{
        .operation = operation, .rows = times_l2 * model.l2_bytes / bytes_of_a_row, .columns = columns};
    return tuner::traits_of(config, problem, model)[tuner::trait("large")];
  };
  for (const auto& [times_l2, expected] : {std::pair{1, 0.}, {4, 0.}, {8, 0.5}, {16, 1.}, {1024, 1.}})
    EXPECT_DOUBLE_EQ(large(times_l2, Operation::softmax), expected) << times_l2;
  EXPECT_EQ(large(64, Operation::cross_entropy), 0) << "a loss";
}

TEST(Traits, SayWhatTheirNamesSay) {
  const Problem problem{.dtype = DType::bf16, .rows = 264, .columns = 32768};
  const auto trait = [&](const char* config, std::string_view name) {
    const tuner::Traits traits = tuner::traits_of(generator::parse_config(config), problem, h200);
    const auto at = std::find(tuner::trait_names.begin(), tuner::trait_names.end(), name);
    return traits.at(static_cast<std::size_t>(at - tuner::trait_names.begin()));
  };
  const char* block = "block/warps=32,vec=8,load=ca,store=wb";
  EXPECT_EQ(trait(block, "threads"), 2) << "1024 of 256";
  EXPECT_EQ(trait(block, "held"), 1) << "32 of 16";
  EXPECT_EQ(trait(block, "persistent"), 0) << "one block of 1024: the registers hold no other";
  EXPECT_EQ(trait(block, "idle"), -1) << "two blocks for each place";
  EXPECT_EQ(trait(block, "tail"), 0);
  EXPECT_EQ(trait(block, "row"), 1) << "64 KiB of 32";
  EXPECT_EQ(trait(block, "writes"), 1);
  EXPECT_EQ(trait(block, "large"), 0) << "half of L2";
  EXPECT_EQ(trait("split/warps=8,vec=8,split=8,load=ca,store=wb", "share"), 3);
  EXPECT_EQ(trait("warp/warps=4,vec=8,lanes=8,rows=2,load=ca,store=wb", "rows"), 5) << "2 x 128 / 8";
}

}  // namespace
}  // namespace ce::test
