#pragma once
/// \file
/// Builds a trial, tensor by tensor.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generator/operations/cross_entropy.hpp"
#include "tuner/verify/trial.hpp"
#include "tuner/verify/trial_layout.hpp"

namespace ce::generator {

/// Nanoseconds until a kernel receives the row that it has sent (PeerExchange).
struct ExchangeLag {
  unsigned least = 0, of_cluster = 0;
};

/// A [rows, columns] tensor in host memory.
struct TrialMatrix {
  std::vector<double> values;    ///< dense, rounded to the dtype
  std::vector<std::byte> bytes;  ///< laid out in memory, with poison in between
};

class TrialBuilder {
 public:
  /// \param amounts  of the options of cross entropy
  TrialBuilder(const Problem& problem, bool padded,
               float CrossEntropyOption::Trials::*amounts = &CrossEntropyOption::Trials::confident);

  [[nodiscard]] const Problem& problem() const noexcept { return trial_.problem; }
  [[nodiscard]] const Arguments& arguments() const noexcept { return trial_.arguments; }
  [[nodiscard]] const Placements& at() const noexcept { return placements_; }

  /// Rounds `values` to the dtype and lays them out.
  [[nodiscard]] TrialMatrix matrix(std::vector<double> values, const Placement& placement) const;

  std::size_t add(TrialTensor tensor);

  /// Adds the first input, and the output if it is the same memory. `initial` is repeated.
  void add_input(std::vector<std::byte> initial);
  void add_second(std::vector<std::byte> initial);
  /// Adds an output that is not the input.
  void add_output();

  /// Adds a one-dimensional input. `values` is rounded to the dtype.
  void add_vector(std::string name, std::size_t argument, DType dtype, std::span<double> values);
  /// Adds a one-dimensional output with poison behind it. Returns its tensor.
  std::size_t add_result(std::string name, std::size_t argument, DType dtype, std::int64_t size);
  /// Adds the workspace, the status of targets if there are any, and partial results if there are few rows.
  void add_scratch();

  /// Expects values in the output.
  void expect_matrix(std::vector<double> values, double relative, double absolute,
                     std::vector<float> slack = {});
  /// Sets the slack of the last expectation.
  void expect_result(std::vector<double> values, double relative, double absolute,
                     std::vector<float> slack = {});
  void expect_bytes(ExpectedBytes bytes) { trial_.expected_bytes.push_back(std::move(bytes)); }
  void expect_status(const TargetStatus& status);

  /// Makes the last expectation one of statistics, with that many words a row.
  void expect_statistics(std::vector<double> quantities, std::vector<float> slack, std::int64_t words,
                         std::vector<float> units);
  /// Sets the position of the problem's columns among the classes of all shards.
  void set_shard(std::int64_t first_class, std::int64_t classes, std::int64_t ranks);
  /// Adds [ranks, rows, statistics_words()], which the kernel reads.
  void add_statistics(std::span<const std::uint32_t> words);
  /// Adds the words that the kernel writes, with poison behind them.
  void add_statistics_result();
  /// Adds memory in which all ranks except `own` have sent their rows already, for one call. The kernel sends the rows
  /// of `own`.
  /// \param words  words of each rank, [rows, statistics_words()]; empty for `own`
  void add_exchange(std::span<const std::vector<std::uint32_t>> words, std::int64_t own,
                    const ExchangeLag& lag);

  [[nodiscard]] Trial take() { return std::move(trial_); }

 private:
  Placements placements_;
  Trial trial_;
  std::size_t output_ = 0, result_ = 0, status_ = 0;
  DType result_dtype_ = DType::f32;
};

/// The bytes of a value.
template <class T>
[[nodiscard]] std::vector<std::byte> bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

/// Half a unit in the last place of the dtype, relative; 0 for integers.
[[nodiscard]] double rounding(DType dtype) noexcept;

}  // namespace ce::generator
