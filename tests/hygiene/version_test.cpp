#include "ce/version.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace {

TEST(Version, IsThatOfTheVersionFile) {
  std::ifstream stream(CE_SOURCE_DIR "/VERSION");
  std::string text;
  ASSERT_TRUE(std::getline(stream, text));
  EXPECT_EQ(ce::version(), text);
  EXPECT_EQ(text, std::to_string(CE_VERSION_MAJOR) + "." + std::to_string(CE_VERSION_MINOR) + "." +
                      std::to_string(CE_VERSION_PATCH));
}

}  // namespace
