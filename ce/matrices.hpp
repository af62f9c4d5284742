#pragma once
/// \file
/// Checks the matrices of a call. Not installed.

#include <string_view>

#include "ce/check_tensor.hpp"
#include "ce/request.hpp"

namespace ce {

/// A tensor with the name that its operation gives it; null if the call has none.
struct Matrix {
  std::string_view name;
  const ConstTensor* tensor = nullptr;
};

/// Checks each matrix alone and against the others, and fills the part of a Request that all operations share: the
/// shape, the alignment, and the distances between rows.
/// \param output  may be the input
/// \param memory  receives the matrices
/// \throws InvalidArgument
[[nodiscard]] Request bind_matrices(generator::Operation operation, const Matrix& input, const Matrix& second,
                                    const Matrix& output, const runtime::Device& device, CallMemory& memory);

}  // namespace ce
