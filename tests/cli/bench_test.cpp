#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.hpp"
#include "tests/cli/xml.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class BenchCommand : public test::CommandTest {
 protected:
  [[nodiscard]] Finished bench(std::vector<std::string> more) const {
    more.insert(more.begin(), {"bench", "--device", "host", "--db", database(), "--configs", "1"});
    return ce_tune(more);
  }
};

TEST_F(BenchCommand, TunesWhatIsNotKnownAndTimesItBesideTheCeiling) {
  const std::string plot = (folder() / "plot.svg").string();
  const std::vector<std::string> words{"--op", "softmax", "--dtype", "f32",       "--rows",
                                       "8",    "--cols",  "64,128",  "--samples", "4"};
  std::vector<std::string> first_words = words;
  first_words.insert(first_words.end(), {"--json", "--plot", plot});
  const Finished first = bench(first_words);
  ASSERT_EQ(first.status, 0) << first.err;
  const json document = json::parse(first.out);
  EXPECT_EQ(document.at("suite"), "widths");
  EXPECT_EQ(document.at("samples"), 4);
  EXPECT_EQ(document.at("device").at("device"), "host");
  EXPECT_TRUE(document.at("command").get<std::string>().starts_with("ce-tune bench --device host"))
      << document.at("command");
  EXPECT_NE(document.at("command").get<std::string>().find("--cols 64,128"), std::string::npos);
  ASSERT_EQ(document.at("problems").size(), 2U);
  const json problem = document.at("problems")[1];
  EXPECT_EQ(problem.at("columns"), 128);
  EXPECT_EQ(problem.at("tuned"), true);
  EXPECT_EQ(problem.at("timed_rows"), 8);
  EXPECT_EQ(problem.at("bytes"), 2 * 8 * 128 * 4);
  EXPECT_EQ(problem.at("samples_us").size(), 4U);
  EXPECT_GT(problem.at("median_us"), 0);
  EXPECT_GT(problem.at("gbs"), 0);
  EXPECT_EQ(problem.at("ceiling").at("bytes"), 2 * 8 * 128 * 4);
  EXPECT_GT(problem.at("share_of_ceiling"), 0);
  const test::XmlContents contents = test::read_xml(test::read_file(plot));
  EXPECT_EQ(contents.elements.at("circle"), 2);
  EXPECT_NE(contents.text.find("softmax"), std::string::npos);

  const Finished second = bench(words);
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.out.find("softmax, f32\n"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find(problem.at("config").get<std::string>()), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("2 of 2 problems"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("0 tuned"), std::string::npos) << second.out;
}

TEST_F(BenchCommand, InterruptedItSaysThatTimesAreNotKept) {
  const std::vector<std::string> words{"bench",    "--op",      "softmax", "--dtype",  "f32",  "--rows",
                                       "4",        "--cols",    "64",      "--device", "host", "--db",
                                       database(), "--configs", "1",       "--samples"};
  const auto with_samples = [&](const std::string& samples) {
    std::vector<std::string> all = words;
    all.push_back(samples);
    return all;
  };
  ASSERT_EQ(ce_tune(with_samples("1")).status, 0);
  test::Child child(folder(), with_samples("1000000"), surroundings());
  ASSERT_TRUE(test::until([&] {
    return child.err().find("starting") != std::string::npos || !child.running();
  })) << child.err();
  child.signal(SIGINT);
  const Finished interrupted = child.wait();
  EXPECT_EQ(interrupted.status, 130) << interrupted.err;
  EXPECT_EQ(interrupted.err.find("measured is kept"), std::string::npos) << interrupted.err;
  EXPECT_NE(interrupted.err.find("what was tuned is kept in " + database() + "; the times are not kept\n"),
            std::string::npos)
      << interrupted.err;
}

TEST_F(BenchCommand, FewRowsHaveABound) {
  const Finished finished = bench({"--suite", "few-rows", "--op", "cross_entropy", "--loss-only", "--dtype",
                                   "f32", "--rows", "2", "--cols", "96", "--samples", "2", "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_GT(document.at("launch_floor_us"), 0);
  const json problem = document.at("problems")[0];
  EXPECT_GT(problem.at("bound_us").get<double>(), 3 * document.at("launch_floor_us").get<double>());
  EXPECT_EQ(problem.at("gradient"), false);
}

TEST_F(BenchCommand, WhatIsWrongIsNamed) {
  const auto refused = [this](const std::vector<std::string>& words, const std::string& message) {
    const Finished finished = bench(words);
    EXPECT_EQ(finished.status, 2) << finished.err;
    EXPECT_NE(finished.err.find(message), std::string::npos) << finished.err;
  };
  refused({"--suite", "lengths"}, "--suite is \"lengths\"");
  refused({"--samples", "0"}, "--samples is \"0\"");
  refused({"--op", "softmax", "--smoothing"}, "--smoothing");
  refused({"--op", "softmax", "--weights=bf16"}, "--weights is \"bf16\"");
  const std::string plot = (folder() / "none" / "plot.svg").string();
  refused({"--plot", plot}, "--plot is \"" + plot + "\"");
}

}  // namespace
}  // namespace ce::cli
