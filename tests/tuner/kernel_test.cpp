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
  const generator::Program one = build("block/warps=8,vec=4,load=ca,store=wb");
  ASSERT_EQ(one.sources.size(), 2U);
  for (const generator::Source& source : one.sources) EXPECT_FALSE(source.binary.empty()) << source.name;
  EXPECT_EQ(one.compiled, 2);
  EXPECT_EQ(build("block/warps=4,vec=4,load=ca,store=wb").compiled, 1);
  EXPECT_EQ(build("block/warps=8,vec=4,load=ca,store=wb").compiled, 1) << "its own is kept by keep()";
  tuner::keep(cache, one.sources);
  EXPECT_EQ(build("block/warps=8,vec=4,load=ca,store=wb").compiled, 0);
  EXPECT_EQ(device.compiled.size(), 4U);
}

TEST(FindBuilt, HasABinaryOfEachSource) {
  NamingDevice device;
  cache::Cache cache = cache::Cache::in_memory();
  const generator::Config config = generator::parse_config("block/warps=8,vec=4,load=ca,store=wb");
  const generator::Program built = tuner::build(device, cache, of_two_sources, config);
  tuner::keep(cache, built.sources);
  const auto found = tuner::find_built(cache, of_two_sources, config, built.compile_key());
  ASSERT_TRUE(found);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found->sources.at(i).binary, built.sources.at(i).binary);
    EXPECT_EQ(found->sources.at(i).compile_key, built.sources.at(i).compile_key);
  }
  EXPECT_EQ(found->compile_key(), built.compile_key());
  EXPECT_EQ(found->compiled, 0);
  const std::string &row = built.sources[0].compile_key, &sums = built.sources[1].compile_key;
  for (const std::string& key : {std::string(), row, sums, row + " " + sums + " " + sums, row + " none"})
    EXPECT_FALSE(tuner::find_built(cache, of_two_sources, config, key)) << key;
}

}  // namespace
}  // namespace ce::test
