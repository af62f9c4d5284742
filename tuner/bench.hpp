#pragma once
/// \file
/// How fast is a kernel?

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tuner/trial_memory.hpp"

namespace ce::tuner {

/// The ceiling that the problem is held against: one read, a copy, or two reads and one write.
[[nodiscard]] generator::Operation ceiling_kind(const generator::Problem& problem) noexcept;

/// What may influence a measurement now: the device's environment, and `ce`, the version of the library.
[[nodiscard]] runtime::Environment environment_now(const runtime::Device& device);

/// The config of the kernel that fills L2 before each sample, whose own time is the reference. It must never change.
[[nodiscard]] generator::Config reference_config(const runtime::Model& model);

/// Scratch memory, in bytes, where the caller does not say how much: a quarter of what is free now.
[[nodiscard]] std::int64_t usual_scratch(const runtime::Device& device);

/// How many of the problem's rows scratch memory of so many bytes holds; at least one.
[[nodiscard]] std::int64_t rows_that_fit(const generator::Problem& problem, std::int64_t scratch_bytes);

/// Times kernels of one problem on scratch memory. Policy: before every sample the tensors are set back and
/// L2 is filled with other, clean lines, so that inputs come from memory and no write-back of earlier work is
/// timed; before that, what a kernel asked L2 to keep loses its privilege, or some of it would still be there.
/// Where small tensors lie in memory moves the time of a kernel by some percent, so they are there several times, and
/// samples are taken of all these places.
class Bench {
 public:
  /// \param scratch_bytes  0 for usual_scratch(); with less than the problem needs, fewer rows
  /// are timed
  Bench(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
        std::int64_t scratch_bytes, std::uint64_t seed);

  /// The problem as it is timed.
  [[nodiscard]] const generator::Problem& problem() const noexcept { return places_.front().trial().problem; }

  /// Microseconds of a launch; always three samples in a row, after a launch that is not counted, so that all are alike,
  /// and then three in the next place. Of short kernels each is the mean of several launches: see launches_a_sample().
  /// \param taken  before these: goes on with the place after theirs
  [[nodiscard]] std::vector<float> samples(const Kernel& kernel, int count, std::size_t taken = 0);
  /// Sets what follows from the measurement's samples.
  void conclude(cache::Measurement& measurement) const;
  /// Adds samples to the measurement, and concludes.
  void time(const Kernel& kernel, int samples, cache::Measurement& measurement);

  /// Time, in microseconds, of a kernel that never changes: what moves it moves all others. Median of the
  /// samples; 0 on the host device, which has none. Times the same kernel on a single row, too, for environment().
  [[nodiscard]] double time_reference(int samples);

  /// Which kernel that is: times of the same text compare, whatever the driver. Empty on the host device.
  [[nodiscard]] std::string reference() const;

  /// environment_now(), with the reference and the median of its times, where it has one, and what launching it cost
  /// so far.
  [[nodiscard]] runtime::Environment environment(std::span<const float> references_us) const;

  /// Median time, in microseconds, of the driver's own copy of the input to the output.
  [[nodiscard]] double time_driver_copy(int samples);

 private:
  [[nodiscard]] std::vector<float> take(int count, std::size_t taken,
                                        const std::function<void(const TrialMemory&)>& timed);
  void flush_l2();

  runtime::Device& device_;
  std::vector<TrialMemory> places_;     ///< the same tensors in each
  std::optional<Kernel> flush_kernel_;  ///< none on the host device; also the reference
  std::optional<TrialMemory> flush_memory_;
  std::vector<float> launches_us_;  ///< of the reference on a single row
};

}  // namespace ce::tuner
