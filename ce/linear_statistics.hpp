#pragma once
/// \file
/// The loss of a linear layer without its logits in memory: a kernel that computes statistics of rows along with their
/// logits, and whose tiles are raced. Not installed.

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "ce/linear.hpp"
#include "ce/linear_kernels.hpp"
#include "ce/linear_shape.hpp"
#include "generator/linear.hpp"
#include "runtime/device.hpp"
#include "templates/linear_statistics_arguments.cuh"
#include "tuner/race.hpp"

namespace ce {

/// The kernel that serves the call, if any: a call without gradients, with 16-bit matrices whose rows are aligned to 16
/// bytes, and class indices, on Hopper (whose instructions it uses) or on the host. A call that sets chunk_tokens uses
/// logits.
[[nodiscard]] std::optional<generator::LinearStatistics> statistics_of(
    const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
    const runtime::Device& device);

/// The kernel for gradients, which writes exponentials. It needs bf16, whose range is that of f32, and only options
/// with which the gradient of a row is a factor times its exponentials, except at the target.
[[nodiscard]] std::optional<generator::LinearStatistics> exponentials_of(
    const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
    const runtime::Device& device);

/// The largest LinearWay::messages() among the ways to run the kernel for that many tokens.
[[nodiscard]] int most_messages(int multiprocessors, std::int64_t tokens, std::int64_t classes);

/// A way to run the kernel.
struct LinearWay {
  ProductTile tile;
  int wanted_group = 1;  ///< ProductSchedule::group, if there are enough clusters
  ProductSchedule schedule;

  /// Number of messages for each row, at most.
  [[nodiscard]] int messages() const noexcept { return schedule.most_splits() * tile.messages(); }
  /// "tile=128x192,stages=5,cluster=2,group=16", with the wanted group: equal for any number of tokens.
  [[nodiscard]] std::string text() const;
};

/// Thread-safe.
class LinearForward {
 public:
  /// The references must outlive this object.
  /// \param seconds  limit of each race; 0: none
  LinearForward(runtime::Device& device, cache::Cache& cache, LinearKernels& kernels, double seconds = 0)
      : device_(device), kernels_(kernels), winners_(device, cache, seconds) {}

  /// The ways; the first one is used if there is no measurement.
  [[nodiscard]] static std::vector<LinearWay> ways(int multiprocessors, std::int64_t tokens,
                                                   std::int64_t classes);

  /// The race's result for calls with that many tokens, up to a power of two.
  struct Known {
    LinearWay way;       ///< the fastest, or the first
    bool open = true;    ///< a race would improve the result
    bool serves = true;  ///< false if a race has found that all ways are wrong
  };
  [[nodiscard]] Known known(const LinearShape& shape);
  /// Races all ways, and stores their times in the database. Several threads may do so at the same time. Each way must
  /// compute the logsumexps and targets' logits that the device's library of products and f64 give, in the first and
  /// last rows.
  /// \param arguments  those of launch()
  void tune(const LinearShape& shape, const LinearStatisticsArguments& arguments, double seconds);

  /// \param arguments  all members except maps, group and splits
  /// \throws CompileError, Unsupported, DeviceError
  void launch(const LinearShape& shape, const LinearWay& way, const LinearStatisticsArguments& arguments,
              Stream stream);

 private:
  [[nodiscard]] tuner::RaceSubject subject_of(const LinearShape& shape);

  runtime::Device& device_;
  LinearKernels& kernels_;
  std::mutex mutex_;  ///< guards the members below
  tuner::RaceWinners winners_;
  std::map<LinearShape, Known> known_;
};

}  // namespace ce
