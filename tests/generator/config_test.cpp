#include "generator/config.hpp"

#include <algorithm>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ce/base/error.hpp"
#include "generator/variant.hpp"

namespace ce::generator {
namespace {

TEST(Config, TextFormRoundTripsOverEveryPointOfEverySpace) {
  for (const Variant& variant : variants())
    for (const Config& config : variant.points()) {
      SCOPED_TRACE(to_text(config));
      EXPECT_EQ(parse_config(to_text(config)), config);
    }
}

TEST(Config, TextFormIsWhatPeopleType) {
  const Config config{.variant = "block", .warps = 16, .vec = 8, .load = 2, .store = 2};
  EXPECT_EQ(to_text(config), "block/warps=16,vec=8,load=cs,store=cs");
}

struct Malformed {
  const char* text;
  const char* expected;  ///< part of what the error says
};

TEST(Config, MalformedTextNamesThePart) {
  const Malformed cases[] = {
      {"", "one of block"},
      {"nothing/warps=1", "one of block"},
      {"block", "\"warps=\" too"},
      {"block/warps=16,vec=8,load=cs", "\"store=\" too"},
      {"block/vec=8,warps=16,load=cs,store=cs", "\"warps=\" instead of \"vec\""},
      {"block/warps=0,vec=8,load=cs,store=cs", "a value of \"warps\""},
      {"block/warps=x,vec=8,load=cs,store=cs", "not \"x\""},
      {"block/warps=16,vec=8,load=wb,store=cs", "a value of \"load\""},
      {"block/warps=16,vec=8,load=cs,store=cs,more=1", "nothing after"},
  };
  for (const auto& [text, expected] : cases) try {
      const Config config = parse_config(text);
      ADD_FAILURE() << text << " was taken for " << to_text(config);
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << text << ": " << error.what();
    }
}

Problem softmax(DType dtype, std::int64_t columns, Alignment alignment = Alignment::vector) {
  return {.dtype = dtype, .alignment = alignment, .rows = 64, .columns = columns};
}

/// The constraints are what keeps a compiler from being asked for nonsense.
TEST(Space, ConstraintsRemoveImpossiblePoints) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t columns : {1, 31, 128, 1000, 4096, 50257, 128256, 262144})
      for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element})
        for (const Config& config : space(softmax(dtype, columns, alignment), {.capability = 90})) {
          SCOPED_TRACE(to_text(config));
          EXPECT_LE(config.warps, 32);
          EXPECT_LE(config.vec * size_of(dtype), 16);
          if (alignment == Alignment::element) {
            EXPECT_EQ(config.vec, 1);
          }
          if (config.variant == "online") {
            EXPECT_EQ(config.tile % (32 * config.warps * config.vec), 0);
          }
          if (config.variant == "block") {
            const auto held = (columns + 32 * config.warps - 1) / (32 * config.warps) * size_of(dtype) / 4;
            EXPECT_LE(held * 32 * config.warps, 65536) << "the row does not fit into the registers";
          }
        }
}

TEST(Space, EveryProblemHasConfigsOfEveryWidth) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (std::int64_t columns = 1; columns < (1 << 20); columns = columns * 3 / 2 + 1)
      for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element}) {
        const Problem problem = softmax(dtype, columns, alignment);
        SCOPED_TRACE(title(problem));
        EXPECT_FALSE(space(problem, {.capability = 75}).empty());
        const Config config = safe_default(problem, {.capability = 75});
        EXPECT_FALSE(variant(config.variant).rejects(config, problem, {.capability = 75}));
      }
}

TEST(Space, NamesTheAxesThatTheProductPromises) {
  std::map<std::string, std::set<std::string>> values;
  for (const Variant& variant : variants())
    if (!variant.serves({.operation = Operation::copy}))
      for (const Config& config : variant.points())
        for (const Axis* axis : variant.axes())
          values[std::string(axis->name)].insert(value_text(*axis, config.*axis->value));
  EXPECT_EQ(values["load"], (std::set<std::string>{"ca", "cg", "cs"}));
  EXPECT_EQ(values["store"], (std::set<std::string>{"wb", "cg", "cs", "wt"}));
  EXPECT_EQ(values["warps"], (std::set<std::string>{"1", "2", "4", "8", "16", "32"}));
  EXPECT_TRUE(std::ranges::includes(values["tile"],
                                    std::set<std::string>{"1024", "2048", "256", "4096", "512", "8192"}));
}

TEST(Space, ALossAloneHasNoStoreAxis) {
  const Problem loss{.operation = Operation::cross_entropy, .rows = 64, .columns = 4096};
  for (const Config& config : space(loss, {.capability = 90})) EXPECT_EQ(config.store, 0);
}

}  // namespace
}  // namespace ce::generator
