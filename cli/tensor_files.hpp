#pragma once
/// \file
/// Tensors as files: their elements row by row, little-endian, and nothing else, as NumPy's tofile() and fromfile() use
/// them.

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
  std::string name;  ///< name of the member in include/ce/operations.hpp
  DType dtype = DType::f32;
  std::int64_t rows = 0, columns = 1;
  bool written = false;  ///< whether it is an output
  std::string over;      ///< the input that it overwrites; empty: memory of its own

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(rows * columns) * static_cast<std::size_t>(size_of(dtype));
  }
};

/// All tensors of a call for the problem; none for an operation without calls.
[[nodiscard]] std::vector<NamedTensor> tensors_of(const generator::Problem& problem);

/// Paths by tensor, parsed from texts such as "logits=x.bin".
/// \param tensors  tensors_of() the problem
/// \throws InvalidArgument for an invalid text, an unknown tensor, a repeated one, an input without a file, an output
/// in the file of another tensor, and if there is no output
[[nodiscard]] std::map<std::string, std::string> files_of(const std::vector<std::string>& texts,
                                                          const generator::Problem& problem,
                                                          std::span<const NamedTensor> tensors);

/// Whether it is a pipe or a device, which has no stored contents.
[[nodiscard]] bool is_stream(const std::string& path);

/// Reads a file; a pipe is read to its end.
/// \throws NotFound if there is no such file; InvalidArgument naming tensor and file if it cannot be read or does not
/// have the tensor's size
[[nodiscard]] std::vector<std::byte> read_tensor(const NamedTensor& tensor, const std::string& path);

}  // namespace ce::cli
