#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ce/error.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

TEST(Units, DurationsAreRead) {
  EXPECT_EQ(parse_duration("--budget", "90s"), 90);
  EXPECT_EQ(parse_duration("--budget", "10m"), 600);
  EXPECT_EQ(parse_duration("--budget", "1.5h"), 5400);
  for (const char* wrong : {"", "10", "m", "0s", "-1s", "1d", "1h30m", "nans", "1e99h"})
    EXPECT_THROW(static_cast<void>(parse_duration("--budget", wrong)), InvalidArgument) << wrong;
}

TEST(Units, SizesAreRead) {
  EXPECT_EQ(parse_size("--scratch", "1000"), 1000);
  EXPECT_EQ(parse_size("--scratch", "17B"), 17);
  EXPECT_EQ(parse_size("--scratch", "4GiB"), std::int64_t{4} << 30);
  EXPECT_EQ(parse_size("--scratch", "512 MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(parse_size("--scratch", "1.5kB"), 1500);
}

TEST(Units, WhatIsNoSizeIsNamed) {
  for (const std::string text :
       {"", "GiB", "4gigs", "-1GiB", "0", "0.5", "nan", "inf", "1e300TB", "4GiB more"}) {
    try {
      static_cast<void>(parse_size("--scratch", text));
      ADD_FAILURE() << text << " was taken for a size";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "--scratch");
      EXPECT_EQ(error.value(), "\"" + text + "\"");
    }
  }
}

TEST(Units, CountsHaveBounds) {
  EXPECT_EQ(parse_count("--rows", "1", 1, 9), 1);
  EXPECT_EQ(parse_count("--rows", "9", 1, 9), 9);
  for (const char* text : {"0", "10", "-1", "", "3x", " 3", "3.0", "99999999999999999999"})
    EXPECT_THROW(static_cast<void>(parse_count("--rows", text, 1, 9)), InvalidArgument) << text;
}

TEST(Units, AmountsAreNumbersOfF32) {
  EXPECT_EQ(parse_amount("--scale", "0.25"), 0.25F);
  EXPECT_EQ(parse_amount("--scale", "-1e-4"), -1e-4F);
  for (const char* text : {"", "x", "1x", "inf", "-inf", "nan", "1e39"})
    EXPECT_THROW(static_cast<void>(parse_amount("--scale", text)), InvalidArgument) << text;
}

TEST(Units, ListsKeepTheirOrderAndLoseRepetitions) {
  EXPECT_EQ(split_list("--cols", {"4096,1000", "7,4096"}), (std::vector<std::string>{"4096", "1000", "7"}));
  EXPECT_TRUE(split_list("--cols", {}).empty());
  for (const char* text : {"", ",", "1,", ",1", "1,,2"})
    EXPECT_THROW(static_cast<void>(split_list("--cols", {text})), InvalidArgument) << text;
}

TEST(Units, QuantitiesFitTheirUnit) {
  EXPECT_EQ(time_text(8.25), "8.25 us");
  EXPECT_EQ(time_text(812.34), "812.3 us");
  EXPECT_EQ(time_text(12345), "12.35 ms");
  EXPECT_EQ(time_text(2.5e6), "2.50 s");
  EXPECT_EQ(size_text(512), "512 B");
  EXPECT_EQ(size_text(50 * 1024 * 1024), "50.0 MiB");
  EXPECT_EQ(duration_text(0.4), "0 s");
  EXPECT_EQ(duration_text(59.6), "1 min 00 s");
  EXPECT_EQ(duration_text(185), "3 min 05 s");
  EXPECT_EQ(duration_text(7800), "2 h 10 min");
  EXPECT_EQ(percent_text(0.0321), "3.2%");
  EXPECT_EQ(counted(1, "config"), "1 config");
  EXPECT_EQ(counted(0, "config"), "0 configs");
}

TEST(Table, ColumnsLineUp) {
  Table table({{"PROBLEM"}, {"TIME", Table::Align::right}, {"NOTE"}});
  table.add({"softmax", "8.25 us", "ok"});
  table.add({"cross_entropy", "812.3 us", ""});
  EXPECT_EQ(table.text(2),
            "  PROBLEM            TIME  NOTE\n"
            "  softmax         8.25 us  ok\n"
            "  cross_entropy  812.3 us\n");
}

TEST(Table, WidthIsThatOfCharactersNotBytes) {
  EXPECT_EQ(width_of("\xC2\xB5s"), 2U);
  Table table({{"T"}, {"U"}});
  table.add({"\xC2\xB5", "x"});
  EXPECT_EQ(table.text(), "T  U\n\xC2\xB5  x\n");
}

TEST(Table, EveryColumnNeedsACell) {
  Table table({{"A"}, {"B"}});
  EXPECT_THROW(table.add({"only one"}), InvalidArgument);
}

TEST(Table, CuttingKeepsCharactersWhole) {
  EXPECT_EQ(cut("abcdef", 6), "abcdef");
  EXPECT_EQ(cut("abcdef", 5), "abc..");
  EXPECT_EQ(cut("\xC2\xB5\xC2\xB5\xC2\xB5\xC2\xB5", 3), "\xC2\xB5..");
  EXPECT_EQ(cut("abcdef", 1), ".");
  EXPECT_EQ(cut("abcdef", 0), "");
}

}  // namespace
}  // namespace ce::cli
