// Damage that db commands meet: who writes looks first, and db verify --repair mends.

#include <SQLiteCpp/Database.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using test::Finished;
using testing::HasSubstr;

class DatabaseRepair : public test::DatabaseTest {
 protected:
  DatabaseRepair() {
    for (int i = 0; i < 100; ++i) {
      cache::Measurement m = measurement(static_cast<std::size_t>(i) % 5, 40 + i);
      m.environment["run"] = std::to_string(i);
      cache_.add(m);
    }
    cache_.keep_binary("of " + configs_[0], std::vector<std::byte>(6000, std::byte{0x5a}), {});
    cache_.keep_binary("of " + configs_[1], std::vector<std::byte>(6000, std::byte{0x6b}), {});
    EXPECT_EQ(ce_tune({"db", "merge", database(), "--binaries", "--db", file()}).status, 0);
  }

  [[nodiscard]] std::string file() const { return path("some.db"); }
  [[nodiscard]] Finished run(std::vector<std::string> words) const {
    words.insert(words.end(), {"--db", file()});
    return ce_tune(words);
  }
  [[nodiscard]] std::vector<std::string> set_aside() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder()))
      if (entry.path().string().find(".corrupt-") != std::string::npos) found.push_back(entry.path());
    return found;
  }
  void flip_a_byte_of_a_kernel() const {
    std::string bytes = test::read_file(file());
    const std::size_t at = bytes.find(std::string(1000, '\x6b'));
    ASSERT_NE(at, std::string::npos);
    bytes[at + 500] = '\x6c';
    test::write_file(file(), bytes);
  }
  void spoil_a_page() const {
    constexpr std::size_t page = 4096;
    std::string bytes = test::read_file(file());
    bytes.replace(bytes.rfind("of " + configs_[2]) / page * page, page, page, '\xaa');
    test::write_file(file(), bytes);
  }
};

TEST_F(DatabaseRepair, AFlippedByteOfAKernelIsReportedAndMended) {
  flip_a_byte_of_a_kernel();
  const std::string damage = "binaries: the digest of of " + configs_[1] + " does not match its bytes";
  const Finished verified = run({"db", "verify"});
  EXPECT_EQ(verified.status, 7);
  EXPECT_THAT(verified.out, HasSubstr(damage));
  const Finished mended = run({"db", "verify", "--repair"});
  EXPECT_EQ(mended.status, 0) << mended.err;
  EXPECT_THAT(mended.out, HasSubstr(damage));
  EXPECT_THAT(mended.out,
              HasSubstr("1 compiled kernel removed from " + file() + "; ce compiles what it needs again"));
  EXPECT_EQ(run({"db", "verify"}).status, 0);
  EXPECT_EQ(set_aside(), std::vector<std::string>()) << "all else of it was whole";
  const cache::Cache after = cache::Cache::open_existing(file());
  EXPECT_EQ(after.status().measurements, 100);
  EXPECT_TRUE(after.binary("of " + configs_[0]).has_value());
  EXPECT_FALSE(after.binary("of " + configs_[1]).has_value());
}

TEST_F(DatabaseRepair, OtherDamageIsSetAsideAndWhatCanBeReadIsKept) {
  spoil_a_page();
  const Finished mended = run({"db", "verify", "--repair", "--json"});
  EXPECT_EQ(mended.status, 0) << mended.err;
  const auto document = nlohmann::json::parse(mended.out);
  EXPECT_FALSE(document.at("damages").empty());
  ASSERT_EQ(std::ranges::count_if(set_aside(), [](const std::string& name) { return name.ends_with("Z"); }),
            1);
  EXPECT_THAT(document.at("repaired").get<std::string>(), HasSubstr("set aside as " + set_aside().front()));
  const auto again = nlohmann::json::parse(run({"db", "verify", "--repair", "--json"}).out);
  EXPECT_TRUE(again.at("damages").empty());
  EXPECT_TRUE(again.at("repaired").is_null());
  EXPECT_GT(cache::Cache::open_existing(file()).status().measurements, 0);
}

TEST_F(DatabaseRepair, EveryCommandNamesTheSameRemedy) {
  std::string bytes = test::read_file(file());
  bytes.replace(100, 400, 400, '\x7f');  // the root of the schema
  test::write_file(file(), bytes);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"db", "list"},
                                             {"db", "export", path("lines")},
                                             {"db", "prune", "--keep", "0"},
                                             {"db", "vacuum"}}) {
    SCOPED_TRACE(words[1]);
    const Finished refused = run(words);
    EXPECT_EQ(refused.status, 7) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("ce-tune db verify --repair"));
  }
  EXPECT_EQ(run({"db", "verify", "--repair"}).status, 0);
}

TEST_F(DatabaseRepair, WhoWritesExaminesTheFileFirst) {
  ASSERT_EQ(text({"db", "export", path("lines")}).status, 0);
  const std::string whole = test::read_file(file());
  const auto expect_refused = [&] {
    const std::string before = test::read_file(file());
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"db", "import", path("lines")},
                                               {"db", "merge", database()},
                                               {"db", "prune", "--keep", "0"},
                                               {"db", "vacuum"}}) {
      SCOPED_TRACE(words[1]);
      const Finished refused = run(words);
      EXPECT_EQ(refused.status, 7) << refused.out;
      EXPECT_THAT(refused.err, HasSubstr(file() + " is damaged"));
      EXPECT_THAT(refused.err, HasSubstr("ce-tune db verify --repair"));
      EXPECT_TRUE(test::read_file(file()) == before) << "it was written to";
    }
    EXPECT_EQ(set_aside(), std::vector<std::string>());
    EXPECT_EQ(run({"db", "verify", "--repair"}).status, 0);
    const Finished vacuumed = run({"db", "vacuum"});
    EXPECT_EQ(vacuumed.status, 0) << vacuumed.err;
    for (const std::string& name : set_aside()) std::filesystem::remove(name);
  };
  spoil_a_page();
  expect_refused();
  test::write_file(file(), whole);
  SQLite::Database(file(), SQLite::OPEN_READWRITE).exec("DROP TRIGGER measurements_refuse_update");
  expect_refused();
}

}  // namespace
}  // namespace ce::cli
