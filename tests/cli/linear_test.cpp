// ce-tune linear: what it finds is kept, and stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using test::Finished;
using testing::HasSubstr;
using testing::Not;

class Linear : public test::DatabaseTest {
 protected:
  [[nodiscard]] Finished linear(const std::vector<std::string>& options) const {
    std::vector<std::string> words{"linear",   "--device", "host",   "--tokens", "20",
                                   "--hidden", "16",       "--cols", "300"};
    words.insert(words.end(), options.begin(), options.end());
    return text(words);
  }
};

TEST_F(Linear, WhatItTunesIsKeptAndStays) {
  const Finished first = linear({"--loss-only", "--z-loss", "1e-4", "--json"});
  ASSERT_EQ(first.status, 0) << first.err;
  const nlohmann::json made = nlohmann::json::parse(first.out);
  EXPECT_EQ(made["chunks"], 1);
  EXPECT_EQ(made["chunk_tokens"], 20);
  EXPECT_EQ(made["database"], database());
  EXPECT_THAT(first.err, HasSubstr("tuned linear_statistics"));

  const nlohmann::json keys = document({"db", "list"})["keys"];
  ASSERT_EQ(keys.size(), 2U) << "a merge, and a race of tiles";
  const nlohmann::json& race = keys.back();
  EXPECT_THAT(race["problem_text"], HasSubstr("race linear_statistics bf16"));
  EXPECT_GE(race["measurements"], 4);
  EXPECT_GT(race["winner"]["median_us"], 0);

  const auto bundle = [&] { return document({"bundle", path("b.jsonl"), "--cubins"}); };
  const int binaries = bundle()["binaries"];
  EXPECT_GE(binaries, 5) << "kernels of four tiles, and that of the merge";
  EXPECT_EQ(document({"db", "prune", "--keep", "0"})["binaries"], 0);
  EXPECT_EQ(bundle()["binaries"], binaries);
  const Finished again = linear({"--loss-only", "--z-loss", "1e-4"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("tuned")));
  EXPECT_EQ(again.out, "20 x 16 x 300 bf16: 1 chunk of 20 tokens, 512 B beyond its tensors\n");
}

TEST_F(Linear, HasAContextWhoseCountersAreWrittenAndASweepHasNone) {
  const test::Environment counted{{"CE_STATS", path("counters.prom")}},
      lost{{"CE_STATS", path("no/such.prom")}};
  const std::vector<std::string> linear{"linear", "--device", "host", "--tokens", "20",      "--hidden",
                                        "16",     "--cols",   "300",  "--db",     database()},
      sweep{"sweep", "--op",     "softmax", "--dtype", "f32",      "--rows",    "4", "--cols",
            "9",     "--device", "host",    "--db",    database(), "--configs", "1"};
  EXPECT_EQ(ce_tune(sweep, counted).status, 0);
  EXPECT_FALSE(std::filesystem::exists(path("counters.prom"))) << "docs/fleet.md";
  EXPECT_EQ(ce_tune(linear, counted).status, 0);
  EXPECT_THAT(test::read_file(path("counters.prom")), HasSubstr("ce_calls_total"));
  const Finished finished = ce_tune(linear, lost);
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("CE_STATS: cannot create " + path("no/such.prom")));
}

/// As many targets count as are said to: else the loss is NaN, and so is all that races compare.
TEST_F(Linear, WhereSomeTokensCountTheLossIsANumber) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--loss-only", "--loss-dtype", "bf16"}}) {
    std::vector<std::string> options{"--valid-tokens", "7", "--json"};
    options.insert(options.end(), more.begin(), more.end());
    const Finished finished = linear(options);
    ASSERT_EQ(finished.status, 0) << finished.err;
    const nlohmann::json loss = nlohmann::json::parse(finished.out)["loss"];
    ASSERT_TRUE(loss.is_number());
    EXPECT_GT(loss, 1);
    EXPECT_LT(loss, 15) << "about the logarithm of 300 classes";
  }
}

TEST_F(Linear, WrongOptionsAreNamed) {
  for (const auto& [options, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--tokens", "0"}, "--tokens is \"0\""},
           {{"--dtype", "i32"}, "--dtype is \"i32\"; expected f32, f16 or bf16"},
           {{"--smoothing", "2"}, "label_smoothing is 2; expected 0 to 1"},
           {{"--smoothing", "much"}, "--smoothing is \"much\""},
           {{"--valid-tokens", "21"}, "--valid-tokens is \"21\""},
           {{"--valid-tokens", "0"}, "--valid-tokens is \"0\"; expected a whole number from 1 to 20"},
           {{"--memory-budget", "some"}, "--memory-budget is \"some\""}}) {
    std::vector<std::string> words{"linear", "--device", "host", "--hidden", "16", "--cols", "30"};
    if (options.front() != "--tokens") words.insert(words.end(), {"--tokens", "20"});
    words.insert(words.end(), options.begin(), options.end());
    const Finished finished = ce_tune(words);
    EXPECT_EQ(finished.status, 2) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr(said));
  }
}

}  // namespace
}  // namespace ce::cli
