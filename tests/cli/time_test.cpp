#include <SQLiteCpp/Database.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

const char* const narrow = "block/warps=1,vec=4,load=ca,store=cg";
const char* const wide = "block/warps=4,vec=4,load=ca,store=cg";

class TimeCommand : public test::CommandTest {
 protected:
  [[nodiscard]] Finished time(std::vector<std::string> more) const {
    more.insert(more.begin(), {"time", "--device", "host", "--db", database(), "--samples", "4"});
    return ce_tune(more);
  }
  [[nodiscard]] Finished time_softmax(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "1000"});
    return time(more);
  }
};

TEST_F(TimeCommand, TimesConfigsInTurnsFastestFirst) {
  const Finished timed = time_softmax({"--config", narrow, "--config", wide, "--json"});
  ASSERT_EQ(timed.status, 0) << timed.err;
  const json timings = json::parse(timed.out).at("timings");
  ASSERT_EQ(timings.size(), 2U);
  EXPECT_EQ(timings[0].at("behind"), 0);
  EXPECT_GE(timings[1].at("behind"), 0);
  EXPECT_EQ(json::parse(timed.out).at("reference"), (json{{"kernel", ""}, {"samples_us", json::array()}}))
      << "the host device has none";
  for (const json& timing : timings) EXPECT_EQ(timing.at("samples_us").size(), 4U);
  const std::vector<std::string> configs{timings[0].at("config"), timings[1].at("config")};
  EXPECT_TRUE((configs == std::vector<std::string>{narrow, wide}) ||
              (configs == std::vector<std::string>{wide, narrow}));
}

TEST_F(TimeCommand, TakesTheBestOfAKey) {
  const Finished swept =
      ce_tune({"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "1000", "--device",
               "host", "--db", database(), "--configs", "2", "--json"});
  ASSERT_EQ(swept.status, 0) << swept.err;
  const std::string key = json::parse(swept.out).at("problems")[0].at("key");
  const Finished beside = time({key, "--rows", "7"});
  EXPECT_EQ(beside.status, 2);
  EXPECT_NE(beside.err.find("KEY is \"" + key + "\"; expected no problem options"), std::string::npos)
      << beside.err;
  const Finished timed = time({key});
  ASSERT_EQ(timed.status, 0) << timed.err;
  EXPECT_NE(timed.out.find("BEHIND"), std::string::npos);
  EXPECT_NE(timed.out.find("0.0%"), std::string::npos);
}

TEST_F(TimeCommand, RefusesConfigsThatCannotRun) {
  for (const auto& [config, message] :
       {std::pair{"block/warps=1,vec=8,load=ca,store=wb", "softmax f32 8 x 1000"},
        {"block/warps=1,vec=4", "\"load=\" too"},
        {"foo", "a variant that is one of warp, packed, transpose, block"}}) {
    const Finished refused = time_softmax({"--config", config});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("--config is"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find(message), std::string::npos) << refused.err;
  }
}

TEST_F(TimeCommand, WhereNothingIsKeptNothingIsCompiled) {
  const auto expect_refusal = [&](const std::string& problem) {
    const Finished refused = time_softmax({"--config", narrow});
    EXPECT_EQ(refused.status, 7) << refused.out << refused.err;
    EXPECT_NE(refused.err.find("no compiled kernel would be kept"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find(problem), std::string::npos) << refused.err;
    EXPECT_EQ(refused.out, "") << "nothing is timed";
  };
  static_cast<void>(cache::Cache::open(database()));
  SQLite::Database(database(), SQLite::OPEN_READWRITE)
      .exec("INSERT INTO schema_versions (version) VALUES (1000); PRAGMA user_version = 1000");
  expect_refusal("newer");
  test::write_file(database(), std::string(5000, 'x'));
  expect_refusal("not a tuning database");
  const Finished timed = time_softmax({"--config", narrow, "--unrecorded"});
  EXPECT_EQ(timed.status, 0) << timed.err;
  EXPECT_NE(timed.out.find("BEHIND"), std::string::npos) << timed.out;
}

TEST_F(TimeCommand, NamesWhatIsWrong) {
  const Finished none = time_softmax({});
  EXPECT_NE(none.status, 0);
  EXPECT_NE(none.err.find("--config is missing"), std::string::npos) << none.err;
  const Finished partial = time_softmax({"--config", "block/warps=4"});
  EXPECT_NE(partial.status, 0);
  EXPECT_NE(partial.err.find("block/warps=4"), std::string::npos) << partial.err;
  const Finished many =
      time({"--op", "softmax", "--dtype", "f32", "--rows", "8,16", "--cols", "1000", "--config", narrow});
  EXPECT_NE(many.status, 0);
  EXPECT_NE(many.err.find("2 problems"), std::string::npos) << many.err;
  const Finished nothing = time({});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_NE(nothing.err.find("--op is missing; expected one value, or a KEY of db list"), std::string::npos)
      << nothing.err;
  const Finished no_rows = time({"--op", "softmax", "--dtype", "f32", "--cols", "1000", "--config", narrow});
  EXPECT_NE(no_rows.err.find("--rows is missing"), std::string::npos) << no_rows.err;
}

}  // namespace
}  // namespace ce::cli
