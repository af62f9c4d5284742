// Every Variant, operation, option, dtype and alignment on the host device, with tails, strides, ignored rows
// and extreme values, against f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ce/error.hpp"
#include "covering.hpp"
#include "runtime/host/device.hpp"
#include "tests/environment.hpp"
#include "tests/generator/served.hpp"
#include "tests/seed.hpp"
#include "tuner/kernel.hpp"

namespace ce::test {
namespace {

class HostNumerics : public testing::Test {
 protected:
  void check(const std::vector<Case>& cases) { expect_right(*device, cache, cases, seed); }
  void check(const generator::Problem& problem, std::size_t configs) {
    std::vector<Case> cases;
    for (const generator::Config& config : some_configs(problem, limits, configs, seed))
      cases.push_back({problem, config});
    check(cases);
  }

  std::unique_ptr<runtime::Device> device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  std::uint64_t seed = test_seed();
  generator::Limits limits = tuner::limits_of(device->model());
};

/// Of wide rows only as many as it takes for blocks that stay to have several each: every thread takes its turns here.
/// Some keep the rows whose sums take kernels of their own.
std::vector<Case> of_few_rows(std::vector<Case> cases) {
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (cases[i].problem.columns > 4096 && i % 8 != 0) cases[i].problem.rows = 20;
  return cases;
}

/// A third of the array, or with CE_FULL_TESTS all of one that shows every option with every dtype.
class EveryVariant : public HostNumerics, public testing::WithParamInterface<std::string_view> {};

TEST_P(EveryVariant, CoveringArray) {
  const Covers covers = is_required("CE_FULL_TESTS") ? Covers::options_dtypes : Covers::options;
  const std::vector<Case> cases = of_few_rows(covering_cases(GetParam(), limits, seed, covers));
  fmt::print("{} cases\n", cases.size());

  // That the array covers what it claims to cover.
  std::set<std::string> seen;
  for (const Case& one : cases) seen.merge(words_of(one, covers));
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::string& word : words_served(generator::variant(GetParam()), dtype)) {
      if (word.starts_with("loss=") || (covers == Covers::options_dtypes && word == name(dtype))) continue;
      const std::string shown = covers == Covers::options ? word : fmt::format("{} {}", word, name(dtype));
      EXPECT_TRUE(seen.contains(shown)) << shown;
    }
  std::vector<Case> drawn;
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (is_drawn(seed, i, 3)) drawn.push_back(cases[i]);
  check(drawn);
}

INSTANTIATE_TEST_SUITE_P(HostNumerics, EveryVariant, testing::ValuesIn(variants_of_rows()),
                         [](const auto& test) { return std::string(test.param); });

/// 18 combinations, or with CE_FULL_TESTS 72, which the seed draws.
TEST_F(HostNumerics, SomeOfTheProductOfOptions) {
  const int parts = is_required("CE_FULL_TESTS") ? 64 : 256;
  check(of_few_rows(
      product_of_options(limits, seed, static_cast<int>(seed % static_cast<unsigned>(parts)), parts)));
}

/// g++ takes what clang refuses, such as a function whose return type is deduced further down.
TEST_F(HostNumerics, ClangCompilesKernelsToo) {
  const ScopedEnvironment compiler("CE_HOST_COMPILER", "clang++");
  device = runtime::open_host_device();
  try {
    fmt::print("{}\n", device->compiler());
  } catch (const Unsupported&) {
    GTEST_SKIP() << "no clang++";
  }
  const std::vector<Case> all = covering_cases("block", limits, seed, Covers::options);
  std::vector<Case> some;
  for (std::size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
  check(some);
}

TEST_F(HostNumerics, WideRows) {
  check({.operation = generator::Operation::cross_entropy,
         .dtype = DType::bf16,
         .reduction = Reduction::mean,
         .gradient = true,
         .in_place = true,
         .alignment = generator::Alignment::shifted,
         .rows = 64,
         .columns = 50257},
        4);
}

/// More rows than one block of the sums adds up. Whose rows these are makes no difference to the sums.
TEST_F(HostNumerics, ManyRows) {
  const generator::Config warp{.variant = "warp", .warps = 4, .vec = 1, .lanes = 8, .rows = 2};
  for (const bool gradient : {false, true})
    for (const bool weights : {false, true})
      check({Case{{.operation = generator::Operation::cross_entropy,
                   .reduction = Reduction::mean,
                   .gradient = gradient,
                   .weights = weights,
                   .has = {.z_loss = weights},
                   .alignment = generator::Alignment::element,
                   .rows = 9000,
                   .columns = 3},
                  warp}});
}

/// Shared memory has the logits as they were given: a cap makes something finite of what is put in the target's place there.
TEST_F(HostNumerics, TransposedRowsUnderACap) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int lanes : {1, 4}) {
      const int vec = 16 / static_cast<int>(size_of(dtype));
      cases.push_back({{.operation = generator::Operation::cross_entropy,
                        .dtype = dtype,
                        .has = {.softcap = true},
                        .rows = 150,
                        .columns = 2 * vec * lanes},
                       {.variant = "transpose", .warps = 2, .vec = vec, .lanes = lanes}});
    }
  check(cases);
}

TEST_F(HostNumerics, Streams) {
  for (const auto operation :
       {generator::Operation::copy, generator::Operation::read, generator::Operation::add})
    check({.operation = operation, .rows = 64, .columns = 4096}, 4);
}

}  // namespace
}  // namespace ce::test
