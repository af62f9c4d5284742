#include "tests/ce/fixture.hpp"

namespace ce::test {

std::string tested_device() { return "cuda"; }

}  // namespace ce::test
