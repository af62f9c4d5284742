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

/// The tensors of one Trial, in memory of the tuner's own. The caller's data is never involved.
class TrialMemory {
 public:
  /// \throws DeviceError when memory is short
  TrialMemory(runtime::Device& device, generator::Trial trial);

  /// Sets what a run changes back to what it was, in order on the trial stream.
  void restore();
  /// L2 may evict the inputs as if no kernel had asked it to keep them, from here on in order on the trial stream.
  void reset_eviction_priorities();
  /// Enqueues the kernel on the trial stream.
  /// \param most_clusters  as for Kernel::launch()
  void launch(const Kernel& kernel, std::int64_t most_clusters = 0) const;
  /// restore(), launch(), and the bytes of every tensor after that.
  [[nodiscard]] std::vector<std::vector<std::byte>> run(const Kernel& kernel, std::int64_t most_clusters = 0);

  [[nodiscard]] const generator::Trial& trial() const noexcept { return trial_; }

 private:
  struct Slot {
    runtime::Buffer memory;
    runtime::Buffer pristine;  ///< a copy, for tensors that a run changes and that are no repeated byte
  };

  /// Fills memory with the tensor's initial bytes, repeated.
  void fill(const generator::TrialTensor& tensor, const runtime::Buffer& memory);

  runtime::Device& device_;
  generator::Trial trial_;
  std::vector<Slot> slots_;
};

}  // namespace ce::tuner
