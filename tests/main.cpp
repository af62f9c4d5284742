/// \file
/// Runs the tests of a program in an environment of its own, whoever starts it: no database of the user's and none below
/// it, no policy, and folders for data and caches beside the program.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

int main(int argc, char** argv) {
  const std::filesystem::path home = std::filesystem::read_symlink("/proc/self/exe").concat(".home");
  for (const char* name : {"CE_DB", "CE_SITE_DB", "CE_POLICY"}) ::unsetenv(name);
  ::setenv("CE_SYSTEM_DB", "none", 1);
  ::setenv("XDG_DATA_HOME", (home / "data").c_str(), 1);
  ::setenv("XDG_CACHE_HOME", (home / "cache").c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
