#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

using generator::Problem;
using nlohmann::json;
using test::Finished;

constexpr const char* device = "Some GPU|cc=90|sm=132";

const Problem softmax{
    .operation = generator::Operation::softmax, .dtype = DType::bf16, .rows = 8192, .columns = 4096};

/// A database in which the second of three configs won, a fourth is out, and a fifth belongs to other
/// templates.
class DatabaseCommands : public test::CommandTest {
 protected:
  DatabaseCommands() : cache_(cache::Cache::open(database())) {
    const std::vector<generator::Config> space = generator::space(softmax, {.capability = 90});
    for (std::size_t i = 0; i < 5; ++i)
      configs_.push_back(generator::to_text(space.at(i * space.size() / 5)));
    for (const std::size_t i : {0U, 1U, 2U, 3U, 4U}) cache_.add(measurement(i));
  }

  cache::Measurement measurement(std::size_t index) const {
    cache::Measurement measurement{.key = key(),
                                   .config = configs_.at(index),
                                   .compile_key = "of " + configs_.at(index),
                                   .stage = 1,
                                   .rows = 8192,
                                   .bytes = generator::traffic(softmax).total(),
                                   .samples_us = {60, 60, 60},
                                   .median_us = index == 1 ? 45.0 : 60.0 + static_cast<double>(index),
                                   .spread = 0.01,
                                   .registers = 40,
                                   .evidence = {{"uuid", "GPU-1"}, {"driver", "580.1"}}};
    const std::string variant = measurement.config.substr(0, measurement.config.find('/'));
    measurement.template_digest =
        index == 4 ? "older" : generator::template_digest(softmax.operation, variant);
    if (index == 3) {
      measurement.outcome = cache::Outcome::quarantined;
      measurement.reason = "wrong answer: row 3\nand a second line";
      measurement.median_us = 0;
      measurement.samples_us.clear();
    }
    return measurement;
  }

  cache::Key key() const { return {generator::key_text(softmax), device}; }
  std::string id() const { return key().id(); }
  std::string winner() const { return configs_.at(1); }
  json document(std::vector<std::string> words) const {
    words.insert(words.end(), {"--db", database(), "--json"});
    const Finished finished = ce_tune(words);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return json::parse(finished.out);
  }
  Finished text(std::vector<std::string> words) const {
    words.insert(words.end(), {"--db", database()});
    return ce_tune(words);
  }

  cache::Cache cache_;
  std::vector<std::string> configs_;
};

TEST_F(DatabaseCommands, ListShowsEachProblemWithItsWinner) {
  const Finished finished = text({"db", "list"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  for (const std::string& part : {std::string("Some GPU\n"), id(), std::string("softmax bf16 8192 x 4096"),
                                  winner(), std::string("45.00 us"), "1 key in " + database()})
    EXPECT_NE(finished.out.find(part), std::string::npos) << part << " is not in\n" << finished.out;

  const json keys = document({"db", "list"}).at("keys");
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0].at("key"), id());
  EXPECT_EQ(keys[0].at("device"), "Some GPU");
  EXPECT_EQ(keys[0].at("problem").at("columns"), 4096);
  EXPECT_EQ(keys[0].at("winner").at("config"), winner());
  EXPECT_EQ(keys[0].at("configs"), 5);
  EXPECT_EQ(keys[0].at("quarantined"), 1);
  EXPECT_EQ(keys[0].at("measurements"), 5);
}

TEST_F(DatabaseCommands, ListOfADeviceLeavesOutTheOthers) {
  EXPECT_TRUE(document({"db", "list", "--device", "host"}).at("keys").empty());
}

TEST_F(DatabaseCommands, KeysOfOtherVersionsAreListedAndShown) {
  cache::Measurement other = measurement(0);
  other.key.problem = "softmax of the future";
  cache_.add(other);
  const json keys = document({"db", "list"}).at("keys");
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_TRUE(keys[1].at("problem").is_null());
  EXPECT_EQ(text({"db", "show", other.key.id()}).status, 0);
  const Finished source = text({"source", other.key.id()});
  EXPECT_EQ(source.status, 2);
  EXPECT_NE(source.err.find("softmax of the future"), std::string::npos) << source.err;
}

TEST_F(DatabaseCommands, ShowTellsWhatWasTriedAndWhyTheWinnerWon) {
  const Finished finished = text({"db", "show", id().substr(0, 4)});
  EXPECT_EQ(finished.status, 0) << finished.err;
  for (const std::string& part :
       {winner(), configs_[0], configs_[2], configs_[3], std::string("wrong answer: row 3"),
        std::string("ahead of"), std::string("GPU-1"),
        std::string("1 measurement with templates of other versions")})
    EXPECT_NE(finished.out.find(part), std::string::npos) << part << " is not in\n" << finished.out;
  EXPECT_EQ(finished.out.find("second line"), std::string::npos);

  const json shown = document({"db", "show", id()});
  EXPECT_EQ(shown.at("winner"), winner());
  EXPECT_FALSE(shown.at("reason").get<std::string>().empty());
  EXPECT_EQ(shown.at("ranking"), (json{configs_[1], configs_[0], configs_[2]}));
  ASSERT_EQ(shown.at("measurements").size(), 5U);
  EXPECT_EQ(shown.at("measurements")[0].at("samples_us").size(), 3U);
  EXPECT_EQ(shown.at("measurements")[0].at("evidence").at("driver"), "580.1");
  EXPECT_EQ(shown.at("measurements")[3].at("outcome"), "quarantined");
  EXPECT_EQ(shown.at("measurements")[4].at("current"), false);
}

TEST_F(DatabaseCommands, KeysAreNamedByPrefixes) {
  EXPECT_EQ(text({"db", "show", "abc"}).status, 2);
  EXPECT_EQ(text({"db", "show", "not hexadecimal"}).status, 2);
  const std::string absent = id().substr(0, 4) == "0000" ? "1111" : "0000";
  const Finished unknown = text({"db", "show", absent});
  EXPECT_EQ(unknown.status, 8);
  EXPECT_NE(unknown.err.find(id()), std::string::npos) << unknown.err;
}

TEST_F(DatabaseCommands, AnAmbiguousPrefixListsItsKeys) {
  // Some two of this many keys begin with the same four digits, and with fixed texts always the same two.
  cache::Measurement other = measurement(0);
  std::map<std::string, std::string> ids{{id().substr(0, 4), id()}};
  std::string first, second;
  for (int number = 0; second.empty(); ++number) {
    other.key.device = "GPU " + std::to_string(number);
    const auto [known, added] = ids.emplace(other.key.id().substr(0, 4), other.key.id());
    if (added) continue;
    first = known->second;
    second = other.key.id();
    cache_.add(other);
    for (int earlier = 0; earlier < number; ++earlier) {
      other.key.device = "GPU " + std::to_string(earlier);
      if (other.key.id() == first) cache_.add(other);
    }
  }
  const Finished finished = text({"db", "show", first.substr(0, 4)});
  EXPECT_EQ(finished.status, 2);
  EXPECT_NE(finished.err.find(first), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find(second), std::string::npos) << finished.err;
  EXPECT_EQ(text({"db", "show", second}).status, 0);
}

TEST_F(DatabaseCommands, SourceOfAKeyIsThatOfItsWinner) {
  const generator::Source expected =
      generator::generate(softmax, generator::parse_config(winner())).sources.front();
  const Finished plain = text({"source", id()});
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(plain.out, expected.text);
  EXPECT_NE(plain.err.find("the winner"), std::string::npos) << plain.err;
  EXPECT_EQ(text({"source", id(), "--flat"}).out, expected.flat());

  const json shown = document({"source", id(), "--config", configs_[2]});
  EXPECT_EQ(shown.at("config"), configs_[2]);
  EXPECT_EQ(shown.at("sources")[0].at("text"),
            generator::generate(softmax, generator::parse_config(configs_[2])).sources.front().text);
  EXPECT_EQ(shown.at("sources")[0].at("headers").size(), expected.headers.size());
  EXPECT_EQ(shown.at("steps")[0].at("entry"), "ce_row");
  EXPECT_EQ(text({"source", id(), "--config", "block/warps=16"}).status, 2);
  EXPECT_EQ(text({"source", id(), "--op", "softmax"}).status, 2);
}

TEST_F(DatabaseCommands, SourceOfAProblemNeedsNoDatabase) {
  const std::vector<std::string> problem{"source", "--op", "softmax", "--dtype", "bf16", "--cols", "4096"};
  const auto with = [&problem](std::vector<std::string> more) {
    more.insert(more.begin(), problem.begin(), problem.end());
    return more;
  };
  const Finished named = ce_tune(with({"--config", winner()}));
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(named.out, generator::generate(softmax, generator::parse_config(winner())).sources.front().text);

  const Finished chosen = ce_tune(with({"--device", "host"}));
  EXPECT_EQ(chosen.status, 0) << chosen.err;
  EXPECT_NE(chosen.err.find("before anything was measured"), std::string::npos) << chosen.err;

  const Finished configs = ce_tune(with({"--device", "host", "--list", "--json"}));
  const json listed = json::parse(configs.out).at("configs");
  EXPECT_EQ(listed.size(), generator::space(softmax, {.shared_bytes_per_block = 227 * 1024}).size());
  EXPECT_EQ(ce_tune({"source", "--op", "softmax"}).status, 2);
}

}  // namespace
}  // namespace ce::cli
