#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ce/error.hpp"
#include "cli/long_work.hpp"
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

TEST(Table, FiguresOfAColumnHaveOneUnitAndTheDigitsThatDiffer) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(time_figures({8.25, 812.34}).texts, (Texts{"8.25", "812.34"}));
  EXPECT_EQ(time_figures({8.25, 812.34}).unit, "us");
  EXPECT_EQ(time_figures({100.1, 100.3, 250}).texts, (Texts{"100.1", "100.3", "250.0"}));
  EXPECT_EQ(time_figures({100.1, 100.15}).texts, (Texts{"100", "100"})) << "as near as times repeat";
  EXPECT_EQ(time_figures({100, 250}).texts, (Texts{"100", "250"}));
  EXPECT_EQ(time_figures({12345, 99999}).texts, (Texts{"12.3", "100.0"}));
  EXPECT_EQ(time_figures({12345, 99999}).unit, "ms");
  EXPECT_EQ(time_figures({99999, 12}).unit, "us") << "the smallest one decides";
  EXPECT_EQ(time_figures({0, 45}).texts, (Texts{"-", "45.0"})) << "none was timed";
  EXPECT_EQ(throughput_figures({312.4, 312.0}).texts, (Texts{"312.4", "312.0"}));
  EXPECT_EQ(throughput_figures({3110, 2000}).texts, (Texts{"3110", "2000"}));
  EXPECT_TRUE(time_figures({}).texts.empty());
}

TEST(Table, FitsItsLine) {
  static_cast<void>(has_left_out());
  Table table({{.title = "NAME", .least = 8},
               Table::times("TIME"),
               {.title = "MORE", .rank = 1},
               {.title = "LEAST", .rank = 2}});
  table.add({{"a name that is long", " (mark)"}, 8.25, "more", "of least weight"});
  table.add({"short", "-", "more", ""});
  EXPECT_EQ(table.text(0, any_width),
            "NAME                        TIME us  MORE  LEAST\n"
            "a name that is long (mark)     8.25  more  of least weight\n"
            "short                             -  more\n");
  EXPECT_FALSE(has_left_out());
  EXPECT_EQ(table.text(0, 36),
            "NAME                   TIME us  MORE\n"
            "a name that .. (mark)     8.25  more\n"
            "short                        -  more\n");
  EXPECT_TRUE(has_left_out());
  EXPECT_FALSE(has_left_out()) << "since the last call";
  EXPECT_EQ(table.text(2, 20).find("MORE"), std::string::npos);
}

TEST(Table, AColumnWithoutTextsIsNotPrinted) {
  Table table({{"A"}, {"EMPTY"}, {"B"}});
  table.add({"a", "", "b"});
  EXPECT_EQ(table.text(), "A  B\na  b\n");
}

TEST(LongWork, ALineTellsWhatIsDone) {
  EXPECT_EQ(work_line("comparing problems", 12, 120, 5000, 80),
            "ce-tune: comparing problems, 120 of 5000, 12 s");
  EXPECT_EQ(work_line("looking for damage", 65, 0, 0, 80), "ce-tune: looking for damage, 1 min 05 s");
  EXPECT_EQ(work_line("comparing problems", 12, 120, 5000, 20), "ce-tune: comparing..");
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
