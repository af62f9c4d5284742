#pragma once
/// \file
/// What can be wrong with the tensors of a call. Not installed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ce/row_layout.hpp"
#include "ce/tensor.hpp"
#include "runtime/device.hpp"

namespace ce {

/// Whether an optional tensor was given. \throws InvalidArgument for rows without data
[[nodiscard]] bool is_given(std::string_view name, const Tensor& tensor);

/// Shape, strides and memory of one tensor by itself. \throws InvalidArgument
void check_tensor(std::string_view name, const Tensor& tensor, const runtime::Device& device);

/// \param why  whose dtype it is
/// \throws InvalidArgument
void check_dtype(std::string_view name, const Tensor& tensor, DType wanted, std::string_view why);

/// For f32 or the dtype of the logits. \throws InvalidArgument
void check_f32_or(std::string_view name, const Tensor& tensor, DType logits);

/// Rows, columns and dtype of a matrix. \throws InvalidArgument
void check_same_shape(std::string_view name, const Tensor& tensor, std::string_view other,
                      const Tensor& model);

/// Whether the tensor is `count` elements, one after the other, as one column or as one row.
[[nodiscard]] bool is_vector(const Tensor& tensor, std::int64_t count);

/// \throws InvalidArgument where it is not
void check_vector(std::string_view name, const Tensor& tensor, std::int64_t count);

/// Addresses of a tensor that check_tensor() has let pass, from its first byte to behind its last; none
/// without rows.
struct Extent {
  std::uintptr_t start = 0, end = 0;
};
[[nodiscard]] inline Extent extent_of(const Tensor& tensor) noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(tensor.data);
  return {start, start + static_cast<std::uintptr_t>(reach_of(tensor) * size_of(tensor.dtype))};
}

[[nodiscard]] constexpr bool overlap(const Extent& a, const Extent& b) noexcept {
  return a.start < b.end && b.start < a.end && a.start != a.end && b.start != b.end;
}

/// The memory of a call's tensors: what is written is nobody else's.
class CallMemory {
 public:
  /// \param written  by the kernels
  /// \throws InvalidArgument naming the tensor, where it overlaps one added before of which one is written or
  /// which is of another dtype
  void add(std::string_view name, const Tensor& tensor, bool written);

 private:
  struct Entry {
    std::string_view name;
    Extent extent;
    DType dtype;
    bool written;
  };
  std::array<Entry, 10> entries_{};  ///< as many tensors as CrossEntropy has
  std::size_t count_ = 0;
};

}  // namespace ce
