#pragma once
/// \file
/// The loss of a linear layer without its logits in memory: a kernel that takes statistics of rows while it makes their
/// logits, and whose tiles are raced. Not installed.

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "ce/linear.hpp"
#include "ce/linear_kernels.hpp"
#include "ce/linear_schedule.hpp"
#include "generator/linear.hpp"
#include "runtime/device.hpp"
#include "templates/linear_statistics_arguments.cuh"
#include "tuner/race.hpp"

namespace ce {

/// The kernel that serves the call: one without gradients, of 16-bit matrices whose rows begin at 16 bytes, with class
/// indices, on Hopper (whose instructions it is made of) or on the host. A call that names its chunks has logits in them.
[[nodiscard]] std::optional<generator::LinearStatistics> statistics_of(
    const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
    const runtime::Device& device);

/// The same for gradients: the kernel that leaves exponentials, of which they are made. Of bf16, whose range is that of f32;
/// with those options alone whose gradient is a factor of each row times its exponentials, but for the target.
[[nodiscard]] std::optional<generator::LinearStatistics> exponentials_of(
    const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
    const runtime::Device& device);

/// LinearWay::messages() of any way to run the kernel for so many tokens.
[[nodiscard]] int most_messages(int multiprocessors, std::int64_t tokens, std::int64_t classes);

/// How the kernel is run.
struct LinearWay {
  ProductTile tile;
  int wanted_group = 1;  ///< ProductSchedule::group, where there are so many clusters
  ProductSchedule schedule;

  /// About each row, at most.
  [[nodiscard]] int messages() const noexcept { return schedule.most_splits() * tile.messages(); }
  /// "tile=128x192,stages=5,cluster=2,group=16", the group that is wanted: the same whatever the number of tokens.
  [[nodiscard]] std::string text() const;
};

/// Thread-safe.
class LinearForward {
 public:
  /// Every reference must outlive it.
  /// \param seconds  that each race may take; 0: no bound
  LinearForward(runtime::Device& device, cache::Cache& cache, LinearKernels& kernels, double seconds = 0)
      : device_(device), kernels_(kernels), winners_(device, cache, seconds) {}

  /// One first that serves without a measurement.
  [[nodiscard]] static std::vector<LinearWay> ways(int multiprocessors, std::int64_t tokens,
                                                   std::int64_t classes);

  /// What is known of calls with so many tokens, up to a power of two.
  struct Known {
    LinearWay way;       ///< the fastest, or the first
    bool open = true;    ///< a race would find something new
    bool serves = true;  ///< false where a race has found that all ways are wrong
  };
  [[nodiscard]] Known known(const LinearShape& shape);
  /// Lets all ways race, and the database keep what each took. Others may do so at the same time. Each must make the logsumexps
  /// and targets' logits that the device's library of products and f64 make, in the first rows and in the last.
  /// \param arguments  as of launch()
  void tune(const LinearShape& shape, const LinearStatisticsArguments& arguments, double seconds);

  /// \param arguments  all but maps, group and splits
  /// \throws CompileError, Unsupported, DeviceError
  void launch(const LinearShape& shape, const LinearWay& way, const LinearStatisticsArguments& arguments,
              Stream stream);

 private:
  [[nodiscard]] tuner::RaceSubject subject_of(const LinearShape& shape);

  runtime::Device& device_;
  LinearKernels& kernels_;
  std::mutex mutex_;  ///< guards what follows
  tuner::RaceWinners winners_;
  std::map<LinearShape, Known> known_;
};

}  // namespace ce
