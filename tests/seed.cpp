#include "tests/seed.hpp"

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "tests/environment.hpp"

namespace ce::test {
namespace {

std::uint64_t chosen_seed(std::uint64_t otherwise) {
  const char* chosen = std::getenv("CE_TEST_SEED");
  const std::uint64_t seed = chosen != nullptr ? std::stoull(chosen) : otherwise;
  std::cout << "CE_TEST_SEED=" << seed << std::endl;  // before the test ends in a way that loses it
  return seed;
}

}  // namespace

std::uint64_t test_seed() { return chosen_seed(std::random_device()()); }
std::uint64_t estimate_seed() { return chosen_seed(1); }

bool is_drawn(std::uint64_t seed, std::size_t number, std::size_t parts) {
  return is_required("CE_FULL_TESTS") || (seed + number) % parts == 0;
}

}  // namespace ce::test
