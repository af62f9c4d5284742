#include "tests/cache/processes.hpp"
#include "tests/run_tests.hpp"

int main(int argc, char** argv) {
  if (const auto code = ce::cache::test::run_task({argv + 1, argv + argc})) return *code;
  return ce::test::run_tests(argc, argv);
}
