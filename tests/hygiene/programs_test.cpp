#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

/// The sources below a folder with this text, which is given in two halves: this file has it not.
std::vector<std::string> files_with(const std::string& first, const std::string& second,
                                    const std::string& folder = "tests") {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(CE_SOURCE_DIR) / folder)) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".hpp") continue;
    std::ifstream stream(entry.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (text.find(first + second) != std::string::npos)
      files.push_back(entry.path().lexically_relative(CE_SOURCE_DIR));
  }
  return files;
}

/// A main() that runs its tests itself would run them with the databases and the policy of the user who starts it.
TEST(Programs, AllRunTheirTestsInAnEnvironmentOfTheirOwn) {
  EXPECT_THAT(files_with("return RUN_ALL", "_TESTS"), testing::ElementsAre("tests/run_tests.cpp"));
}

/// What CE_TEST_SEED does not reach cannot be repeated.
TEST(Programs, AllDrawFromOneSeed) {
  EXPECT_THAT(files_with("random", "_device"), testing::ElementsAre("tests/seed.cpp"));
}

/// A set-uid program must not load what a variable of its user names, and an empty variable counts as unset.
TEST(Programs, ReadTheEnvironmentInOnePlace) {
  std::vector<std::string> files;
  for (const char* room : {"base", "c", "cache", "ce", "cli", "generator", "runtime", "tuner"})
    for (const std::string& file : files_with("get", "env(", room)) files.push_back(file);
  EXPECT_THAT(files, testing::ElementsAre("base/environment.cpp"));
}

/// The environment of a set-uid program's user is not for compilers either.
TEST(Programs, StartOthersWithAnEnvironmentThatIsChosenInOnePlace) {
  std::vector<std::string> files;
  for (const char* room : {"base", "c", "cache", "ce", "cli", "generator", "runtime", "tuner"})
    for (const std::string& file : files_with(" envi", "ron;", room)) files.push_back(file);
  for (const char* room : {"base", "c", "cache", "ce", "cli", "generator", "runtime", "tuner"})
    for (const std::string& file : files_with(" envi", "ron)", room)) files.push_back(file);
  EXPECT_THAT(files, testing::ElementsAre("base/environment.cpp"));
}

}  // namespace
