#pragma once
/// \file
/// Seeds of tests that draw: each says its own, and CE_TEST_SEED repeats it.

#include <cstddef>
#include <cstdint>

namespace ce::test {

/// CE_TEST_SEED, else another one each time; printed. \throws std::exception where the variable is no number
[[nodiscard]] std::uint64_t test_seed();

/// Of what is estimated by drawing from a recording: CE_TEST_SEED, else always the same, since a share that is close
/// to its bound would be beyond it for some seeds; printed.
[[nodiscard]] std::uint64_t estimate_seed();

/// Of what takes long a part, which the seed draws: true for one number in `parts`, with CE_FULL_TESTS=1 for all.
[[nodiscard]] bool is_drawn(std::uint64_t seed, std::size_t number, std::size_t parts);

}  // namespace ce::test
