#pragma once
/// \file
/// Times kernels.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tuner/trial_memory.hpp"

namespace ce::tuner {

/// The ceiling that the problem is compared with: one read, a copy, or two reads and one write.
[[nodiscard]] generator::Operation ceiling_kind(const generator::Problem& problem) noexcept;

/// Everything that may influence a measurement now: the device's environment, and `ce`, the version of the library.
[[nodiscard]] runtime::Environment environment_now(const runtime::Device& device);

/// The config of the kernel that fills L2 before each sample. Its own time is the reference, so it must never change.
[[nodiscard]] generator::Config reference_config(const runtime::Model& model);

/// Default for scratch memory, in bytes: a quarter of the free memory.
[[nodiscard]] std::int64_t usual_scratch(const runtime::Device& device);

/// Number of the problem's rows that fit into that many bytes of scratch memory; at least one.
[[nodiscard]] std::int64_t rows_that_fit(const generator::Problem& problem, std::int64_t scratch_bytes);

/// Times kernels of one problem on scratch memory. Before every sample the tensors are restored and L2 is filled with
/// other, clean lines, so that inputs come from memory and no write-back of earlier work is timed. Before that, lines
/// that a kernel asked L2 to keep lose their priority; otherwise some of them would stay. The address of small tensors
/// changes the time of a kernel by some percent, so there are several copies of them, and samples are taken of all
/// copies.
class Bench {
 public:
  /// \param scratch_bytes  0 for usual_scratch(); if the problem needs more, fewer rows are timed
  Bench(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
        std::int64_t scratch_bytes, std::uint64_t seed);

  /// The problem with the rows that are timed.
  [[nodiscard]] const generator::Problem& problem() const noexcept { return copies_.front().trial().problem; }

  /// Microseconds of a launch. Takes three samples in a row, after a launch that is not counted, so that all are alike,
  /// then three on the next copy of the tensors. A sample of a short kernel is the mean of several launches: see
  /// launches_a_sample().
  /// \param taken  number of samples taken before: starts with the copy after theirs
  [[nodiscard]] std::vector<float> samples(const Kernel& kernel, int count, std::size_t taken = 0);
  /// Computes the measurement's figures from its samples.
  void conclude(cache::Measurement& measurement) const;
  /// Adds samples to the measurement, and concludes.
  void time(const Kernel& kernel, int samples, cache::Measurement& measurement);

  /// Median time, in microseconds, of the reference kernel, which never changes: influences on its time act on all
  /// kernels. 0 on the host device, which has none. Also times it on a single row, for environment().
  [[nodiscard]] double time_reference(int samples);

  /// Identifies the reference kernel: times of kernels with the same text are comparable, whatever the driver. Empty on
  /// the host device.
  [[nodiscard]] std::string reference() const;

  /// environment_now(), with the reference kernel and its median time if there is one, and the launch overhead so far.
  [[nodiscard]] runtime::Environment environment(std::span<const float> references_us) const;

  /// Median time, in microseconds, of the driver's own copy of the input to the output.
  [[nodiscard]] double time_driver_copy(int samples);

 private:
  [[nodiscard]] std::vector<float> take(int count, std::size_t taken,
                                        const std::function<void(const TrialMemory&)>& timed);
  void flush_l2();

  runtime::Device& device_;
  std::vector<TrialMemory> copies_;     ///< copies of the same tensors
  std::optional<Kernel> flush_kernel_;  ///< also the reference; none on the host device
  std::optional<TrialMemory> flush_memory_;
  std::vector<float> launches_us_;  ///< times of the reference kernel on a single row
};

}  // namespace ce::tuner
