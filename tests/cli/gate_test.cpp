// ce-tune gate: what a baseline has must be compared and not be slower, but for what people accepted.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"
#include "tests/cli/xml.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;
using test::read_file;
using test::write_file;
using testing::HasSubstr;
using testing::Not;

class GateCommand : public test::DatabaseTest {
 protected:
  [[nodiscard]] cache::Measurement final_of(std::int64_t columns, int day, double us) const {
    generator::Problem problem = test::softmax;
    problem.columns = columns;
    cache::Measurement made = measurement(0, us * (1 + 0.0005 * (day % 2)));
    made.key.problem = generator::key_text(problem);
    made.samples_us.assign(15, static_cast<float>(made.median_us));
    made.spread = 0.002;
    made.created_at = fmt::format("2030-01-{:02}T12:00:00.000Z", day);
    return made;
  }
  [[nodiscard]] std::string id_of(std::int64_t columns) const { return final_of(columns, 1, 1).key.id(); }
  /// Two finals of each, and the baseline of them.
  void make_baseline(const std::map<std::int64_t, double>& times) {
    for (const auto& [columns, us] : times)
      for (const int day : {1, 2}) cache_.add(final_of(columns, day, us));
    ASSERT_EQ(text({"db", "export", path("winners.jsonl")}).status, 0);
  }
  void measure_again(std::int64_t columns, double us) {
    for (const int day : {11, 12}) cache_.add(final_of(columns, day, us));
  }
  [[nodiscard]] Finished gate(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"gate", "--baseline", path("winners.jsonl")});
    return text(more);
  }
  void accept(const json& entries) const {
    write_file(path("accepted.json"), json{{"accepted", entries}}.dump());
  }
};

TEST_F(GateCommand, PassesWhereAllIsComparedAndNothingSlower) {
  make_baseline({{1024, 100}, {2048, 200}});
  measure_again(1024, 100);
  measure_again(2048, 150);
  const Finished finished = gate();
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_THAT(finished.out,
              HasSubstr("2 problems: 0 slower, 0 not compared, 0 unsure, 0 accepted, 2 passed"));
}

TEST_F(GateCommand, RacesThatWereNotMadeAgainAreLeftOut) {
  const auto race = [&](int day, double us) {
    cache::Measurement made = final_of(1024, day, us);
    made.key.problem = "race matmul bf16 m=8192";
    made.template_digest = "cublasLt 13.1.0";
    cache_.add(made);
  };
  for (const int day : {1, 2}) race(day, 1000);
  make_baseline({{1024, 100}});
  EXPECT_EQ(gate().status, 12) << "nothing was compared";
  measure_again(1024, 100);
  const Finished finished = gate({"--github"});
  EXPECT_EQ(finished.status, 0) << finished.out;
  EXPECT_THAT(finished.out, HasSubstr("1 problem: 0 slower, 0 not compared"));
  EXPECT_THAT(finished.out, HasSubstr("1 passed; 1 race not compared (not repeated)\n"));
  EXPECT_THAT(finished.out, HasSubstr("::notice title=ce-tune gate::0 slower"));
  EXPECT_EQ(json::parse(gate({"--json"}).out)["races_left_out"], 1);
  for (const int day : {11, 12}) race(day, 1300);
  EXPECT_EQ(gate().status, 3) << "one that was made again is compared";
  EXPECT_EQ(json::parse(gate({"--json"}).out)["races_left_out"], 0);
}

TEST_F(GateCommand, AGateThatComparedNothingButRacesDoesNotPass) {
  const auto race = [&](const char* subject, int day, double us) {
    cache::Measurement made = final_of(1024, day, us);
    made.key.problem = std::string("race ") + subject;
    made.template_digest = "cublasLt 13.1.0";
    cache_.add(made);
  };
  for (const int day : {1, 2})
    for (const char* subject : {"matmul bf16 m=8192", "matmul bf16 m=4096"}) race(subject, day, 1000);
  make_baseline({});
  const Finished none = gate();
  EXPECT_EQ(none.status, 12);
  EXPECT_THAT(none.out, HasSubstr("0 passed; 2 races not compared (not repeated)"));
  EXPECT_THAT(none.err, HasSubstr("only the calls that need a race time it"));
  for (const int day : {11, 12}) race("matmul bf16 m=8192", day, 1000);
  const Finished one = gate();
  EXPECT_EQ(one.status, 12);
  EXPECT_THAT(one.out, HasSubstr("1 passed; 1 race not compared"));
  EXPECT_THAT(one.err, HasSubstr("only races were compared; a gate that compared no kernel does not pass"));
  for (const int day : {11, 12}) race("matmul bf16 m=4096", day, 1300);
  EXPECT_EQ(gate().status, 3);
}

TEST_F(GateCommand, FailsWhereWhatMustBeComparedWasNot) {
  make_baseline({{1024, 100}, {2048, 200}});
  EXPECT_EQ(gate().status, 12) << "nothing was";
  measure_again(1024, 100);
  const Finished finished = gate();
  EXPECT_EQ(finished.status, 12);
  EXPECT_THAT(finished.out, HasSubstr("not compared: there is no new measurement"));
  accept({{{"key", id_of(2048)}, {"missing", true}, {"why", "no longer used"}}});
  const Finished accepted = gate({"--accept", path("accepted.json")});
  EXPECT_EQ(accepted.status, 0) << accepted.out;
  EXPECT_THAT(accepted.out, HasSubstr("accepted: no longer used"));
  accept({{{"key", id_of(2048)}, {"missing", true}, {"why", "w"}},
          {{"key", id_of(1024)}, {"missing", true}, {"why", "w"}}});
  EXPECT_EQ(gate({"--accept", path("accepted.json"), "--gpu", "some"}).status, 0) << "one was compared";
}

TEST_F(GateCommand, AGateThatComparedNothingDoesNotPassWhateverIsAccepted) {
  make_baseline({{1024, 100}});
  accept({{{"key", id_of(1024)}, {"missing", true}, {"why", "w"}}});
  EXPECT_EQ(gate({"--accept", path("accepted.json")}).status, 12);
  EXPECT_EQ(gate({"--gpu", "another"}).status, 8) << "the baseline has no such device";
}

TEST_F(GateCommand, FailsWhereAProblemIsSlowerThanWasAccepted) {
  make_baseline({{1024, 100}, {2048, 200}});
  measure_again(1024, 106);
  measure_again(2048, 200);
  const Finished finished = gate();
  EXPECT_EQ(finished.status, 3) << finished.out;
  EXPECT_THAT(finished.out, HasSubstr("slower: 1.060 of the time before"));
  accept({{{"key", id_of(1024)}, {"up_to", 1.03}, {"why", "exact rounding"}}});
  EXPECT_EQ(gate({"--accept", path("accepted.json")}).status, 3);
  accept({{{"key", id_of(1024)}, {"up_to", 1.08}, {"why", "exact rounding"}},
          {{"key", id_of(2048)}, {"up_to", 1.08}, {"why", "was slow once"}}});
  const Finished accepted = gate({"--accept", path("accepted.json")});
  EXPECT_EQ(accepted.status, 0) << accepted.out;
  EXPECT_THAT(accepted.out, HasSubstr("accepted up to 1.080: exact rounding"));
  EXPECT_THAT(accepted.out, HasSubstr(id_of(2048) + " is accepted (was slow once), but passes without that"));
}

TEST_F(GateCommand, UnsureOnesHaveAStatusOfTheirOwnOrPass) {
  cache_.add(final_of(1024, 1, 5));
  ASSERT_EQ(text({"db", "export", path("winners.jsonl"), "--winners"}).status, 0);
  cache_.add(final_of(1024, 2, 5.1));
  EXPECT_EQ(gate().status, 4);
  EXPECT_EQ(gate({"--unsure-pass"}).status, 0);
}

TEST_F(GateCommand, WinnersOfAnExportAndADatabaseAreBaselinesAlike) {
  make_baseline({{1024, 100}});
  ASSERT_EQ(text({"db", "export", path("winners.jsonl"), "--winners"}).status, 0);
  EXPECT_EQ(gate().status, 12) << "the runs that it was made of are no comparison";
  ASSERT_EQ(text({"db", "merge", database()}).status, 0);
  ASSERT_EQ(ce_tune({"db", "merge", database(), "--db", path("old.db")}).status, 0);
  measure_again(1024, 130);
  EXPECT_EQ(gate().status, 3);
  EXPECT_EQ(text({"gate", "--baseline", path("old.db")}).status, 3);
}

TEST_F(GateCommand, JunitHasACaseForEachProblem) {
  make_baseline({{1024, 100}, {2048, 200}, {4096, 400}});
  measure_again(1024, 106);
  measure_again(2048, 200);
  EXPECT_EQ(gate({"--junit", path("gate.xml")}).status, 3);
  const std::string xml = read_file(path("gate.xml"));
  EXPECT_THAT(xml, testing::StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"));
  const test::XmlContents contents = test::read_xml(xml.substr(xml.find('\n') + 1));
  EXPECT_EQ(contents.elements.at("testcase"), 3);
  EXPECT_EQ(contents.elements.at("failure"), 1);
  EXPECT_EQ(contents.elements.at("error"), 1);
  EXPECT_THAT(xml, HasSubstr("tests=\"3\" failures=\"1\" errors=\"1\" skipped=\"0\""));
}

TEST_F(GateCommand, GithubHasAnErrorForEachThatHoldsItUp) {
  make_baseline({{1024, 100}, {2048, 200}});
  measure_again(1024, 106);
  measure_again(2048, 200);
  const std::string said = gate({"--github"}).out;
  EXPECT_THAT(said, HasSubstr("\n::error title=slower%3A softmax bf16 8192 x 1024::slower: 1.060"));
  EXPECT_THAT(said, HasSubstr("::notice title=ce-tune gate::1 slower, 0 not compared"));
  EXPECT_THAT(said, Not(HasSubstr("x 2048::")));
  EXPECT_EQ(gate({"--github", "--json"}).status, 2);
}

TEST_F(GateCommand, WhatAFileSaysEndsNoLineOfACommand) {
  make_baseline({{1024, 100}});
  measure_again(1024, 106);
  accept({{{"key", id_of(2048)}, {"missing", true}, {"why", "a\n::error::b%0A"}}});
  const std::string said =
      gate({"--github", "--accept", path("accepted.json"), "--junit", path("gate.xml")}).out;
  EXPECT_THAT(said, Not(HasSubstr("\n::error::b")));
  EXPECT_THAT(said, HasSubstr("b%250A"));
}

TEST_F(GateCommand, TheDocumentSaysTheSame) {
  make_baseline({{1024, 100}});
  measure_again(1024, 106);
  const Finished finished = gate({"--json"});
  EXPECT_EQ(finished.status, 3);
  const json document = json::parse(finished.out);
  EXPECT_EQ(document["exit_code"], 3);
  EXPECT_EQ(document["problems"][0]["result"], "slower");
  EXPECT_EQ(document["problems"][0]["finding"]["verdict"], "slower");
  EXPECT_EQ(document["summary"]["slower"], 1);
}

TEST_F(GateCommand, BadFilesAreRefusedByEntryAndField) {
  make_baseline({{1024, 100}});
  const auto refused = [&](const std::string& accepted) {
    write_file(path("accepted.json"), accepted);
    const Finished finished = gate({"--accept", path("accepted.json")});
    EXPECT_EQ(finished.status, 2) << accepted;
    return finished.err;
  };
  EXPECT_THAT(refused("{\"accepted\":\n [nonsense]}"),
              HasSubstr(path("accepted.json") +
                        " line 2 is \" [nonsense]}\"; expected JSON: {\"accepted\": [...]}\n"));
  EXPECT_THAT(refused("nonsense"),
              HasSubstr(path("accepted.json") + " line 1 is \"nonsense\"; expected JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("{\"accepted\": [...]}"));
  EXPECT_THAT(refused(R"({"accepted": [3]})"), HasSubstr("entry 1 of"));
  EXPECT_THAT(refused(R"({"accepted": [{"key": "x", "up_to": 2, "why": "w"}]})"), HasSubstr("entry 1 of"));
  EXPECT_THAT(refused(R"({"accepted": [{"key": "0123456789ab", "up_to": 2}]})"), HasSubstr("why"));
  EXPECT_THAT(refused(R"({"accepted": [{"key": "0123456789ab", "up_to": 0.5, "why": "w"}]})"),
              HasSubstr("up_to is 0.5"));
  EXPECT_THAT(refused(R"({"accepted": [{"key": "0123456789ab", "why": "w"}]})"),
              HasSubstr("up_to is missing"));
  EXPECT_THAT(refused(R"({"accepted": [{"key": "0123456789ab", "upto": 2, "missing": true, "why": "w"}]})"),
              HasSubstr("upto"));
  EXPECT_EQ(gate({"--accept", path("none.json")}).status, 8);
  ASSERT_EQ(text({"bundle", path("bundle.jsonl")}).status, 0);
  EXPECT_THAT(text({"gate", "--baseline", path("bundle.jsonl")}).err,
              HasSubstr("a bundle, which has no samples"));
  write_file(path("nonsense"), "nonsense");
  const Finished no_export = text({"gate", "--baseline", path("nonsense")});
  EXPECT_EQ(no_export.status, 2);
  EXPECT_THAT(no_export.err, HasSubstr("line 1 of " + path("nonsense")));
  EXPECT_EQ(text({"gate", "--baseline", path("none")}).status, 8);
}

}  // namespace
}  // namespace ce::cli
