#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/db_fixture.hpp"
#include "tests/cli/xml.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class ReportCommand : public test::DatabaseTest {
 protected:
  ReportCommand() {
    for (const std::size_t i : {0U, 1U, 2U}) cache_.add(measurement(i, 45.0 + static_cast<double>(i)));
  }

  std::string page() const { return path("report.html"); }
};

TEST_F(ReportCommand, WritesAPage) {
  const Finished finished = text({"report", "--html", page()});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.out.find(page() + ": 1 problem on 1 device, "), std::string::npos) << finished.out;
  const std::string html = test::read_file(page());
  const test::XmlContents contents = test::read_xml(html.substr(html.find('\n') + 1));
  for (const std::string& part : {configs_.at(0), id(), std::string("8192 x 4096"), std::string("my.db on ")})
    EXPECT_NE(contents.text.find(part), std::string::npos) << part;
}

/// What is mailed does not say where it comes from.
TEST_F(ReportCommand, NamesHostsAndPathsOnlyWhereItIsAsked) {
  cache::Measurement measured = measurement(0, 45);
  measured.environment["host"] = "node17.example.org";
  cache_.add(measured);
  EXPECT_EQ(text({"report", "--html", page()}).status, 0);
  EXPECT_EQ(test::read_file(page()).find("node17"), std::string::npos);
  EXPECT_EQ(test::read_file(page()).find(folder().string()), std::string::npos);
  const Finished finished = text({"report", "--html", page(), "--unredacted", "--json"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(test::read_file(page()).find("host node17.example.org"), std::string::npos);
  EXPECT_NE(test::read_file(page()).find(database()), std::string::npos);
  EXPECT_EQ(json::parse(finished.out).at("database"), database()) << "programs get what is stored";
}

/// What standard output has is neither written over nor mixed with a document.
TEST_F(ReportCommand, WritesAPageToTheStandardOutput) {
  for (const char* command : {"report --html /dev/stdout", "db export /dev/stdout"}) {
    SCOPED_TRACE(command);
    const std::string line =
        fmt::format("echo before; {} {} --db '{}'; echo behind", CE_TUNE, command, database());
    const Finished whole = test::Child(folder(), {"-c", line}, surroundings(), "", "/bin/sh").wait();
    EXPECT_TRUE(whole.out.starts_with("before\n")) << whole.out.substr(0, 200);
    EXPECT_TRUE(whole.out.ends_with("\nbehind\n")) << whole.out.substr(whole.out.size() - 200);
    EXPECT_GT(whole.out.size(), 1000U) << whole.err;
    const Finished mixed = text({"report", "--json", "--html", "/dev/stdout"});
    EXPECT_EQ(mixed.status, 2);
    EXPECT_NE(mixed.err.find("--html is \"/dev/stdout\"; expected a file together with --json"),
              std::string::npos)
        << mixed.err;
  }
}

TEST_F(ReportCommand, TellsProgramsTheSame) {
  const json report = document({"report", "--top", "2"});
  ASSERT_EQ(report.at("devices").size(), 1U);
  EXPECT_EQ(report.at("devices")[0].at("device"), "Some GPU");
  EXPECT_EQ(report.at("devices")[0].at("drivers"), json({"580.1"}));
  const json problem = report.at("devices")[0].at("problems").at(0);
  EXPECT_EQ(problem.at("key"), id());
  EXPECT_EQ(problem.at("problem").at("columns"), 4096);
  EXPECT_EQ(problem.at("ranked"), 3);
  ASSERT_EQ(problem.at("best").size(), 2U);
  EXPECT_EQ(problem.at("best")[0].at("config"), configs_.at(0));
  EXPECT_TRUE(problem.at("share_of_ceiling").is_null());
  EXPECT_EQ(problem.at("periods").size(), 1U);
}

TEST_F(ReportCommand, ShowsWhatASweepFound) {
  const std::string swept = path("swept.db");
  const Finished sweep =
      ce_tune({"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "4", "--cols", "64,256", "--device",
               "host", "--configs", "2", "--samples", "2", "--db", swept});
  ASSERT_EQ(sweep.status, 0) << sweep.err;
  const Finished finished =
      ce_tune({"report", "--html", page(), "--json", "--device", "host", "--db", swept});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json device = json::parse(finished.out).at("devices").at(0);
  EXPECT_GT(device.at("ceilings_gbs").at("copy"), 0);
  int softmax = 0;
  for (const json& problem : device.at("problems")) {
    if (problem.at("problem").at("operation") != "softmax") continue;
    ++softmax;
    EXPECT_GT(problem.at("share_of_ceiling"), 0);
    EXPECT_NE(test::read_file(page()).find(problem.at("best")[0].at("config").get<std::string>()),
              std::string::npos);
  }
  EXPECT_EQ(softmax, 2);
}

TEST_F(ReportCommand, RefusesWhatItCannotDo) {
  const auto expect = [](const Finished& finished, int status, const std::string& message) {
    EXPECT_EQ(finished.status, status) << finished.out;
    EXPECT_NE(finished.err.find(message), std::string::npos) << finished.err;
  };
  expect(text({"report"}), 2, "--html is missing");
  expect(text({"report", "--html", path("no/such/folder.html")}), 2, "a file that can be written");
  expect(text({"report", "--html", "/dev/full"}), 1, "cannot write /dev/full");
  expect(text({"report", "--json", "--top", "0"}), 2, "--top is \"0\"");
  test::write_file(page(), "kept");
  expect(text({"report", "--html", page(), "beefbeef"}), 8, "no key begins with beefbeef");
  expect(text({"report", "--html", page(), "no"}), 2, "KEY is \"no\"");
  expect(ce_tune({"report", "--html", page(), "--db", path("none.db")}), 8, "none.db");
  EXPECT_EQ(test::read_file(page()), "kept");
}

}  // namespace
}  // namespace ce::cli
