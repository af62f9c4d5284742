#pragma once
/// \file
/// Seeds of tests that draw: each says its own, and CE_TEST_SEED repeats it.

#include <cstdint>

namespace ce::test {

/// CE_TEST_SEED, else another one each time; printed. \throws std::exception where the variable is no number
[[nodiscard]] std::uint64_t test_seed();

/// Of what is estimated by drawing from a recording: CE_TEST_SEED, else always the same, since a share that is close
/// to its bound would be beyond it for some seeds; printed.
[[nodiscard]] std::uint64_t estimate_seed();

}  // namespace ce::test
