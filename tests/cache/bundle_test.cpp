// Decisions as a text: what is written is read, and what others changed is refused by line and field.
#include "cache/bundle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "cache/layers.hpp"
#include "cache/maintenance.hpp"
#include "cache/store.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/environment.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;
using ce::test::ScopedEnvironment;

BundledDecision a_decision(const Key& key, const std::string& config) {
  return {.key = key,
          .config = config,
          .template_digest = "0123456789abcdef0123456789abcdef",
          .compile_key = "of " + config,
          .why = "the fastest",
          .rows = 8,
          .bytes = 4096,
          .median_us = 12.5,
          .registers = 32};
}

std::string text_of(const Bundle& bundle) {
  std::ostringstream out;
  write_bundle(out, bundle);
  return out.str();
}

std::string why_refused(const std::string& text) {
  try {
    static_cast<void>(read_bundle(text, "b.jsonl"));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

class Bundles : public CacheTest {
 protected:
  Bundles() {
    Bundle bundle{
        .decisions = {a_decision({.problem = "b", .device = "Some GPU"}, "second"), a_decision(key, "third"),
                      a_decision({.problem = "z", .device = "A GPU"}, "first")},
        .binaries = {{"k2", as_bytes("xy")}, {"k1", as_bytes("abc")}, {"k3", {}}}};
    bundle.decisions[1].pinned = true;
    bundle.decisions[1].why = "same bits";
    bundle_ = bundle;
  }
  [[nodiscard]] fs::path path() const { return folder() / "b.jsonl"; }

  Bundle bundle_;
};

TEST_F(Bundles, AreSortedAndReadAsTheyWereWritten) {
  const std::string text = text_of(bundle_);
  std::reverse(bundle_.decisions.begin(), bundle_.decisions.end());
  std::reverse(bundle_.binaries.begin(), bundle_.binaries.end());
  EXPECT_EQ(text_of(bundle_), text) << "whatever the order";
  const Bundle read = read_bundle(text, "b.jsonl");
  EXPECT_EQ(text_of(read), text);
  ASSERT_EQ(read.decisions.size(), 3U);
  EXPECT_EQ(read.decisions[0].config, "first");
  EXPECT_TRUE(read.decisions[2].pinned);
  EXPECT_EQ(read.decisions[2].why, "same bits");
  ASSERT_EQ(read.binaries.size(), 3U);
  EXPECT_EQ(read.binaries[0].image, as_bytes("abc"));
  EXPECT_EQ(read.binaries[1].image, as_bytes("xy"));
  EXPECT_TRUE(read.binaries[2].image.empty());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8);
}

TEST_F(Bundles, EveryByteComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (std::size_t length : {1U, 2U, 3U, 4U, 255U, 256U}) {
    const auto image = as_bytes(std::string_view(all).substr(0, length));
    EXPECT_EQ(read_bundle(text_of({.decisions = {}, .binaries = {{"k", image}}}), "b").binaries.at(0).image,
              image);
  }
}

TEST_F(Bundles, WhatWasChangedIsRefusedByLineAndField) {
  using testing::HasSubstr;
  const std::string text = text_of(bundle_);
  EXPECT_THAT(why_refused(""), HasSubstr("b.jsonl is empty"));
  EXPECT_THAT(why_refused("{}\n"), HasSubstr("line 1 of b.jsonl"));
  EXPECT_THAT(why_refused(replaced(text, "\"version\":1", "\"version\":2")),
              HasSubstr("another version's bundle"));
  EXPECT_THAT(why_refused(text + text), HasSubstr("nothing after line 8"));
  EXPECT_THAT(why_refused(replaced(text, "\"config\":\"first\",", "")), HasSubstr("line 2 of b.jsonl"));
  EXPECT_THAT(why_refused(replaced(text, "\"rows\":8", "\"rows\":-1")),
              HasSubstr("line 2 of b.jsonl: rows is -1"));
  EXPECT_THAT(why_refused(replaced(text, "\"rows\":8", "\"rows\":1e300")), HasSubstr("rows"));
  EXPECT_THAT(why_refused(replaced(text, "\"median_us\":12.5", "\"median_us\":0")), HasSubstr("median_us"));
  EXPECT_THAT(why_refused(replaced(text, "\"median_us\":12.5", "\"median_us\":null")),
              HasSubstr("not pinned"));
  EXPECT_THAT(why_refused(replaced(text, "\"pinned\":true", "\"pinned\":3")), HasSubstr("line 4"));
  EXPECT_THAT(why_refused(replaced(text, "same bits", "")), HasSubstr("why"));
  EXPECT_THAT(why_refused(replaced(text, "A GPU", "Z GPU")), HasSubstr("out of order"));
  EXPECT_THAT(why_refused(replaced(text, "YWJj", "YW=j")), HasSubstr("Base64"));
  EXPECT_THAT(why_refused(replaced(text, "YWJj", "YWJ")), HasSubstr("Base64"));
  EXPECT_THAT(why_refused(replaced(text, "\"binaries\":3", "\"binaries\":2")), HasSubstr("line 8"));
  for (std::size_t length = 1; length < text.size() - 1; ++length)
    EXPECT_NE(why_refused(text.substr(0, length)), "") << "cut after " << length;
}

TEST_F(Bundles, ALayerSaysWhatTheBundleSays) {
  write_file(path(), text_of(bundle_));
  fs::permissions(path(), fs::perms(0600));
  const ScopedEnvironment site("CE_SITE_DB", path().string()), system("CE_SYSTEM_DB", "none");
  const Cache cache = Cache::open_layered(file());
  ASSERT_EQ(cache.lower().size(), 1U);
  const Layer& layer = cache.lower().front();
  EXPECT_EQ(layer.problem, "");
  EXPECT_EQ(layer.cache.keys().size(), 3U);
  EXPECT_EQ(layer.cache.measurements(key).at(0).config, "third");
  EXPECT_EQ(layer.cache.measurements(key).at(0).median_us, 12.5);
  EXPECT_EQ(layer.cache.pin(key).value().why, "same bits");
  EXPECT_FALSE(layer.cache.pin({.problem = "b", .device = "Some GPU"}));
  EXPECT_EQ(cache.binary("k1"), as_bytes("abc"));
}

TEST_F(Bundles, KernelsOfAFileThatOthersCanWriteAreLeftOut) {
  write_file(path(), text_of(bundle_));
  fs::permissions(path(), fs::perms(0666));
  const ScopedEnvironment site("CE_SITE_DB", path().string()), system("CE_SYSTEM_DB", "none");
  const Cache cache = Cache::open_layered(file());
  EXPECT_EQ(cache.lower().front().cache.keys().size(), 3U);
  EXPECT_FALSE(cache.binary("k1"));
}

TEST_F(Bundles, AChangedOneIsLeftOutWithItsLine) {
  write_file(path(), replaced(text_of(bundle_), "\"rows\":8", "\"rows\":-1"));
  const ScopedEnvironment site("CE_SITE_DB", path().string()), system("CE_SYSTEM_DB", "none");
  const Cache cache = Cache::open_layered(file());
  EXPECT_THAT(cache.lower().front().problem, testing::HasSubstr("line 2 of"));
  EXPECT_TRUE(cache.lower().front().cache.keys().empty());
  EXPECT_EQ(warnings("the database of CE_SITE_DB is not used"), 1U);
}

TEST_F(Bundles, OfTwoPinsTheLaterOneCountsInWhateverOrderTheyAreMerged) {
  const Pin first{.key = key, .config = "first", .why = "a", .created_at = "2030-01-01T00:00:00.000Z"};
  Pin second = first, taken_away = first;
  second.config = "second";
  second.created_at = "2030-01-02T00:00:00.000Z";
  taken_away.config = "";
  taken_away.created_at = "2030-01-03T00:00:00.000Z";
  const fs::path a = folder() / "a.db", b = folder() / "b.db", c = folder() / "c.db";
  EXPECT_TRUE(Maintenance::create(a).pin(first));
  EXPECT_TRUE(Maintenance::create(b).pin(second));
  EXPECT_FALSE(Maintenance::open(b).pin(first)) << "it is older";
  EXPECT_EQ(Cache::open_existing(a).pin(key).value().config, "first");
  for (const auto& [into, from] : {std::pair(c, a), std::pair(c, b), std::pair(a, b), std::pair(b, a)}) {
    std::vector<Maintenance> others;
    others.push_back(Maintenance::copy(from));
    static_cast<void>(Maintenance::create(into).merge(others, false));
  }
  for (const fs::path& path : {a, b, c})
    EXPECT_EQ(Cache::open_existing(path).pin(key).value().config, "second");
  EXPECT_TRUE(Maintenance::open(a).pin(taken_away));
  EXPECT_FALSE(Cache::open_existing(a).pin(key));
  EXPECT_TRUE(Maintenance::open(a).damages().empty());
}

TEST_F(Bundles, ADatabaseOfBeforePinsHasNone) {
  Cache::open(file()).add(a_measurement(key, "a"));
  EXPECT_EQ(sql_value(file(), "SELECT COUNT(*) FROM sqlite_master WHERE name = 'pins'"), "0");
  EXPECT_FALSE(Cache::open_existing(file()).pin(key));
}

TEST_F(Bundles, PinsOutliveARepair) {
  Cache::open(file()).add(a_measurement(key, "a"));
  Maintenance::open(file()).pin(
      {.key = key, .config = "a", .why = "b", .created_at = "2030-01-01T00:00:00.000Z"});
  sql(file(), "DROP TRIGGER measurements_refuse_update");
  EXPECT_FALSE(Maintenance::mend(file()).damages.empty());
  EXPECT_EQ(Cache::open_existing(file()).pin(key).value().config, "a");
}

}  // namespace
}  // namespace ce::cache::test
