// Binaries of a config: what is compiled, what is kept, and what a database has.
#include "tuner/kernel.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "runtime/host/device.hpp"
#include "tests/tuner/device_decorator.hpp"

namespace ce::test {
namespace {

/// Whose binaries are the names of what was compiled.
class NamingDevice : public DeviceDecorator {
 public:
  NamingDevice() : DeviceDecorator(runtime::open_host_device()) {}
  runtime::Binary compile(const runtime::CompileRequest& request) override {
    compiled.push_back(request.name);
    const auto* data = reinterpret_cast<const std::byte*>(request.name.data());
    return {.image = {data, data + request.name.size()}, .log = {}};
  }

  std::vector<std::string> compiled;
};

/// Its losses are added up by a kernel of their own, which all configs share.
const generator::Problem of_two_sources{.operation = generator::Operation::cross_entropy,
                                        .reduction = Reduction::mean,
                                        .rows = 64,
                                        .columns = 1024};

TEST(Build, WhatConfigsShareIsCompiledOnce) {
  NamingDevice device;
  cache::Cache cache = cache::Cache::in_memory();
  const auto build = [&](const char* config) {
    return tuner::build(device, cache, of_two_sources, generator::parse_config(config));
  };
  const tuner::Built one = build("block/warps=8,vec=4,load=ca,store=wb");
  EXPECT_EQ(one.images.size(), 2U);
  EXPECT_EQ(one.compiled, 2);
  EXPECT_EQ(build("block/warps=4,vec=4,load=ca,store=wb").compiled, 1);
  EXPECT_EQ(build("block/warps=8,vec=4,load=ca,store=wb").compiled, 1) << "its own is kept by keep()";
  tuner::keep(cache, one);
  EXPECT_EQ(build("block/warps=8,vec=4,load=ca,store=wb").compiled, 0);
  EXPECT_EQ(device.compiled.size(), 4U);
}

TEST(FindBuilt, HasABinaryOfEachSource) {
  NamingDevice device;
  cache::Cache cache = cache::Cache::in_memory();
  const generator::Config config = generator::parse_config("block/warps=8,vec=4,load=ca,store=wb");
  const tuner::Built built = tuner::build(device, cache, of_two_sources, config);
  tuner::keep(cache, built);
  const auto found = tuner::find_built(cache, of_two_sources, config, built.compile_key());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->images, built.images);
  EXPECT_EQ(found->compiled, 0);
  const std::string &row = built.keys[0], &sums = built.keys[1];
  for (const std::string& key : {std::string(), row, sums, row + " " + sums + " " + sums, row + " none"})
    EXPECT_FALSE(tuner::find_built(cache, of_two_sources, config, key)) << key;
}

}  // namespace
}  // namespace ce::test
