#pragma once
/// \file
/// Softmax and cross entropy kernels that tune themselves to the GPU and the shape.
///
/// \code
/// ce::run(ce::Softmax{}, {.input = x, .output = y}, stream);
/// \endcode

#include "ce/base/dtype.hpp"
#include "ce/base/error.hpp"
#include "ce/base/log.hpp"
#include "ce/context.hpp"
#include "ce/operations.hpp"
#include "ce/tensor.hpp"
#include "ce/version.hpp"

namespace ce {

/// Context::run() of the default Context.
inline const Choice& run(const Softmax& operation, const Softmax::Tensors& tensors, Stream stream = nullptr) {
  return default_context().run(operation, tensors, stream);
}
inline const Choice& run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors,
                         Stream stream = nullptr) {
  return default_context().run(operation, tensors, stream);
}

}  // namespace ce
