#pragma once
/// \file
/// Puts a trial together, tensor by tensor.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generator/operations/cross_entropy.hpp"
#include "tuner/verify/trial.hpp"
#include "tuner/verify/trial_layout.hpp"

namespace ce::generator {

/// How much later than it tells of a row a kernel hears of it, in nanoseconds (PeerExchange).
struct ExchangeLag {
  unsigned least = 0, of_cluster = 0;
};

/// A [rows, columns] tensor in host memory.
struct TrialMatrix {
  std::vector<double> values;    ///< dense, as the dtype holds them
  std::vector<std::byte> bytes;  ///< where they are placed, with poison in between
};

class TrialBuilder {
 public:
  /// \param amounts  of the options of cross entropy
  TrialBuilder(const Problem& problem, bool padded,
               float CrossEntropyOption::Trials::*amounts = &CrossEntropyOption::Trials::confident);

  [[nodiscard]] const Problem& problem() const noexcept { return trial_.problem; }
  [[nodiscard]] const Arguments& arguments() const noexcept { return trial_.arguments; }
  [[nodiscard]] const Placements& at() const noexcept { return placements_; }

  /// Rounds `values` to the dtype and places them.
  [[nodiscard]] TrialMatrix matrix(std::vector<double> values, const Placement& placement) const;

  std::size_t add(TrialTensor tensor);

  /// The first input, and the output where that is the same memory. `initial` is repeated.
  void add_input(std::vector<std::byte> initial);
  void add_second(std::vector<std::byte> initial);
  /// Where it is not the input.
  void add_output();

  /// A one-dimensional input, rounded to the dtype, as are the values on return.
  void add_vector(std::string name, std::size_t argument, DType dtype, std::span<double> values);
  /// A one-dimensional output with poison behind it. Returns its tensor.
  std::size_t add_result(std::string name, std::size_t argument, DType dtype, std::int64_t size);
  /// The workspace, the status of targets where there are any, and parts where the rows are few.
  void add_scratch();

  /// Of the output.
  void expect_matrix(std::vector<double> values, double relative, double absolute,
                     std::vector<float> slack = {});
  /// Of the last result added.
  void expect_result(std::vector<double> values, double relative, double absolute,
                     std::vector<float> slack = {});
  void expect_bytes(ExpectedBytes bytes) { trial_.expected_bytes.push_back(std::move(bytes)); }
  void expect_status(const TargetStatus& status);

  /// Of the last result added: of rows in so many words.
  void expect_statistics(std::vector<double> quantities, std::vector<float> slack, std::int64_t words,
                         std::vector<float> units);
  /// The place of the problem's columns among the classes of all shards.
  void set_shard(std::int64_t first_class, std::int64_t classes, std::int64_t ranks);
  /// [ranks, rows, statistics_words()], which the kernel reads.
  void add_statistics(std::span<const std::uint32_t> words);
  /// The words that it leaves, with poison behind them.
  void add_statistics_result();
  /// Memory in which all ranks but `own` have told of their rows already, for one call. This rank tells itself.
  /// \param words  of each rank, [rows, statistics_words()]; empty for `own`
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
