// Every Variant, operation, option, dtype and alignment on the host device, with tails, strides, ignored rows
// and extreme values, against f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "covering.hpp"
#include "runtime/host/device.hpp"
#include "tuner/kernel.hpp"

namespace ce::test {
namespace {

/// Empty and full tails, fewer columns than lanes, one column, and more than one tile.
const std::vector<std::int64_t> widths{1000, 1, 33, 256, 1024, 7, 4099, 127, 2048, 31, 513};

TEST(HostNumerics, CoveringSetOfEveryVariant) {
  const auto device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const std::uint64_t seed = test_seed();
  const generator::Limits limits = tuner::limits_of(device->model());
  std::set<std::string> met;
  std::uint64_t turn = 0;
  for (const generator::Problem& problem : covering_problems(widths)) {
    for (const std::string& value :
         expect_right(*device, cache, problem, covering_configs(problem, limits, 2, turn++), seed))
      met.insert(value);
  }
  // That the set covers what it claims to cover.
  for (const char* variant : {"block", "online"})
    for (const char* value : {"load=ca", "load=cg", "load=cs", "store=wb", "store=cg", "store=cs", "store=wt",
                              "vec=1", "vec=4", "vec=8", "warps=1", "warps=8"})
      EXPECT_TRUE(met.contains(fmt::format("{} {}", variant, value))) << variant << " " << value;
}

/// Rows wide enough for several blocks and chunks, with and without tails.
TEST(HostNumerics, ClustersAndRings) {
  const auto device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const std::uint64_t seed = test_seed();
  const generator::Limits limits = tuner::limits_of(device->model());
  std::set<std::string> met;
  std::uint64_t turn = 0;
  for (generator::Problem problem : covering_problems({16384, 24579, 18944, 20001})) {
    if (problem.alignment == generator::Alignment::element || problem.loss_dtype != DType::f32) continue;
    std::vector<generator::Config> configs;
    for (const generator::Config& config : covering_configs(problem, limits, 4, turn++))
      if (config.cluster > 0) configs.push_back(config);
    for (const std::string& value : expect_right(*device, cache, problem, configs, seed)) met.insert(value);
  }
  for (const char* value : {"cluster cluster=1", "cluster cluster=2", "cluster cluster=3", "cluster store=cs",
                            "persistent cluster=1", "persistent cluster=2", "persistent stages=1",
                            "persistent stages=4", "persistent store=cs"})
    EXPECT_TRUE(met.contains(value)) << value;
}

TEST(HostNumerics, WideRows) {
  const auto device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const std::uint64_t seed = test_seed();
  const generator::Limits limits = tuner::limits_of(device->model());
  const generator::Problem wide{.operation = generator::Operation::cross_entropy,
                                .dtype = DType::bf16,
                                .reduction = Reduction::mean,
                                .gradient = true,
                                .in_place = true,
                                .alignment = generator::Alignment::shifted,
                                .rows = 64,
                                .columns = 50257};
  expect_right(*device, cache, wide, covering_configs(wide, limits, 2, 0), seed);
}

/// More rows than one block of the final sum adds up.
TEST(HostNumerics, ManyRows) {
  const auto device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const std::uint64_t seed = test_seed();
  for (const bool gradient : {false, true}) {
    const generator::Problem problem{.operation = generator::Operation::cross_entropy,
                                     .reduction = Reduction::mean,
                                     .gradient = gradient,
                                     .alignment = generator::Alignment::shifted,
                                     .rows = 9000,
                                     .columns = 3};
    expect_right(*device, cache, problem, covering_configs(problem, tuner::limits_of(device->model()), 1, 0),
                 seed);
  }
}

TEST(HostNumerics, Streams) {
  const auto device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const std::uint64_t seed = test_seed();
  for (const auto operation : {generator::Operation::copy, generator::Operation::read}) {
    const generator::Problem problem{.operation = operation, .rows = 64, .columns = 4096};
    expect_right(*device, cache, problem, covering_configs(problem, tuner::limits_of(device->model()), 4, 0),
                 seed);
  }
}

}  // namespace
}  // namespace ce::test
