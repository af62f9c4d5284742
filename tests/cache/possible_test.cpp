// What others hand over as measurements: nothing that cannot be is taken, and no text breaks who reads it.
#include "cache/possible.hpp"

#include <SQLiteCpp/Database.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/bounded_json.hpp"
#include "base/digest.hpp"
#include "cache/codec.hpp"
#include "cache/export.hpp"
#include "cache/layers.hpp"
#include "cache/maintenance.hpp"
#include "ce/error.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/environment.hpp"

namespace ce::cache::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr int most = std::numeric_limits<int>::max();

struct Impossible {
  std::string field;
  std::function<void(Measurement&)> make;
};

const std::vector<Impossible>& impossible_ones() {
  static const std::vector<Impossible> all{
      {"median_us", [](Measurement& m) { m.median_us = 0; }},
      {"median_us", [](Measurement& m) { m.median_us = -1; }},
      {"median_us", [](Measurement& m) { m.median_us = nan; }},
      {"median_us", [](Measurement& m) { m.median_us = infinite; }},
      {"median_us", [](Measurement& m) { m.median_us = 5e-324; }},
      {"median_us", [](Measurement& m) { m.median_us = 1e300; }},
      {"spread", [](Measurement& m) { m.spread = -0.1; }},
      {"spread", [](Measurement& m) { m.spread = 1e300; }},
      {"samples_us", [](Measurement& m) { m.samples_us.clear(); }},
      {"samples_us", [](Measurement& m) { m.samples_us[1] = 0; }},
      {"samples_us", [](Measurement& m) { m.samples_us[1] = -1; }},
      {"samples_us", [](Measurement& m) { m.samples_us[1] = std::numeric_limits<float>::quiet_NaN(); }},
      {"samples_us", [](Measurement& m) { m.samples_us[1] = std::numeric_limits<float>::max(); }},
      {"rows", [](Measurement& m) { m.rows = 0; }},
      {"rows", [](Measurement& m) { m.rows = -1; }},
      {"rows", [](Measurement& m) { m.rows = most; }},
      {"rows", [](Measurement& m) { m.rows = std::numeric_limits<std::int64_t>::max(); }},
      {"bytes", [](Measurement& m) { m.bytes = 0; }},
      {"bytes", [](Measurement& m) { m.bytes = std::numeric_limits<std::int64_t>::max(); }},
      {"stage", [](Measurement& m) { m.stage = most; }},
      {"stage", [](Measurement& m) { m.stage = 2; }},
      {"stage", [](Measurement& m) { m.stage = -2; }},
      {"registers", [](Measurement& m) { m.registers = -1; }},
      {"registers", [](Measurement& m) { m.registers = most; }},
      {"local_bytes", [](Measurement& m) { m.local_bytes = -1; }},
      {"local_bytes", [](Measurement& m) { m.local_bytes = most; }},
      {"config", [](Measurement& m) { m.config.clear(); }},
      {"config", [](Measurement& m) { m.config = std::string(100'000, 'x'); }},
      {"problem", [](Measurement& m) { m.key.problem.clear(); }},
      {"created_at", [](Measurement& m) { m.created_at = "2030-13-01T00:00:00.000Z"; }},
      {"created_at", [](Measurement& m) { m.created_at = "2030-01-01T24:00:00.000Z"; }},
      {"created_at", [](Measurement& m) { m.created_at = "12000-01-01T00:00:00.000Z"; }},
      {"created_at", [](Measurement& m) { m.created_at = "1969-12-31T23:59:59.-01Z"; }},
      {"created_at", [](Measurement& m) { m.created_at = std::string(100'000, '1'); }},
  };
  return all;
}

/// An export of these, whole in all else.
std::string lines_of(const std::vector<std::string>& lines) {
  std::string text = "{\"format\":\"ce measurements\",\"version\":1}\n", identities;
  for (const std::string& line : lines) {
    text += line + "\n";
    identities += digest({line});
  }
  return text + nlohmann::json{{"measurements", lines.size()}, {"digest", digest({identities})}}.dump() +
         "\n";
}

/// The message of the refusal; empty where the text was taken.
std::string refusal_of(const std::string& text) {
  std::istringstream in(text);
  try {
    static_cast<void>(read_export(in, "export.jsonl"));
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

std::string with(std::string line, const std::string& text, const std::string& other) {
  const std::size_t at = line.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  return line.replace(at, text.size(), other);
}

class PossibleTest : public CacheTest {
 protected:
  const Measurement good_ = a_measurement(key, "config");
  const std::string line_ = to_json(good_);
};

TEST_F(PossibleTest, WhatASearchWritesCanBe) {
  EXPECT_EQ(why_impossible(good_), "");
  Measurement check = good_, rejected = good_, odd = good_;
  check.stage = stage_of_checks;
  rejected.outcome = Outcome::quarantined;
  rejected.reason = "does not compile";
  rejected.samples_us.clear();
  rejected.rows = rejected.bytes = 0;
  rejected.median_us = rejected.spread = 0;
  odd.spread = nan;
  odd.rows = 1;
  odd.samples_us = {0.5F};
  for (const Measurement& m : {check, rejected, odd}) EXPECT_NO_THROW(expect_possible(m));
  EXPECT_EQ(refusal_of(shipped_winners()), "");
}

TEST_F(PossibleTest, AnImportNamesLineFieldValueAndExpectation) {
  for (const Impossible& one : impossible_ones()) {
    Measurement m = good_;
    one.make(m);
    EXPECT_THAT(refusal_of(lines_of({line_, to_json(m)})),
                HasSubstr("line 3 of export.jsonl: " + one.field + " is "));
  }
  EXPECT_EQ(refusal_of(lines_of({with(line_, "\"stage\":1", "\"stage\":2147483647")})),
            "line 2 of export.jsonl: stage is 2147483647; expected -1 to 1");
  EXPECT_EQ(refusal_of(lines_of({with(line_, "\"median_us\":2.5", "\"median_us\":-2.5")})),
            "line 2 of export.jsonl: median_us is -2.5; expected 0.001 to 10000000000 us");
}

TEST_F(PossibleTest, ANameIsThereOnce) {
  EXPECT_EQ(refusal_of(lines_of({with(line_, "\"stage\":1", "\"stage\":0,\"stage\":1")})),
            "line 2 of export.jsonl: stage is given twice; expected each name only once in an object");
  EXPECT_THAT(
      refusal_of(lines_of({with(line_, "\"host\":\"here\"", "\"host\":\"here\",\"host\":\"there\"")})),
      HasSubstr("line 2 of export.jsonl: host is given twice"));
  EXPECT_EQ(refusal_of(lines_of({line_, line_})), "") << "other objects have the same names";
}

TEST_F(PossibleTest, NestingAndLengthAreBounded) {
  constexpr int levels = 87'500;
  const std::string deep = std::string(levels, '[') + std::string(levels, ']');
  for (const std::string field :
       {"\"bytes\":1048576", "\"rows\":1024", "\"stage\":1", "\"median_us\":2.5", "\"spread\":0.25",
        "\"registers\":32", "\"local_bytes\":0", "\"created_at\":\"2030-01-01T00:00:00.000Z\"",
        "\"host\":\"here\"", "\"outcome\":\"measured\""})
    EXPECT_EQ(refusal_of(lines_of({with(line_, field, field.substr(0, field.find(':') + 1) + deep)})),
              "line 2 of export.jsonl: JSON is nested 17 levels deep; expected 16 at most");
  EXPECT_THAT(refusal_of(lines_of({with(line_, "[1.5,", "[" + deep + ",")})),
              HasSubstr("nested 17 levels deep"));
  EXPECT_THAT(refusal_of(lines_of({std::string(levels, '[')})), HasSubstr("nested 17 levels deep"));
  const std::string endless = "{\"format\":\"ce measurements\",\"version\":1}\n" + std::string(17 << 20, ' ');
  EXPECT_THAT(refusal_of(endless), HasSubstr("line 2 of export.jsonl is too long; expected 16777216 bytes"));
}

TEST_F(PossibleTest, LinesMayEndWhereverAReadDoes) {
  constexpr std::size_t at_once = std::size_t{1} << 20;  // export.cpp
  const std::size_t first = lines_of({}).find('\n') + 1;
  for (const std::size_t end : {at_once - 1, at_once, at_once + 1, 2 * at_once, 3 * at_once + 1}) {
    Measurement m = good_;
    m.reason = std::string(end - first - line_.size() - 1, 'x');
    std::string text = lines_of({to_json(m), line_});
    EXPECT_EQ(text[end - 1], '\n');
    EXPECT_EQ(refusal_of(text), "") << end;
    text.pop_back();
    EXPECT_EQ(refusal_of(text), "") << end;
    EXPECT_THAT(refusal_of(text.substr(0, end)),
                HasSubstr("line 2 of export.jsonl is the last line, but not the end of an export"));
    EXPECT_THAT(refusal_of(text.substr(0, end + 5)),
                HasSubstr("line 3 of export.jsonl is the last line, but not the end of an export"));
    EXPECT_THAT(refusal_of(text.replace(end, 2, "[,")),
                HasSubstr("line 3 of export.jsonl is not a measurement"));
    text[first] = '[';
    EXPECT_THAT(refusal_of(text), HasSubstr("line 2 of export.jsonl is not a measurement"));
  }
}

TEST_F(PossibleTest, TextsAreWrittenAsTheLibraryWritesThem) {
  constexpr int characters = 256;
  for (const std::size_t length : {1U, 7U, 8U, 9U, 16U, 17U})
    for (std::size_t at = 0; at < length; ++at)
      for (int c = 0; c < characters; ++c) {
        std::string text(length, '~');
        text[at] = static_cast<char>(c);
        const std::map<std::string, std::string> environment{{"name", text}};
        ASSERT_EQ(encode_environment(environment),
                  nlohmann::json(environment).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      }
}

TEST_F(PossibleTest, LinesOfAnyLengthAreRead) {
  for (const std::size_t more : {std::size_t{0}, std::size_t{16'383}, std::size_t{40'000}}) {
    std::vector<std::string> lines;
    for (std::size_t length = more; length < more + 3; ++length) {
      Measurement m = good_;
      m.environment["text"] = std::string(length, 'x');
      lines.push_back(to_json(m));
    }
    EXPECT_EQ(refusal_of(lines_of(lines)), "");
  }
}

TEST_F(PossibleTest, JsonWithinItsBoundsIsRead) {
  const JsonBounds bounds{.most_bytes = 32, .most_depth = 2};
  using nlohmann::json;
  EXPECT_EQ(parse_json<json>(R"({"a":[1],"b":{"a":2}})", bounds).dump(), R"({"a":[1],"b":{"a":2}})");
  EXPECT_THROW(static_cast<void>(parse_json<json>("[[[]]]", bounds)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(parse_json<json>(R"([{"a":1,"a":1}])", bounds)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(parse_json<json>(std::string(33, ' '), bounds)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(parse_json<json>("[", bounds)), json::parse_error);
}

TEST_F(PossibleTest, AnEnvironmentThatIsNestedDeeplyIsUnreadable) {
  constexpr int levels = 87'500;
  EXPECT_THROW(static_cast<void>(
                   decode_environment("{\"a\":" + std::string(levels, '[') + std::string(levels, ']') + "}")),
               std::exception);
}

TEST_F(PossibleTest, AMergeNamesFileFieldValueAndExpectation) {
  const fs::path other = folder() / "other.db";
  const auto merge = [&] {
    const Maintenance source = Maintenance::copy(other);
    return Maintenance::create(file()).merge({&source, 1}, false).front().measurements;
  };
  for (const Impossible& one : impossible_ones()) {
    Measurement m = good_;
    one.make(m);
    fs::remove(other);
    for (const char* log : {"-wal", "-shm"}) fs::remove(other.string() + log);
    Cache::open(other).add(m);
    try {
      merge();
      ADD_FAILURE() << one.field << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("other.db: " + one.field + " of a measurement of "));
    }
  }
  EXPECT_EQ(Cache::open(file()).status().measurements, 0);
  fs::remove(other);
  Cache::open(other).add(good_);
  EXPECT_EQ(merge(), 1);
}

/// SQLite would keep another number, which is not what the identity says.
TEST_F(PossibleTest, NegativeZerosCannotBe) {
  Measurement spread = good_, median = good_;
  spread.spread = -0.0;
  EXPECT_THAT(why_impossible(spread), HasSubstr("spread"));
  median.outcome = Outcome::quarantined;
  median.samples_us.clear();
  median.median_us = 0;
  EXPECT_EQ(why_impossible(median), "");
  median.median_us = -0.0;
  EXPECT_THAT(why_impossible(median), HasSubstr("median_us"));
}

TEST_F(PossibleTest, ALayerServesNoneThatCannotBe) {
  const fs::path site = folder() / "site.db";
  Measurement forged = a_measurement(key, "forged");
  forged.median_us = -0.5;
  {
    Cache cache = Cache::open(site);
    cache.add(std::vector<Measurement>{good_, forged});
  }
  const ce::test::ScopedEnvironment at_site("CE_SITE_DB", site.string()), none("CE_SYSTEM_DB", "none");
  const Cache cache = Cache::open_layered(file());
  const Cache& layer = cache.lower().front().cache;
  ASSERT_EQ(layer.measurements(key).size(), 1U);
  std::vector<std::string> offered;
  const auto found =
      layer.final_of(key, std::vector<std::string>{"templates"}, [&](std::vector<Finalist>& list) {
        for (const Finalist& one : list) offered.push_back(one.config);
        return list.empty() ? nullptr : &list.front();
      });
  EXPECT_EQ(offered, std::vector<std::string>{"config"});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->config, "config");
}

}  // namespace
}  // namespace ce::cache::test
