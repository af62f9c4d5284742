#pragma once
/// \file
/// Resets the priority of L2 lines that kernels asked to keep.

#include <cstddef>
#include <memory>

#include "runtime/cuda/module.hpp"

namespace ce::runtime::cuda {

/// Lines that were loaded with the policy evict_last stay in L2, whatever is read after them. This resets their
/// priority to normal.
class EvictionPriority {
 public:
  explicit EvictionPriority(const std::shared_ptr<const PrimaryContext>& context, const Model& model);

  /// Resets all lines that lie within this memory, in stream order. The context must be current.
  /// \returns how many kernels it launched
  std::size_t reset(const void* data, std::size_t bytes, CUstream stream) const;

 private:
  const Driver& driver_;
  std::unique_ptr<const CudaModule>
      module_;  ///< null if L2 has no such policy, or if the driver cannot compile PTX
  Function reset_;
};

}  // namespace ce::runtime::cuda
