#include "tests/run_tests.hpp"

int main(int argc, char** argv) { return ce::test::run_tests(argc, argv); }
