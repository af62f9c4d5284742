#pragma once
/// \file
/// The matrices of a call. Not installed.

#include <string_view>

#include "ce/check_tensor.hpp"
#include "ce/request.hpp"

namespace ce {

/// A tensor by the name that its operation calls it; null where the call has none.
struct Matrix {
  std::string_view name;
  const ConstTensor* tensor = nullptr;
};

/// Checks the matrices, each by itself and against the others, and turns them into the part of a Request that
/// all operations share: the shape, the alignment, and how far apart the rows are.
/// \param output  may be the input
/// \param memory  gets the matrices
/// \throws InvalidArgument
[[nodiscard]] Request bind_matrices(generator::Operation operation, const Matrix& input, const Matrix& second,
                                    const Matrix& output, const runtime::Device& device, CallMemory& memory);

}  // namespace ce
