// What decides is read, and nothing else.
#include <SQLiteCpp/Database.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/schema.hpp"
#include "cache/store.hpp"
#include "tests/cache/fixture.hpp"

namespace ce::cache::test {
namespace {

class Finals : public CacheTest {
 protected:
  Finals() {
    auto database =
        std::make_unique<SQLite::Database>(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    connection_ = database->getHandle();
    create_tables(*database);
    store_.emplace(std::move(database));
  }

  void add(const std::string& config, int stage, double median_us, const std::string& templates = "today",
           Outcome outcome = Outcome::measured) {
    Measurement measurement = a_measurement(key, config, ++number_);
    measurement.stage = stage;
    measurement.median_us = median_us;
    measurement.template_digest = templates;
    measurement.outcome = outcome;
    store_->add(std::span(&measurement, 1));
  }

  /// What is added next has the time of what was added last.
  void stop_the_clock() { --number_; }

  /// "config median" of each finalist, and what it costs to look at all of them.
  std::set<std::string> seen() {
    std::set<std::string> texts;
    const int before = steps();
    const std::vector<std::string> digests{"other", "today"};
    static_cast<void>(store_->final_of(key, digests, [&](std::vector<Finalist>& list) -> const Finalist* {
      for (const Finalist& finalist : list)
        texts.insert(finalist.config + " " + std::to_string(static_cast<int>(finalist.median_us)));
      return list.empty() ? nullptr : &list.front();
    }));
    last_steps_ = steps() - before;
    return texts;
  }
  [[nodiscard]] int last_steps() const { return last_steps_; }
  [[nodiscard]] bool has(std::span<const std::string> digests) { return store_->has(key, digests); }

 private:
  /// Of SQLite's virtual machine, by all statements so far.
  [[nodiscard]] int steps() const {
    int total = 0;
    for (sqlite3_stmt* statement = nullptr;
         (statement = sqlite3_next_stmt(connection_, statement)) != nullptr;)
      total += sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 0);
    return total;
  }

  sqlite3* connection_ = nullptr;
  std::optional<Store> store_;
  int number_ = 0, last_steps_ = 0;
};

using Texts = std::set<std::string>;

TEST_F(Finals, TheLastOfTheHighestStageCounts) {
  EXPECT_EQ(seen(), Texts());
  add("a", stage_of_screenings, 1);
  add("b", stage_of_checks, 2);
  EXPECT_EQ(seen(), Texts());
  add("a", stage_of_finals, 3);
  add("a", stage_of_finals, 4);
  add("a", stage_of_screenings, 5);
  add("b", 2, 6);
  add("b", stage_of_finals, 7);
  add("c", stage_of_finals, 8, "other");
  add("d", stage_of_finals, 9, "of yore");
  EXPECT_EQ(seen(), (Texts{"a 4", "b 6", "c 8"}));
}

TEST_F(Finals, AQuarantineWithdrawsWhatCameBeforeItWithTheSameTemplates) {
  add("a", stage_of_finals, 3);
  add("b", stage_of_finals, 4);
  add("a", stage_of_screenings, 0, "of yore", Outcome::quarantined);
  EXPECT_EQ(seen(), (Texts{"a 3", "b 4"}));
  add("a", stage_of_screenings, 0, "today", Outcome::quarantined);
  EXPECT_EQ(seen(), Texts{"b 4"});
  add("a", stage_of_finals, 5);
  EXPECT_EQ(seen(), (Texts{"a 5", "b 4"}));
}

TEST_F(Finals, AQuarantineOfTheSameMomentComesAfterWhatWasAddedBefore) {
  add("a", stage_of_finals, 3);
  stop_the_clock();
  add("a", stage_of_screenings, 0, "today", Outcome::quarantined);
  EXPECT_EQ(seen(), Texts());
}

TEST_F(Finals, WhatDoesNotDecideCostsNothing) {
  for (const char* config : {"a", "b", "c"}) add(config, stage_of_finals, 1);
  add("a", stage_of_finals, 1, "of yore");
  const auto add_others = [&](int i) {
    const std::string other = "other " + std::to_string(i);
    add(other, stage_of_screenings, 1);
    add(other, stage_of_screenings, 1, "today", Outcome::quarantined);
    add(other, stage_of_finals, 1, "of yore");
    add(i % 2 == 0 ? "a" : "b", stage_of_finals, i);  // other drivers, say
    add("c", stage_of_checks, 1);
  };
  add_others(0);
  add_others(1);
  EXPECT_EQ(seen(), (Texts{"a 0", "b 1", "c 1"}));
  const int steps = last_steps();
  for (int i = 2; i < 500; ++i) add_others(i);
  EXPECT_EQ(seen(), (Texts{"a 498", "b 499", "c 1"}));
  EXPECT_EQ(last_steps(), steps);
}

TEST_F(Finals, TellsWhetherTemplatesMeasuredAnything) {
  const std::vector<std::string> today{"today", "another of today"}, tomorrow{"tomorrow"};
  EXPECT_FALSE(has(today));
  add("a", stage_of_finals, 1, "of yore");
  EXPECT_FALSE(has(today));
  add("a", stage_of_screenings, 1);
  EXPECT_TRUE(has(today));
  EXPECT_FALSE(has(tomorrow));
}

}  // namespace
}  // namespace ce::cache::test
