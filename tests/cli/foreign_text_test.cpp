// Texts of a database that a terminal would obey: none of the commands passes one on.

#include <SQLiteCpp/Database.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/printable.hpp"
#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using test::Finished;

/// Title, clear screen, C1, a change of direction, DEL, a second line.
const std::string hostile =
    "\x1b]0;owned\x07\x1b[2J\xC2\x9B"
    "2J\xE2\x80\xAE\x7f\nforged line";

class ForeignText : public test::DatabaseTest {
 protected:
  ForeignText() {
    cache::Measurement winner = hostile_measurement(0, 40), rejected = hostile_measurement(1, 0);
    rejected.outcome = cache::Outcome::quarantined;
    rejected.reason = "wrong " + hostile;
    cache::Measurement unknown = hostile_measurement(2, 50);
    unknown.key.problem = "unknown " + hostile;
    for (const cache::Measurement& m : {winner, hostile_measurement(2, 41), rejected, unknown}) cache_.add(m);
    // A run with other software, for regressions.
    winner.stage = cache::stage_of_checks;
    winner.environment["driver"] = "590 " + hostile;
    winner.created_at = "2099-01-01T00:00:00.000Z";
    for (int run = 0; run < 3; ++run) {
      winner.environment["process"] = std::to_string(run) + hostile;
      cache_.add(winner);
    }
    key_ = winner.key.id();
  }

  [[nodiscard]] cache::Measurement hostile_measurement(std::size_t index, double median_us) const {
    cache::Measurement m = measurement(index, median_us);
    m.key.device = "Some GPU" + hostile + "|cc=90|sm=132";
    m.config += hostile;
    m.compile_key += hostile;
    m.environment = {{"uuid", "GPU-1" + hostile}, {"driver", "580 " + hostile}, {"nvrtc", hostile}};
    return m;
  }

  std::string key_;
};

void expect_shown(const std::string& text, const std::string& command) {
  EXPECT_EQ(printable(text, Lines::many), text) << command;
  EXPECT_EQ(text.find("\nforged line"), std::string::npos) << command << ": " << text;
}

TEST_F(ForeignText, IsShownByEveryCommandThatQuotesADatabase) {
  std::filesystem::copy(database(), path("other.db"));
  const std::vector<std::vector<std::string>> commands{
      {"db", "list"},         {"db", "list", "--layers"},
      {"db", "show", key_},   {"db", "history", key_},
      {"explain", key_},      {"regressions", "--all"},
      {"db", "verify"},       {"db", "diff", path("other.db")},
      {"db", "show", "beef"}, {"source", key_}};
  for (const std::vector<std::string>& words : commands) {
    std::string command;
    for (const std::string& word : words) command += word + " ";
    const Finished finished = text(words);
    expect_shown(finished.out, command);
    expect_shown(finished.err, command);
    std::vector<std::string> as_json = words;
    as_json.emplace_back("--json");
    const Finished document = text(as_json);
    expect_shown(document.out, command + "--json");
    EXPECT_TRUE(nlohmann::json::accept(document.out)) << command << document.out;
  }
  const Finished shown = text({"db", "show", key_});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(shown.out.find(R"(\x1b]0;owned\x07\x1b[2J\u009b2J\u202e\x7f\nforged line)"), std::string::npos)
      << shown.out;
  EXPECT_EQ(document({"db", "show", key_}).at("device_text"), "Some GPU" + hostile + "|cc=90|sm=132")
      << "programs get what is stored";
}

TEST_F(ForeignText, IsShownByTheReport) {
  EXPECT_EQ(text({"report", "--html", path("report.html")}).status, 0);
  const std::string page = test::read_file(path("report.html"));
  EXPECT_NE(page.find(R"(\x1b[2J)"), std::string::npos);
  EXPECT_EQ(printable(page, Lines::many), page);
}

TEST_F(ForeignText, IsShownInTheNameOfADatabase) {
  const std::string named = path("odd\x1b[2J.db");
  ASSERT_EQ(ce_tune({"db", "merge", database(), "--db", named}).status, 0);
  for (const char* command : {"list", "verify", "vacuum"}) {
    const Finished finished = ce_tune({"db", command, "--db", named});
    expect_shown(finished.out, command);
    EXPECT_NE(finished.out.find(R"(odd\x1b[2J.db)"), std::string::npos) << finished.out << finished.err;
  }
}

TEST_F(ForeignText, IsShownInWhatSqliteSays) {
  {
    SQLite::Database database(path("forged.db"), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    database.exec("CREATE TABLE measurements (id INTEGER)");
    database.exec("PRAGMA writable_schema = ON");
    database.exec("UPDATE sqlite_master SET name = 'm\x1b]0;owned\x07', sql = 'CREATE \x1b[2J nonsense'");
  }
  for (const char* command : {"list", "verify", "vacuum"}) {
    const Finished finished = ce_tune({"db", command, "--db", path("forged.db")});
    EXPECT_NE(finished.status, 0);
    expect_shown(finished.out + finished.err, command);
  }
}

}  // namespace
}  // namespace ce::cli
