#include "base/printable.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/log.hpp"
#include "ce/error.hpp"

namespace {

using ce::Lines;
using ce::printable;

TEST(Printable, TextOfPeopleStaysAsItIs) {
  for (const std::string text : {"", "softmax bf16 8192 x 4096", "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x99\x82",
                                 R"(C:\x1b)", "\xC2\xA0", "\xE2\x80\x8D", "\xE2\x81\xA5", "\xE2\x81\xAA"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatATerminalWouldObeyIsShown) {
  EXPECT_EQ(printable("a\x1b]0;title\x07"), R"(a\x1b]0;title\x07)");
  EXPECT_EQ(printable(std::string("\0\x7f\r", 3)), R"(\x00\x7f\x0d)");
  EXPECT_EQ(printable("\xC2\x80 \xC2\x9B"
                      "2J\xC2\x9F"),
            R"(\u0080 \u009b2J\u009f)")
      << "C1";
  EXPECT_EQ(printable("\xD8\x9C\xE2\x80\x8E\xE2\x80\x8F\xE2\x80\xAA\xE2\x80\xAE\xE2\x81\xA6\xE2\x81\xA9"),
            R"(\u061c\u200e\u200f\u202a\u202e\u2066\u2069)")
      << "direction of text";
  EXPECT_EQ(printable("\xE2\x80\xA8\xE2\x80\xA9"), R"(\u2028\u2029)");
}

TEST(Printable, BytesThatAreNoUtf8AreShown) {
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            R"(\x9b2J)")
      << "C1 of terminals that take single bytes";
  EXPECT_EQ(printable("\xC0\xAF"), R"(\xc0\xaf)") << "an overlong slash";
  EXPECT_EQ(printable("\xED\xA0\x80"), R"(\xed\xa0\x80)") << "a surrogate";
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), R"(\xf4\x90\x80\x80)") << "beyond U+10FFFF";
  EXPECT_EQ(printable("a\xE2\x82"), R"(a\xe2\x82)") << "cut short";
}

TEST(Printable, LinesStayWhereTheyAreMeant) {
  EXPECT_EQ(printable("a\n\tb\r"), R"(a\n\tb\x0d)");
  EXPECT_EQ(printable("a\n\tb\r", Lines::many), "a\n\tb\\x0d");
}

TEST(Printable, OnceIsEnough) {
  const std::string once = printable("\x1b\xC2\x9B\xFF\n");
  EXPECT_EQ(printable(once), once);
}

TEST(Printable, ErrorsAndLinesOfTheLogAre) {
  EXPECT_STREQ(ce::NotFound("there is no \x1b[2J\xE2\x80\xAE\nbelow").what(),
               "there is no \\x1b[2J\\u202e\nbelow");
  EXPECT_EQ(ce::InvalidArgument("key", "\xC2\x9B\n", "another").value(), R"(\u009b\n)");
  std::string seen;
  ce::set_log_sink([&](ce::LogLevel, std::string_view line) { seen = line; });
  ce::log(ce::LogLevel::warning, "of a database: \x1b]0;title\x07");
  ce::set_log_sink({});
  EXPECT_EQ(seen, R"(of a database: \x1b]0;title\x07)");
}

}  // namespace
