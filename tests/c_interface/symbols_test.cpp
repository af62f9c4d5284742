// What libce_c.so shows and needs, as the tools of the linker see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/output_of.hpp"

namespace {

using ce::test::output_of;

std::string text_of_header() {
  std::ifstream stream(CE_SOURCE_DIR "/include/ce/ce.h");
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::set<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    found.insert((*match)[1]);
  return found;
}

TEST(Library, ShowsTheFunctionsOfItsHeaderAndNothingElse) {
  std::istringstream lines(output_of("nm -D --defined-only '" CE_C_LIBRARY "'"));
  std::set<std::string> shown;
  for (std::string line; std::getline(lines, line);) shown.insert(line.substr(line.rfind(' ') + 1));
  const std::set<std::string> declared = matches(text_of_header(), R"(CE_C_API [^;]*?(ce_\w+)\()");
  EXPECT_GT(declared.size(), 30u);
  EXPECT_EQ(shown, declared);
}

/// Whatever it loads could be another copy than the one that the process has.
TEST(Library, LoadsTheCLibraryAlone) {
  if (std::string(CE_C_SHARED) != "") GTEST_SKIP() << "no archive of " CE_C_SHARED " to link";
  for (const std::string& needed :
       matches(output_of("readelf -d '" CE_C_LIBRARY "'"), R"(NEEDED.*\[([^\]]*)\])"))
    EXPECT_THAT(needed,
                testing::MatchesRegex("(libc|libm|libdl|libpthread|ld-linux[a-z0-9-]*)\\.so\\.[0-9]+"));
}

TEST(Library, HasAHeaderWithoutDependencies) {
  EXPECT_EQ(matches(text_of_header(), "#include ([^\\n]*)"),
            (std::set<std::string>{"<stddef.h>", "<stdint.h>"}));
}

}  // namespace
