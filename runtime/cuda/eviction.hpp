#pragma once
/// \file
/// Undoes what kernels asked L2 to keep.

#include <cstddef>
#include <memory>

#include "runtime/cuda/module.hpp"

namespace ce::runtime::cuda {

/// Lines that were loaded with the policy evict_last stay in L2 whatever is read after them. This gives them the
/// priority of all others again.
class EvictionPriority {
 public:
  explicit EvictionPriority(const std::shared_ptr<const PrimaryContext>& context, const Model& model);

  /// Of all lines that lie within this memory, in stream order. The context is current.
  /// \returns how many kernels it launched for that
  std::size_t reset(const void* data, std::size_t bytes, CUstream stream) const;

 private:
  const Driver& driver_;
  std::unique_ptr<const CudaModule>
      module_;  ///< null without that policy, and where the driver cannot compile PTX
  Function reset_;
};

}  // namespace ce::runtime::cuda
