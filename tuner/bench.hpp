#pragma once
/// \file
/// How fast is a kernel?

#include <optional>

#include "tuner/trial_memory.hpp"

namespace ce::tuner {

/// The ceiling that the problem is held against: one read, a copy, or two reads and one write.
[[nodiscard]] generator::Operation ceiling_kind(const generator::Problem& problem) noexcept;

/// Times kernels of one problem on scratch memory. Policy: before every sample the tensors are set back and
/// L2 is filled with other, clean lines, so that inputs come from memory and no write-back of somebody else's
/// is timed.
class Bench {
 public:
  /// \param scratch_bytes  0 for a quarter of the free memory; with less than the problem needs, fewer rows
  /// are timed
  Bench(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
        std::int64_t scratch_bytes, std::uint64_t seed);

  /// The problem as it is timed.
  [[nodiscard]] const generator::Problem& problem() const noexcept { return memory_.trial().problem; }

  /// Adds samples to the measurement, after one launch that is not counted, and sets what follows from them.
  void time(const Kernel& kernel, int samples, cache::Measurement& measurement);

  /// Median time, in microseconds, of the driver's own copy of the input to the output.
  [[nodiscard]] double time_driver_copy(int samples);

 private:
  [[nodiscard]] std::vector<float> take(int samples, const std::function<void()>& timed);
  void flush_l2();

  runtime::Device& device_;
  TrialMemory memory_;
  std::optional<Kernel> flush_kernel_;  ///< none on the host device
  std::optional<TrialMemory> flush_memory_;
};

}  // namespace ce::tuner
