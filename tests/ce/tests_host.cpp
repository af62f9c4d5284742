#include "tests/ce/fixture.hpp"

namespace ce::test {

std::string tested_device() { return "host"; }

}  // namespace ce::test
