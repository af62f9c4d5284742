#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "generator/config.hpp"
#include "tests/cli/db_fixture.hpp"
#include "tests/environment.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

using test::softmax;

/// A database in which the second of three configs won, a fourth is out, and a fifth belongs to other
/// templates.
class DatabaseCommands : public test::DatabaseTest {
 protected:
  DatabaseCommands() {
    for (const std::size_t i : {0U, 1U, 2U})
      cache_.add(measurement(i, i == 1 ? 45 : 60.0 + static_cast<double>(i)));
    cache::Measurement wrong = measurement(3, 0);
    wrong.outcome = cache::Outcome::quarantined;
    wrong.reason = "wrong answer: row 3\nand a second line";
    wrong.samples_us.clear();
    cache_.add(wrong);
    cache::Measurement older = measurement(4, 64);
    older.template_digest = "older";
    cache_.add(older);
  }

  std::string winner() const { return configs_.at(1); }
};

TEST_F(DatabaseCommands, ListShowsEachProblemWithItsWinner) {
  const Finished finished = text({"db", "list"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  for (const std::string& part : {std::string("Some GPU\n"), id(), std::string("softmax bf16 8192 x 4096"),
                                  winner(), std::string("45.0"), "1 key in " + database()})
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

TEST_F(DatabaseCommands, ListOfLayersShowsTheNearestThatKnows) {
  cache::Measurement better = measurement(0, 30);
  {
    cache::Cache site = cache::Cache::open(folder() / "site.db");
    site.add(better);
    better.key.problem =
        generator::key_text({.operation = generator::Operation::softmax, .rows = 64, .columns = 512});
    site.add(better);
  }
  const ce::test::ScopedEnvironment site("CE_SITE_DB", path("site.db")), system("CE_SYSTEM_DB", "none");
  const json document = this->document({"db", "list", "--layers"});
  ASSERT_EQ(document.at("keys").size(), 2U);
  for (const json& key : document.at("keys")) {
    const bool own = key.at("key") == id();
    EXPECT_EQ(key.at("layer"), own ? "user" : "site");
    EXPECT_EQ(key.at("winner").at("config"), own ? winner() : configs_.at(0));
  }
  ASSERT_EQ(document.at("layers").size(), 2U);
  EXPECT_EQ(document.at("layers")[1].at("place"), path("site.db"));
  EXPECT_EQ(text({"db", "list"}).out.find("site"), std::string::npos);
  EXPECT_NE(text({"db", "list", "--layers"}).out.find("site    " + path("site.db")), std::string::npos);
}

/// What the layers below the user's know can be looked at, too.
TEST_F(DatabaseCommands, KeysOfLayersAreShownAndExplained) {
  cache::Measurement other = measurement(0, 30);
  other.key.problem =
      generator::key_text({.operation = generator::Operation::softmax, .rows = 64, .columns = 512});
  other.rows = 64;
  const std::string other_id = other.key.id();
  {
    cache::Cache site = cache::Cache::open(folder() / "site.db");
    site.add(measurement(0, 30));
    site.add(other);
  }
  const ce::test::ScopedEnvironment site("CE_SITE_DB", path("site.db")), system("CE_SYSTEM_DB", "none");
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"db", "show"}, {"explain"}}) {
    const auto of = [&](const std::string& id) {
      std::vector<std::string> all = words;
      all.push_back(id);
      return all;
    };
    EXPECT_EQ(document(of(other_id)).at("layer"), "site");
    EXPECT_EQ(document(of(other_id)).at("place"), path("site.db"));
    EXPECT_EQ(document(of(other_id)).at("winner"), configs_[0]);
    EXPECT_NE(text(of(other_id)).out.find("layer    site, " + path("site.db")), std::string::npos);
    EXPECT_EQ(document(of(id())).at("layer"), "user") << "the nearest that knows a winner";
    EXPECT_EQ(document(of(id())).at("winner"), winner());
    EXPECT_EQ(text(of(id())).out.find("layer"), std::string::npos);
  }
  EXPECT_EQ(text({"source", other_id, "--flat"}).status, 0);
  EXPECT_EQ(text({"db", "show", "00000000"}).status, 8);
}

TEST_F(DatabaseCommands, ListOfADeviceLeavesOutTheOthers) {
  EXPECT_TRUE(document({"db", "list", "--device", "host"}).at("keys").empty());
}

TEST_F(DatabaseCommands, KeysOfOtherVersionsAreListedAndShown) {
  cache::Measurement other = measurement(0, 60);
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

/// It may have had turns of many samples, so it was not only screened.
TEST_F(DatabaseCommands, ShowCallsWhatWasLeftBehindEarly) {
  EXPECT_EQ(text({"db", "show", id()}).out.find("  early "), std::string::npos);
  cache::Measurement left_behind = measurement(4, 40);
  left_behind.stage = cache::stage_of_screenings;
  left_behind.samples_us.assign(45, 40);
  cache_.add(left_behind);
  const std::string shown = text({"db", "show", id()}).out;
  EXPECT_NE(shown.find("  final "), std::string::npos) << shown;
  EXPECT_NE(shown.find("45  early "), std::string::npos) << shown;
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
  EXPECT_NE(text({"db", "show", id()}).out.find("timed    " + final_at_.substr(0, 10) + " "),
            std::string::npos);
  EXPECT_NE(text({"explain", id()}).out.find(" UTC on GPU-1\n"), std::string::npos);
  EXPECT_EQ(shown.at("ranking"), (json{configs_[1], configs_[0], configs_[2]}));
  ASSERT_EQ(shown.at("measurements").size(), 5U);
  EXPECT_EQ(shown.at("measurements")[0].at("samples_us").size(), 3U);
  EXPECT_EQ(shown.at("measurements")[0].at("environment").at("driver"), "580.1");
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
  cache::Measurement other = measurement(0, 60);
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

TEST_F(DatabaseCommands, SourceRefusesOptionsThatItWouldIgnore) {
  const std::vector<std::string> problem{"--op", "softmax", "--dtype", "bf16", "--cols", "4096"};
  const auto expect_refused = [&](std::vector<std::string> words, const std::string& message) {
    words.insert(words.begin(), "source");
    const Finished finished = text(words);
    EXPECT_EQ(finished.status, 2) << finished.out;
    EXPECT_EQ(finished.out, "");
    EXPECT_NE(finished.err.find(message), std::string::npos) << finished.err;
  };
  const auto of_problem = [&](std::vector<std::string> more) {
    more.insert(more.begin(), problem.begin(), problem.end());
    return more;
  };
  for (const char* config : {"foo", "block/warps=4,vec=8,load=ca,store=wb"})
    expect_refused(of_problem({"--list", "--config", config}), "--config");
  expect_refused(of_problem({"--list", "--flat"}), "--flat");
  expect_refused({id(), "--list", "--flat"}, "--flat");
  expect_refused({id(), "--device", "host"}, "--device is \"host\"; expected no --device together with KEY");
  expect_refused(of_problem({"--config", winner(), "--device", "host"}),
                 "--device is \"host\"; expected no --device together with --config");
  expect_refused(of_problem({"--config", winner()}), "expected no --db together with --config without KEY");
  expect_refused(of_problem({"--list"}), "expected no --db together with --list without KEY");
  EXPECT_EQ(text({"source", id(), "--list", "--device", "host"}).status, 0);
}

TEST_F(DatabaseCommands, SourceListsTheConfigsOfAKeyWithoutAWinner) {
  cache::Measurement rejected = measurement(0, 0);
  rejected.key.device = "Another GPU|cc=90|sm=132";
  rejected.outcome = cache::Outcome::quarantined;
  rejected.reason = "wrong answer";
  rejected.samples_us.clear();
  cache_.add(rejected);
  EXPECT_EQ(text({"source", rejected.key.id()}).status, 8);
  const Finished listed = text({"source", rejected.key.id(), "--list", "--device", "host"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_NE(listed.out.find("block/"), std::string::npos) << listed.out;
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

TEST_F(DatabaseCommands, ExplainSaysWhyAConfigWon) {
  const json why = document({"explain", id().substr(0, 6)});
  EXPECT_EQ(why.at("key"), id());
  EXPECT_EQ(why.at("winner"), winner());
  ASSERT_EQ(why.at("finalists").size(), 3U);
  EXPECT_EQ(why.at("finalists")[0].at("config"), winner());
  EXPECT_NEAR(why.at("finalists")[1].at("behind"), 60. / 45 - 1, 1e-9);
  EXPECT_EQ(why.at("rejected"), (json{{"wrong answer: row 3", 1}}));
  EXPECT_TRUE(why.at("variants").empty()) << "the text of that device is no model's";
  EXPECT_TRUE(why.at("ceiling").is_null());

  const Finished finished = text({"explain", id()});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.out.find("winner   " + winner()), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("wrong answer: row 3"), std::string::npos) << finished.out;
  EXPECT_EQ(text({"explain", "0123456789ab"}).status, 8);
}

}  // namespace
}  // namespace ce::cli
