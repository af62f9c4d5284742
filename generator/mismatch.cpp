#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/elements.hpp"
#include "generator/trial.hpp"

namespace ce::generator {
namespace {

bool agrees(double got, double want, const Expected& expected) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= expected.absolute + expected.relative * std::abs(want);
}

std::optional<std::string> mismatch_in(const Trial& trial, const Expected& expected,
                                       std::span<const std::byte> bytes) {
  const TrialTensor& tensor = trial.tensors[expected.tensor];
  const std::byte* start = bytes.data() + tensor.offset;
  for (std::int64_t row = 0; row < expected.rows; ++row) {
    for (std::int64_t column = 0; column < expected.columns; ++column) {
      const double want = expected.values[static_cast<std::size_t>(row * expected.columns + column)];
      const double got = read_element(expected.dtype, start, row * expected.stride + column);
      if (!agrees(got, want, expected))
        return fmt::format("{}[{}, {}] is {}, expected {}", tensor.name, row, column, got, want);
    }
    for (std::int64_t column = expected.columns; column < expected.stride; ++column)
      for (int i = 0; i < size_of(expected.dtype); ++i)
        if (start[(row * expected.stride + column) * size_of(expected.dtype) + i] != poison)
          return fmt::format("{} was written beyond its last column in row {}", tensor.name, row);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> mismatch(const Trial& trial, std::span<const std::vector<std::byte>> tensors) {
  for (const Expected& expected : trial.expected)
    if (auto wrong = mismatch_in(trial, expected, tensors[expected.tensor])) return wrong;
  for (const ExpectedBytes& expected : trial.expected_bytes)
    if (!std::equal(expected.bytes.begin(), expected.bytes.end(), tensors[expected.tensor].begin()))
      return fmt::format("{} holds other bytes than expected", trial.tensors[expected.tensor].name);
  return std::nullopt;
}

}  // namespace ce::generator
