#pragma once
/// \file
/// The tensors of an operation as files: their elements row after row, little-endian, and nothing else, as
/// NumPy's tofile() and fromfile() have them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ce/dtype.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// A dense tensor of a call.
struct NamedTensor {
  std::string name;  ///< of the member in include/ce/operations.hpp
  DType dtype = DType::f32;
  std::int64_t rows = 0, columns = 1;
  bool written = false;  ///< an output
  std::string over;      ///< the input that it is written over; empty: memory of its own

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(rows * columns) * static_cast<std::size_t>(size_of(dtype));
  }
};

/// All that a call of the problem has; none of an operation that no call has.
[[nodiscard]] std::vector<NamedTensor> tensors_of(const generator::Problem& problem);

/// Paths by tensor, from texts such as "logits=x.bin".
/// \throws InvalidArgument for text of another form, a name that is none of the tensors, a name that comes
/// twice, an input without a file, an output in the file of another tensor, and no output at all
[[nodiscard]] std::map<std::string, std::string> files_of(const std::vector<std::string>& texts,
                                                          std::span<const NamedTensor> tensors);

/// Whether it is a pipe or a device, whose content is what comes by and which has no place that the name tells.
[[nodiscard]] bool is_stream(const std::string& path);

/// A pipe is read to its end.
/// \throws NotFound where there is no such file; InvalidArgument naming tensor and file where it cannot be
/// read or its size is not that of the tensor
[[nodiscard]] std::vector<std::byte> read_tensor(const NamedTensor& tensor, const std::string& path);

}  // namespace ce::cli
