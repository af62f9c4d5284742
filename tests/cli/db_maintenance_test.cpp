#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Statement.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cache/export.hpp"
#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class DatabaseMaintenance : public test::DatabaseTest {
 protected:
  cache::Measurement dated(std::size_t index, double median_us, const std::string& day) const {
    cache::Measurement m = measurement(index, median_us);
    m.created_at = day + "T12:00:00.000Z";
    return m;
  }
  void fill_other(std::initializer_list<cache::Measurement> list) const {
    cache::Cache other = cache::Cache::open(path("other.db"));
    for (const cache::Measurement& m : list) other.add(m);
    other.keep_binary("binary of other", {}, {});
  }
  void execute(const std::string& statements) const {
    SQLite::Database(database(), SQLite::OPEN_READWRITE).exec(statements);
  }
  void expect_failure(const Finished& finished, int status, const std::string& message) const {
    EXPECT_EQ(finished.status, status) << finished.out;
    EXPECT_NE(finished.err.find(message), std::string::npos) << finished.err << "lacks " << message;
  }
};

TEST_F(DatabaseMaintenance, HistoryHasALineForEachDriverCompilerAndTemplates) {
  cache::Measurement slow = dated(0, 80, "2030-01-01"), slower = dated(0, 90, "2030-01-02");
  for (cache::Measurement* m : {&slow, &slower}) m->environment["driver"] = "550.0";
  slower.stage = 0;
  slower.median_us = 10;  // of the screening, which counts less than a final
  cache::Measurement replaced = dated(0, 60, "2030-02-01");
  replaced.template_digest = "replaced";
  cache::Measurement wrong = dated(0, 0, "2030-04-01");
  wrong.outcome = cache::Outcome::quarantined;
  wrong.environment["nvrtc"] = "13.1";
  for (const cache::Measurement& m : {slow, slower, replaced, dated(0, 40, "2030-03-01"), wrong})
    cache_.add(m);

  const json list = document({"db", "history", id()}).at("generations");
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[0].at("driver"), "550.0");
  EXPECT_EQ(list[0].at("best").at("median_us"), 80);
  EXPECT_EQ(list[0].at("last_at"), slower.created_at);
  EXPECT_EQ(list[1].at("best").at("template_digest"), "replaced");
  EXPECT_EQ(list[2].at("best").at("median_us"), 40);
  EXPECT_EQ(list[2].at("compiler"), "13.0");
  EXPECT_TRUE(list[3].at("best").is_null());

  const Finished finished = text({"db", "history", id().substr(0, 5)});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.out.find("  +33.3%  ################\n"), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("  +50.0%  ########################\n"), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("all rejected"), std::string::npos) << finished.out;
  expect_failure(text({"db", "history", "0123"}), 8, "no key begins with 0123");
}

/// The fastest of many runs is no match for a single one.
TEST_F(DatabaseMaintenance, HistoryHasTheMedianOfEachConfigsRuns) {
  int day = 1;
  for (const double median_us : {52., 50., 58., 51., 57.})
    cache_.add(dated(0, median_us, fmt::format("2030-01-0{}", day++)));
  cache_.add(dated(1, 54, "2030-01-06"));
  const auto generations = document({"db", "history", id()}).at("generations");
  ASSERT_EQ(generations.size(), 1U);
  EXPECT_EQ(generations[0].at("best").at("config"), configs_[0]);
  EXPECT_EQ(generations[0].at("best").at("median_us"), 52) << "the fastest run took 50";
}

TEST_F(DatabaseMaintenance, HistoryHoldsNoTimesOfOtherRowsAgainstEachOther) {
  cache::Measurement fewer = dated(1, 20, "2030-01-02"), newer = dated(0, 10, "2030-02-01");
  fewer.rows = newer.rows = 2048;
  newer.environment["driver"] = "590.0";
  for (const cache::Measurement& m : {dated(0, 80, "2030-01-01"), fewer, newer}) cache_.add(m);
  const json list = document({"db", "history", id()}).at("generations");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].at("best").at("median_us"), 80) << "on the most rows, as the winner's";
  const Finished finished = text({"db", "history", id()});
  EXPECT_EQ(finished.out.find('%'), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("-  ########################\n"), std::string::npos) << finished.out;
}

/// An import may have brought them.
TEST_F(DatabaseMaintenance, HistoryOfWhatHasNoTimeHasNoBar) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  const auto with_driver = [this](const std::string& driver, std::size_t index, double us,
                                  const std::string& day) {
    cache::Measurement measurement = dated(index, us, day);
    measurement.environment["driver"] = driver;
    return measurement;
  };
  cache_.add(with_driver("550.0", 0, none, "2030-01-01"));
  const Finished alone = text({"db", "history", id()});
  EXPECT_EQ(alone.status, 0) << alone.err;
  EXPECT_NE(alone.out.find(configs_[0]), std::string::npos) << alone.out;
  EXPECT_EQ(alone.out.find('#'), std::string::npos) << alone.out;

  cache_.add(with_driver("560.0", 0, none, "2030-02-01"));
  cache_.add(with_driver("560.0", 1, 40, "2030-02-02"));
  cache_.add(with_driver("570.0", 0, none, "2030-03-01"));
  const Finished finished = text({"db", "history", id()});
  EXPECT_NE(finished.out.find(" -  ########################\n"), std::string::npos)
      << finished.out << "the one with a time is the best of its line, and has nothing to compare with";
  for (const char* word : {"nan", "inf", "%"})
    EXPECT_EQ(finished.out.find(word), std::string::npos) << finished.out;
}

TEST_F(DatabaseMaintenance, DiffHoldsNoTimesOfOtherRowsAgainstEachOther) {
  cache_.add(dated(0, 40, "2030-01-01"));
  cache::Measurement fewer = dated(0, 10, "2030-01-01");
  fewer.rows = 2048;
  fill_other({fewer});
  const Finished finished = text({"db", "diff", path("other.db")});
  EXPECT_EQ(finished.out.find("0.250"), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("10.0      -\n"), std::string::npos) << finished.out;
}

TEST_F(DatabaseMaintenance, DiffComparesWinnersAndCountsWhatOnlyOneHas) {
  cache_.add(dated(0, 40, "2030-01-01"));
  cache::Measurement elsewhere = dated(1, 10, "2030-01-01");
  elsewhere.key.device = "Another GPU|cc=100";
  fill_other({dated(0, 40, "2030-01-01"), dated(1, 30, "2030-01-01"), elsewhere});
  const std::string before = test::read_file(path("other.db"));

  const json shown = document({"db", "diff", path("other.db")});
  EXPECT_EQ(shown.at("measurements"), (json{{"shared", 1}, {"only_here", 0}, {"only_there", 2}}));
  ASSERT_EQ(shown.at("keys").size(), 2U);
  for (const json& key : shown.at("keys")) {
    const bool shared = key.at("key") == id();
    EXPECT_EQ(key.at("in_here"), shared);
    EXPECT_EQ(key.at("there").at("median_us"), shared ? 30 : 10);
    EXPECT_EQ(key.at("here").is_null(), !shared);
  }
  const Finished finished = text({"db", "diff", path("other.db")});
  EXPECT_NE(finished.out.find("0.750\n"), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("1 measurement in both, 0 only here, 2 only there\n"), std::string::npos)
      << finished.out;
  EXPECT_EQ(test::read_file(path("other.db")), before);
  expect_failure(text({"db", "diff", path("absent.db")}), 8, "absent.db");
  expect_failure(text({"db", "diff"}), 2, "FILE is required");
}

TEST_F(DatabaseMaintenance, MergeAddsWhatIsMissingAndBinariesOnlyWhenAsked) {
  cache_.add(dated(0, 40, "2030-01-01"));
  fill_other({dated(0, 40, "2030-01-01"), dated(1, 30, "2030-01-01")});
  expect_failure(text({"db", "merge", path("other.db"), path("absent.db")}), 8, "absent.db");
  EXPECT_EQ(cache_.status().measurements, 1) << "nothing is merged where a file is missing";

  const json merged = document({"db", "merge", path("other.db"), path("other.db")}).at("merged");
  EXPECT_EQ(merged[0].at("measurements_added"), 1);
  EXPECT_EQ(merged[1].at("measurements_added"), 0);
  EXPECT_EQ(cache_.status().measurements, 2);
  EXPECT_EQ(cache_.status().binaries, 0);
  const Finished finished = text({"db", "merge", path("other.db"), "--binaries"});
  EXPECT_NE(finished.out.find("0 measurements added and 1 binary\n"), std::string::npos) << finished.out;
  EXPECT_EQ(cache_.status().binaries, 1);
}

TEST_F(DatabaseMaintenance, MergeAddsNothingWhereAFileIsDamaged) {
  cache_.add(dated(0, 40, "2030-01-01"));
  fill_other({dated(1, 30, "2030-01-01")});
  ASSERT_EQ(ce_tune({"db", "merge", database(), "--db", path("damaged.db")}).status, 0);
  // Pages and tables are whole: only the digest of the measurement tells.
  SQLite::Database(path("damaged.db"), SQLite::OPEN_READWRITE)
      .exec("DROP TRIGGER measurements_refuse_update; UPDATE measurements SET config = 'x' || config");
  const std::string named = path("damaged.db") + " is damaged";
  expect_failure(text({"db", "merge", path("other.db"), path("damaged.db")}), 7, named);
  EXPECT_EQ(cache_.status().measurements, 1);
  for (const std::vector<std::string>& files :
       {std::vector{path("damaged.db")}, {path("other.db"), path("damaged.db")}}) {
    std::vector<std::string> words{"db", "merge", "--db", path("new.db")};
    words.insert(words.end(), files.begin(), files.end());
    expect_failure(ce_tune(words), 7, named);
    EXPECT_FALSE(std::filesystem::exists(path("new.db"))) << files.size();
  }
}

TEST_F(DatabaseMaintenance, AnExportIsImportedIntoANewDatabase) {
  cache_.add(dated(0, 40, "2030-01-01"));
  cache_.add(dated(1, 30, "2030-01-02"));
  EXPECT_EQ(document({"db", "export", path("lines")}).at("measurements"), 2);
  EXPECT_EQ(std::filesystem::status(path("lines")).permissions(), std::filesystem::perms(0600));
  const Finished piped = text({"db", "export", "/dev/stdout"});
  EXPECT_EQ(piped.out, test::read_file(path("lines")));
  EXPECT_EQ(text({"db", "export", "-"}).out, piped.out);
  EXPECT_FALSE(std::filesystem::exists("-"));
  expect_failure(text({"db", "export", "-", "--json"}), 2, "FILE is \"-\"");

  const auto import = [&](const std::string& file, const std::string& into) {
    return ce_tune({"db", "import", file, "--db", path(into)});
  };
  const Finished imported = import(path("lines"), "new.db");
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_NE(imported.out.find("2 of 2 measurements added"), std::string::npos) << imported.out;
  EXPECT_EQ(ce_tune({"db", "export", "/dev/stdout", "--db", path("new.db")}).out, piped.out);

  std::string changed = piped.out;
  changed.replace(changed.find("\"median_us\":40"), 14, "\"median_us\":20");
  test::write_file(path("changed"), changed);
  expect_failure(import(path("changed"), "newer.db"), 2,
                 "line 4 of " + path("changed") +
                     " is an end that does not match the lines before it: a line was changed");
  test::write_file(path("longer"), piped.out + "{}\n");
  expect_failure(import(path("longer"), "newer.db"), 2,
                 "line 5 of " + path("longer") + " is after the end of the export");
  expect_failure(import(path("absent"), "newer.db"), 8, "there is no file " + path("absent"));
  expect_failure(import("/dev/null", "newer.db"), 2, "/dev/null is empty; expected an export");
  expect_failure(import("/tmp", "newer.db"), 2, "FILE is \"/tmp\", a folder");
  EXPECT_FALSE(std::filesystem::exists(path("newer.db"))) << "what is refused leaves nothing behind";
  expect_failure(text({"db", "export", path("no/such/folder")}), 2, "a file that can be written");
  expect_failure(text({"db", "export", database()}), 2,
                 "FILE is \"" + database() + "\"; expected a file that is not a database");
  EXPECT_EQ(document({"db", "verify"}).at("damages"), nlohmann::json::array());
  expect_failure(ce_tune({"db", "export", path("more"), "--db", path("absent.db")}), 8, "absent.db");
}

/// Databases hold whatever the clock said.
TEST_F(DatabaseMaintenance, OddTimesAreShownAndLeftOutOfExports) {
  cache_.add(dated(0, 40, "2030-01-01"));
  cache_.add(dated(1, 30, "12000-01-01"));
  cache_.add(dated(2, 50, "-1-01-01"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"db", "list"},
                                                {"db", "show", id()},
                                                {"db", "history", id()},
                                                {"explain", id()},
                                                {"report", "--html", path("report.html")}}) {
    const Finished shown = text(words);
    EXPECT_EQ(shown.status, 0) << words.front() << shown.err;
  }
  EXPECT_NE(text({"db", "show", id()}).out.find("12000-01-01"), std::string::npos);
  const Finished exported = text({"db", "export", path("lines")});
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_NE(exported.err.find("1 measurement of "), std::string::npos) << exported.err;
  EXPECT_NE(exported.err.find("2 measurements left out, because db import would refuse the whole text with "
                              "such a measurement: created_at is "),
            std::string::npos)
      << exported.err;
  EXPECT_EQ(document({"db", "export", path("lines")}).at("left_out"), 2);
  EXPECT_EQ(ce_tune({"db", "import", path("lines"), "--db", path("new.db")}).status, 0);
}

TEST_F(DatabaseMaintenance, WhatCannotBeIsNeitherMergedNorImported) {
  cache::Measurement forged = dated(1, 0.5, "2030-01-02");
  forged.stage = std::numeric_limits<int>::max();
  fill_other({dated(0, 40, "2030-01-01"), forged});
  const auto expect_refused = [&](const std::vector<std::string>& words, const std::string& message) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--db", path("new.db")});
    expect_failure(ce_tune(all), 2, message);
    EXPECT_FALSE(std::filesystem::exists(path("new.db"))) << "what is refused leaves nothing behind";
  };
  expect_refused({"db", "merge", path("other.db")},
                 path("other.db") + ": stage of a measurement of 2030-01-02T12:00:00.000Z of key " + id() +
                     " is 2147483647; expected -1 to 1");
  std::ostringstream lines;
  cache::write_export(lines, std::vector{dated(0, 40, "2030-01-01"), forged});
  test::write_file(path("lines"), lines.str());
  expect_refused({"db", "import", path("lines")},
                 "line 3 of " + path("lines") + ": stage is 2147483647; expected -1 to 1");
}

TEST_F(DatabaseMaintenance, StandardInputIsImportedWhateverItIs) {
  cache_.add(dated(0, 40, "2030-01-01"));
  ASSERT_EQ(text({"db", "export", path("lines")}).status, 0);
  const auto import_from = [&](int input, const std::string& into) {
    Finished finished =
        test::Child(folder(), {"db", "import", "-", "--db", path(into)}, surroundings(), "", CE_TUNE, input)
            .wait();
    ::close(input);
    return finished;
  };
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const std::string lines = test::read_file(path("lines"));
  ASSERT_EQ(::write(ends[1], lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
  ::close(ends[1]);
  const Finished of_socket = import_from(ends[0], "of_socket.db");
  EXPECT_EQ(of_socket.status, 0) << of_socket.err;
  EXPECT_NE(of_socket.out.find("1 of 1 measurement added"), std::string::npos) << of_socket.out;

  const Finished of_file = import_from(::open(path("lines").c_str(), O_RDONLY | O_CLOEXEC), "of_file.db");
  EXPECT_EQ(of_file.status, 0) << of_file.err;
  // It cannot be read: that is not the end.
  expect_failure(import_from(::open(path("lines").c_str(), O_WRONLY | O_CLOEXEC), "refused.db"), 2,
                 "/dev/stdin is cut short");
  expect_failure(import_from(::open("/tmp", O_RDONLY | O_CLOEXEC), "refused.db"), 2,
                 "FILE is \"/dev/stdin\", a folder");
  expect_failure(import_from(::open("/dev/null", O_RDONLY | O_CLOEXEC), "refused.db"), 2,
                 "/dev/stdin is empty; expected an export");
  EXPECT_FALSE(std::filesystem::exists(path("refused.db")));
}

TEST_F(DatabaseMaintenance, AnExportOfWinnersHasOneEachAndNamesNoMachine) {
  cache_.add(measurement(0, 60));
  cache::Measurement fastest = measurement(1, 45);
  fastest.samples_us.clear();
  for (int i = 0; i < 45; ++i) fastest.samples_us.push_back(30.F + static_cast<float>(i));
  cache_.add(fastest);
  cache::Measurement unfinished = measurement(2, 10);
  unfinished.key.problem =
      generator::key_text({.operation = generator::Operation::softmax, .rows = 64, .columns = 512});
  unfinished.stage = 0;
  cache_.add(unfinished);
  EXPECT_EQ(document({"db", "export", "--winners", path("winners.jsonl")}).at("measurements"), 1);
  const Finished imported = ce_tune({"db", "import", path("winners.jsonl"), "--db", path("new.db")});
  EXPECT_EQ(imported.status, 0) << imported.err;
  const auto list = cache::Cache::open_existing(path("new.db")).measurements(unfinished.key);
  EXPECT_TRUE(list.empty());
  const auto winners = cache::Cache::open_existing(path("new.db")).measurements(measurement(1, 45).key);
  ASSERT_EQ(winners.size(), 1U);
  EXPECT_EQ(winners.front().config, configs_.at(1));
  EXPECT_FALSE(winners.front().environment.contains("uuid"));
  EXPECT_TRUE(winners.front().environment.contains("driver"));
  EXPECT_EQ(winners.front().samples_us.size(), 15U) << "every third, from 30 to 72";
  EXPECT_EQ(winners.front().median_us, 51);
  EXPECT_NEAR(winners.front().spread, 21.0 / 51, 0.02);
}

/// One of a search that was cut short serves, and says so wherever it is shown.
TEST_F(DatabaseMaintenance, AnUnfinishedWinnerIsMarkedAndExportedWhenThatIsAskedFor) {
  for (const auto& [name, why] : std::map<std::string, std::string>{
           {"cut_short", "only 1 of 4 configs were ready in time"}, {"disturbance", "it shook"}}) {
    cache::Measurement winner = measurement(0, 60);
    winner.key.problem = generator::key_text({.operation = generator::Operation::softmax,
                                              .rows = 64,
                                              .columns = name == "cut_short" ? 512 : 1024});
    winner.environment[name] = why;
    cache_.add(winner);
    const std::string key = winner.key.id();
    EXPECT_NE(ce_tune({"explain", key, "--db", database()}).out.find(why), std::string::npos);
    const json list = document({"db", "list"});
    for (const auto& listed : list.at("keys"))
      if (listed.at("key") == key) {
        EXPECT_EQ(listed.at("winner").at("unfinished"), why);
      }
  }
  cache_.add(measurement(0, 60));
  EXPECT_EQ(document({"db", "export", "--winners", path("winners.jsonl")}).at("measurements"), 1);
  EXPECT_EQ(document({"db", "export", "--winners", "--unfinished", path("all.jsonl")}).at("measurements"), 3);
  EXPECT_EQ(ce_tune({"db", "export", "--unfinished", path("none.jsonl"), "--db", database()}).status, 2);
  const std::string table = ce_tune({"db", "list", "--db", database()}).out;
  EXPECT_NE(table.find(configs_.at(0) + " (unfinished)"), std::string::npos) << table;
}

TEST_F(DatabaseMaintenance, PruneTakesOutWhatWasReplacedAndSaysSoBefore) {
  for (const char* day : {"2030-01-01", "2030-01-02", "2030-01-03"}) {
    cache::Measurement m = dated(0, 50, day);
    m.template_digest = "older";
    m.stage = 0;
    cache_.add(m);
  }
  cache_.add(dated(0, 40, "2030-02-01"));
  cache_.keep_binary("of nothing", {}, {});
  EXPECT_EQ(document({"db", "prune"}).at("measurements"), 0) << "the last 100 stay";
  const Finished rehearsed = text({"db", "prune", "--keep", "1", "--dry-run"});
  EXPECT_NE(rehearsed.out.find("2 measurements and 0 compiled kernels would be removed"), std::string::npos)
      << rehearsed.out;
  EXPECT_EQ(cache_.status().measurements, 4);
  EXPECT_EQ(document({"db", "prune", "--keep", "1"}).at("measurements"), 2);
  EXPECT_EQ(cache_.status().measurements, 2);
  EXPECT_EQ(document({"db", "list"}).at("keys")[0].at("winner").at("median_us"), 40);
  expect_failure(text({"db", "prune", "--keep", "-1"}), 2, "--keep is \"-1\"");
  expect_failure(ce_tune({"db", "prune", "--db", path("absent.db")}), 8, "absent.db");
}

/// A database that is read and not tuned with is not mended: no command takes what is left of it for all of it.
TEST_F(DatabaseMaintenance, ADamagedDatabaseIsAnErrorOfWhoReadsIt) {
  for (int i = 0; i < 200; ++i) cache_.add(dated(0, 40 + i, "2030-01-01"));
  ASSERT_EQ(ce_tune({"db", "merge", database(), "--db", path("damaged.db")}).status, 0);
  std::string bytes = test::read_file(path("damaged.db"));
  const std::size_t page = 4096, of_a_measurement = bytes.rfind("of " + configs_[0]) / page * page;
  bytes.replace(of_a_measurement, page, page, '\xaa');
  test::write_file(path("damaged.db"), bytes);
  const std::string named = path("damaged.db") + " is damaged";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"regressions"},
                                             {"db", "show", id()},
                                             {"explain", id()},
                                             {"db", "history", id()},
                                             {"report", "--html", path("page.html")},
                                             {"db", "export", path("all.jsonl")}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--db", path("damaged.db")});
    SCOPED_TRACE(words.front() + " " + words.back());
    expect_failure(ce_tune(all), 7, named);
  }
  expect_failure(text({"regressions", "--against", path("damaged.db")}), 7, named);
  expect_failure(text({"db", "diff", path("damaged.db")}), 7, named);
  expect_failure(text({"db", "merge", path("damaged.db")}), 7, named);
  EXPECT_FALSE(std::filesystem::exists(path("page.html")));
  EXPECT_FALSE(std::filesystem::exists(path("all.jsonl")));
  const Finished verified = ce_tune({"db", "verify", "--json", "--db", path("damaged.db")});
  EXPECT_EQ(verified.status, 7);
  EXPECT_FALSE(nlohmann::json::parse(verified.out).at("damages").empty()) << verified.out;
  EXPECT_EQ(test::read_file(path("damaged.db")), bytes);
}

/// A ce of that version still uses it.
TEST_F(DatabaseMaintenance, ADatabaseOfAnotherSchemaIsAnErrorAndLeftAsItIs) {
  cache_.add(dated(0, 40, "2030-01-01"));
  const std::string other = path("other.db");
  ASSERT_EQ(ce_tune({"db", "merge", database(), "--db", other}).status, 0);
  for (const int version : {0, 2}) {
    SQLite::Database(other, SQLite::OPEN_READWRITE)
        .exec(fmt::format("UPDATE schema_versions SET version = {0}; PRAGMA user_version = {0}", version));
    const std::string before = test::read_file(other);
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"db", "list"},
                                               {"db", "show", id()},
                                               {"db", "history", id()},
                                               {"db", "diff", database()},
                                               {"db", "export", path("all.jsonl")},
                                               {"db", "merge", database()},
                                               {"db", "verify"},
                                               {"db", "verify", "--repair"},
                                               {"db", "prune"},
                                               {"db", "vacuum"},
                                               {"regressions"},
                                               {"report", "--html", path("page.html")},
                                               {"explain", id()}}) {
      std::vector<std::string> all = words;
      all.insert(all.end(), {"--db", other});
      const Finished finished = ce_tune(all);
      EXPECT_EQ(finished.status, 7) << words.front() << ' ' << words.back() << ": " << finished.err;
      EXPECT_NE(finished.err.find(fmt::format("schema {}", version)), std::string::npos) << finished.err;
      EXPECT_EQ(test::read_file(other), before) << words.front() << ' ' << words.back();
    }
  }
}

/// A large import holds the lock for longer than a single write waits.
TEST_F(DatabaseMaintenance, ASweepThatEndsWhileTheDatabaseIsLockedWaits) {
  test::Child sweep(folder(),
                    {"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "1000",
                     "--device", "host", "--configs", "4", "--samples", "3", "--db", database()},
                    surroundings());
  ASSERT_TRUE(test::until([&] { return cache_.status().measurements > 0; })) << sweep.err();
  SQLite::Database other(database(), SQLite::OPEN_READWRITE, 5000);
  other.exec("BEGIN IMMEDIATE");
  const std::int64_t before = cache_.status().measurements;
  const auto says = [&](const char* text) { return sweep.err().find(text) != std::string::npos; };
  ASSERT_TRUE(
      test::until([&] { return says("is locked by another process: ce waits") || !sweep.running(); }));
  other.exec("ROLLBACK");
  const Finished finished = sweep.wait();
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_TRUE(says("now contains the measurements that were only in memory")) << finished.err;
  EXPECT_GT(cache_.status().measurements, before);
}

TEST_F(DatabaseMaintenance, VerifyNamesWhatIsDamaged) {
  cache_.add(dated(0, 40, "2030-01-01"));
  cache_.keep_binary("binary", std::vector<std::byte>(10), {});
  EXPECT_TRUE(document({"db", "verify"}).at("damages").empty());
  execute("UPDATE binaries SET image = x'01'");
  const Finished finished = text({"db", "verify"});
  EXPECT_EQ(finished.status, 7);
  EXPECT_NE(finished.out.find("binaries: the digest of binary does not match its bytes\n"), std::string::npos)
      << finished.out;
  EXPECT_NE(finished.out.find("damaged\n"), std::string::npos) << finished.out;
  test::write_file(path("damaged.db"), std::string(5000, 'x'));
  expect_failure(ce_tune({"db", "verify", "--db", path("damaged.db")}), 7, "damaged.db");
}

TEST_F(DatabaseMaintenance, VacuumShrinksTheFile) {
  cache_.keep_binary("large", std::vector<std::byte>(1 << 20, std::byte{7}), {});
  execute("DELETE FROM binaries");
  const json shown = document({"db", "vacuum"});
  EXPECT_LT(shown.at("bytes_after"), shown.at("bytes_before").get<std::int64_t>() / 4);
  expect_failure(ce_tune({"db", "vacuum", "--db", path("absent.db")}), 8, "absent.db");
}

TEST_F(DatabaseMaintenance, EveryQueryOfTheDocumentationRuns) {
  cache_.add(dated(0, 40, "2030-01-01"));
  cache::Measurement hot = dated(1, 30, "2030-01-02");
  hot.environment["throttle"] = "power cap";
  cache_.add(hot);
  cache::Measurement wrong = dated(2, 0, "2030-01-03");
  wrong.outcome = cache::Outcome::quarantined;
  wrong.reason = "wrong";
  cache_.add(wrong);
  cache::Measurement screened = dated(3, 70, "2030-01-04");
  screened.stage = 0;
  cache_.add(screened);
  cache::Measurement slower = dated(0, 50, "2030-01-05");
  slower.environment["driver"] = "590.1";
  cache_.add(slower);

  const std::string page = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/database.md");
  const std::regex block("```sql\n([^`]*)```");
  SQLite::Database opened(database(), SQLite::OPEN_READONLY);
  int queries = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), block), end; at != end; ++at, ++queries) {
    SQLite::Statement query(opened, at->str(1));
    EXPECT_TRUE(query.executeStep()) << "finds nothing: " << at->str(1);
  }
  int starts = 0;
  for (std::size_t at = page.find("```sql"); at != std::string::npos; at = page.find("```sql", at + 1))
    ++starts;
  EXPECT_EQ(queries, starts);
  EXPECT_GT(queries, 0);
}

TEST_F(DatabaseMaintenance, TheDocumentationNamesEveryTableViewAndColumn) {
  const std::string page = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/database.md");
  SQLite::Database opened(database(), SQLite::OPEN_READONLY);
  SQLite::Statement columns(
      opened,
      "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c "
      "WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%'");
  while (columns.executeStep())
    for (const int column : {0, 1}) {
      const std::string name = columns.getColumn(column).getString();
      EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << name;
    }
  EXPECT_NE(
      page.find("the version of the schema: " + opened.execAndGet("PRAGMA user_version").getString() + "."),
      std::string::npos);
}

}  // namespace
}  // namespace ce::cli
