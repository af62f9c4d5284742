#include <gtest/gtest.h>

#include "tests/cache/processes.hpp"

int main(int argc, char** argv) {
  if (const auto code = ce::cache::test::run_task({argv + 1, argv + argc})) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
