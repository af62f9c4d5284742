#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tuner/verify/elements.hpp"
#include "tuner/verify/shard_statistics.hpp"
#include "tuner/verify/trial.hpp"

namespace ce::generator {
namespace {

/// Beyond this, intermediate f32 sums may have overflowed.
constexpr double overflows_on_the_way = 1e36;

/// The rare cases: NaN, infinities, and values that are too large for the dtype or for f32 sums.
bool agrees(double got, double want, double tolerance, DType dtype) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (!std::isinf(got)) return !std::isinf(want) && std::abs(got - want) <= tolerance;
  return got == want || (std::signbit(got) == std::signbit(want) &&
                         std::abs(want) + tolerance > std::min(largest(dtype), overflows_on_the_way));
}

/// The values of a row.
void read_row(const Trial& trial, const Expected& expected, const std::byte* start, std::int64_t row,
              std::span<double> values) {
  if (!expected.statistics)
    return read_elements(expected.dtype, start, expected.row_offset(row), expected.layout.column, values);
  std::vector<std::uint32_t> words(values.size());
  std::memcpy(words.data(), start + 4 * expected.row_offset(row), 4 * words.size());
  const float unit = expected.units.empty() ? unit_of(trial.problem, trial.arguments)
                                            : expected.units[static_cast<std::size_t>(row)];
  read_quantities(words, trial.problem, unit, values);
}

std::optional<std::string> wrong_value(const Trial& trial, const Expected& expected, const std::byte* start) {
  const std::string& name = trial.tensors[expected.tensor].name;
  std::vector<double> row_values(static_cast<std::size_t>(expected.columns));
  for (std::int64_t row = 0; row < expected.rows; ++row) {
    read_row(trial, expected, start, row, row_values);
    const auto first = static_cast<std::size_t>(row * expected.columns);
    for (std::size_t i = 0; i < row_values.size(); ++i) {
      const double got = row_values[i], want = expected.values[first + i];
      const double slack = expected.slack.empty() ? 0. : static_cast<double>(expected.slack[first + i]);
      const double tolerance = expected.absolute + expected.relative * std::abs(want) + slack;
      if (std::isfinite(want) && std::abs(got - want) <= tolerance) continue;
      if (!agrees(got, want, tolerance, expected.dtype))
        return fmt::format("{}[{}, {}] is {}, expected {}{}", name, row, i, got, want,
                           std::isfinite(want) ? fmt::format(" within {:.3g}", tolerance) : "");
    }
  }
  return std::nullopt;
}

/// Checks every element of the tensor that has no expected value.
std::optional<std::string> wrong_element(const TrialTensor& tensor, const Expected& expected,
                                         std::span<const std::byte> bytes) {
  const auto size = static_cast<std::size_t>(size_of(expected.dtype));
  std::vector<unsigned char> owned(bytes.size() / size);
  const auto start = static_cast<std::int64_t>(tensor.offset / size);
  for (std::int64_t row = 0; row < expected.rows; ++row) {
    unsigned char* element = owned.data() + start + expected.row_offset(row);
    if (expected.layout.column == 1)
      std::memset(element, 1, static_cast<std::size_t>(expected.columns));
    else
      for (std::int64_t i = 0; i < expected.columns; ++i) element[i * expected.layout.column] = 1;
  }
  for (auto found = std::ranges::find(owned, 0); found != owned.end();
       found = std::find(found + 1, owned.end(), 0)) {
    const std::size_t at = static_cast<std::size_t>(found - owned.begin());
    const auto element = bytes.subspan(at * size, size);
    if (!std::ranges::all_of(element, [](std::byte byte) { return byte == poison; }))
      return fmt::format("{} was written outside of its rows, {} elements from the first", tensor.name,
                         static_cast<std::int64_t>(at) - start);
  }
  return std::nullopt;
}

/// Whether the bytes are `initial` again and again.
bool repeats(std::span<const std::byte> bytes, std::span<const std::byte> initial) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), initial.size())))
    if (std::memcmp(bytes.data(), initial.data(), std::min(bytes.size(), initial.size())) != 0) return false;
  return true;
}

}  // namespace

std::optional<std::string> mismatch(const Trial& trial, std::span<const std::vector<std::byte>> tensors) {
  for (const Expected& expected : trial.expected) {
    const TrialTensor& tensor = trial.tensors[expected.tensor];
    const std::vector<std::byte>& bytes = tensors[expected.tensor];
    if (auto wrong = wrong_value(trial, expected, bytes.data() + tensor.offset)) return wrong;
    if (auto wrong = wrong_element(tensor, expected, bytes)) return wrong;
  }
  for (const ExpectedBytes& expected : trial.expected_bytes)
    if (const auto [want, got] =
            std::mismatch(expected.bytes.begin(), expected.bytes.end(), tensors[expected.tensor].begin());
        want != expected.bytes.end())
      return fmt::format("byte {} of {} is {:#04x}; expected {:#04x}", want - expected.bytes.begin(),
                         trial.tensors[expected.tensor].name, std::to_integer<int>(*got),
                         std::to_integer<int>(*want));
  for (std::size_t i = 0; i < trial.tensors.size(); ++i)
    if (trial.tensors[i].read_only && !repeats(tensors[i], trial.tensors[i].initial))
      return fmt::format("{} was written, but is read-only", trial.tensors[i].name);
  return std::nullopt;
}

}  // namespace ce::generator
