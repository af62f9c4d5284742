#pragma once
/// \file
/// A Trial in device memory.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/device.hpp"
#include "tuner/kernel.hpp"
#include "tuner/verify/trial.hpp"

namespace ce::tuner {

/// The tensors of one Trial, in the tuner's own memory. The caller's data is never involved.
class TrialMemory {
 public:
  /// \throws DeviceError when memory is short
  TrialMemory(runtime::Device& device, generator::Trial trial);

  /// Restores what a run changes, in order on the trial stream.
  void restore();
  /// Resets the priority of the inputs in L2 to normal, in order on the trial stream.
  void reset_eviction_priorities();
  /// Enqueues the kernel on the trial stream.
  /// \param most_clusters  as for Kernel::launch()
  void launch(const Kernel& kernel, std::int64_t most_clusters = 0) const;
  /// Calls restore() and launch(). \returns the bytes of every tensor afterwards
  [[nodiscard]] std::vector<std::vector<std::byte>> run(const Kernel& kernel, std::int64_t most_clusters = 0);

  [[nodiscard]] const generator::Trial& trial() const noexcept { return trial_; }

 private:
  struct Slot {
    runtime::Buffer memory;
    runtime::Buffer pristine;  ///< a backup of a changed tensor, unless it is one repeated byte
  };

  /// Fills memory with the tensor's initial bytes, repeated.
  void fill(const generator::TrialTensor& tensor, const runtime::Buffer& memory);

  runtime::Device& device_;
  generator::Trial trial_;
  std::vector<Slot> slots_;
};

}  // namespace ce::tuner
