#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

/// The sources of tests with this text, which is given in two halves: this file has it not.
std::vector<std::string> files_with(const std::string& first, const std::string& second) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CE_SOURCE_DIR "/tests")) {
    if (entry.path().extension() != ".cpp") continue;
    std::ifstream stream(entry.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (text.find(first + second) != std::string::npos)
      files.push_back(entry.path().lexically_relative(CE_SOURCE_DIR));
  }
  return files;
}

/// A main() that runs its tests itself would run them with the databases and the policy of whoever starts it.
TEST(Programs, AllRunTheirTestsInAnEnvironmentOfTheirOwn) {
  EXPECT_THAT(files_with("return RUN_ALL", "_TESTS"), testing::ElementsAre("tests/run_tests.cpp"));
}

/// What CE_TEST_SEED does not reach cannot be repeated.
TEST(Programs, AllDrawFromOneSeed) {
  EXPECT_THAT(files_with("random", "_device"), testing::ElementsAre("tests/seed.cpp"));
}

}  // namespace
