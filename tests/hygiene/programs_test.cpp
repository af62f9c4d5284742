#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

/// A main() that runs its tests itself would run them with the databases and the policy of whoever starts it.
TEST(Programs, AllRunTheirTestsInAnEnvironmentOfTheirOwn) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CE_SOURCE_DIR "/tests")) {
    if (entry.path().extension() != ".cpp") continue;
    std::ifstream stream(entry.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (text.find("return RUN_ALL"
                  "_TESTS") != std::string::npos)
      files.push_back(entry.path().lexically_relative(CE_SOURCE_DIR));
  }
  EXPECT_THAT(files, testing::ElementsAre("tests/run_tests.cpp"));
}

}  // namespace
