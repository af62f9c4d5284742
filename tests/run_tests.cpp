#include "tests/run_tests.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace ce::test {

int run_tests(int argc, char** argv) {
  const std::filesystem::path home = std::filesystem::read_symlink("/proc/self/exe").concat(".home");
  for (const char* name : {"CE_DB", "CE_SITE_DB", "CE_POLICY", "CE_TRUST", "CE_REMOTE_GET", "CE_REMOTE_PUT"})
    ::unsetenv(name);
  ::setenv("CE_SYSTEM_DB", "none", 1);
  ::setenv("XDG_DATA_HOME", (home / "data").c_str(), 1);
  ::setenv("XDG_CACHE_HOME", (home / "cache").c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace ce::test
