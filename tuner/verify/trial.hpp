#pragma once
/// \file
/// Inputs that expose a wrong kernel, and the expected outputs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/problem.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {

/// The contents of unwritten memory: NaN in every floating-point dtype.
inline constexpr std::byte poison{0xff};

/// Memory of a trial on the device. `initial` is repeated until `bytes` are filled.
struct TrialTensor {
  std::string name;
  std::vector<std::size_t> arguments;  ///< offsets in Arguments of the pointers to it
  std::size_t bytes = 0;
  std::size_t offset = 0;  ///< bytes from its start to the address of the pointers
  std::vector<std::byte> initial;
  bool changes = false;    ///< must be restored before every run
  bool read_only = false;  ///< a kernel that changes it is wrong
};

/// The expected contents of an output, computed in f64. Everything else in its tensor must still be poison.
struct Expected {
  std::size_t tensor = 0;  ///< index into Trial::tensors
  DType dtype = DType::f32;
  std::int64_t rows = 0, columns = 0;
  Layout layout{.row = 1, .batch = 0, .column = 1};
  std::int64_t batch_rows = 0;  ///< 0: no batches
  std::vector<double> values;   ///< [rows, columns]
  double relative = 0, absolute = 0;
  std::vector<float> slack;  ///< [rows, columns], or empty: 0
  bool statistics = false;   ///< rows are words of a shard, and `values` the result of read_quantities()
  std::vector<float> units;  ///< [rows], for statistics of rows with their own scales
  // A value is right if |got - want| <= absolute + relative |want| + slack.

  /// Elements from the first to the start of a row.
  [[nodiscard]] std::int64_t row_offset(std::int64_t row) const noexcept {
    if (batch_rows == 0) return row * layout.row;
    return row / batch_rows * layout.batch + row % batch_rows * layout.row;
  }
};

/// Bytes with exact expected values: counters and status words.
struct ExpectedBytes {
  std::size_t tensor = 0;
  std::vector<std::byte> bytes;
};

/// One run of a kernel.
struct Trial {
  Problem problem;
  Arguments arguments{};  ///< scalars are filled in; pointers are set from the tensors
  std::vector<TrialTensor> tensors;
  std::vector<Expected> expected;
  std::vector<ExpectedBytes> expected_bytes;
};

/// Trials with few rows of the problem's width. One has ordinary rows; one has rows with large magnitudes, infinities
/// and NaN. For cross entropy with class indices, trials have ignored rows and targets at both ends, the second one
/// also has targets that are no class, and in a third one the probability of the target is next to 1. Strides, batches
/// and gaps are those of the problem's alignment class.
/// \throws OutOfMemory naming the bytes if the memory of this machine is too short for rows of that width
[[nodiscard]] std::vector<Trial> verification_trials(const Problem& problem, std::uint64_t seed);
/// Bytes of this machine's memory that the trials take at least.
[[nodiscard]] std::int64_t verification_bytes(const Problem& problem);

/// A trial for timing the problem with its own number of rows: ordinary values, no expectations.
[[nodiscard]] Trial timing_trial(const Problem& problem, std::uint64_t seed);

/// The first error in the tensors after a run, in words that name tensor, row, column, the value and the expected one;
/// nothing if all are right.
/// \param tensors  the bytes of each tensor of the trial after the run
[[nodiscard]] std::optional<std::string> mismatch(const Trial& trial,
                                                  std::span<const std::vector<std::byte>> tensors);

}  // namespace ce::generator
