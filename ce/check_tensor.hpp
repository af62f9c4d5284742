#pragma once
/// \file
/// Checks the tensors of a call. Not installed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "ce/row_layout.hpp"
#include "ce/tensor.hpp"
#include "runtime/device.hpp"

namespace ce {

/// A tensor of either kind. Both kinds have the same members at the same offsets, and may be read as each other.
[[nodiscard]] inline const ConstTensor* view_of(const ConstTensor& tensor) noexcept { return &tensor; }
[[nodiscard]] inline const ConstTensor* view_of(const Tensor& tensor) noexcept {
  static_assert(sizeof(Tensor) == sizeof(ConstTensor) && std::is_standard_layout_v<Tensor>);
  return reinterpret_cast<const ConstTensor*>(&tensor);
}

/// The number of an enumerator, for messages about an invalid one.
template <class Enum>
[[nodiscard]] std::string number_of(Enum value) {
  return std::to_string(static_cast<int>(value));
}

/// The name of a DType, or the number of an invalid one; for messages.
[[nodiscard]] std::string text_of(DType dtype);

[[noreturn]] void refuse_null(std::string_view name);

/// Whether an optional tensor was given. \throws InvalidArgument for a tensor with rows but without data
[[nodiscard]] inline bool is_given(std::string_view name, const ConstTensor& tensor) {
  if (tensor.data == nullptr && tensor.rows != 0) refuse_null(name);
  return tensor.data != nullptr;
}

/// Whether a tensor with `rows` rows was not given.
[[nodiscard]] inline bool is_missing(const ConstTensor& tensor, std::int64_t rows) noexcept {
  return tensor.data == nullptr && tensor.rows == 0 && rows != 0;
}

/// Throws for a missing tensor.
[[noreturn]] void refuse_missing(std::string_view name, std::string_view expected);

/// For a tensor that every call of the operation must have: a call without rows describes it by its columns or dtype.
/// \throws InvalidArgument if it equals Tensor{}
inline void require(std::string_view name, const ConstTensor& tensor) {
  if (tensor.data == nullptr && tensor == Tensor{})
    refuse_missing(name, "a tensor; a tensor without rows must still have its number of columns");
}

/// "1 element", "8 elements".
[[nodiscard]] std::string text_of_count(std::int64_t elements);

/// Checks shape, strides and memory of one tensor. \throws InvalidArgument
void check_tensor(std::string_view name, const ConstTensor& tensor, const runtime::Device& device);

/// \param why  the tensor whose dtype it must be
/// \throws InvalidArgument
void check_dtype(std::string_view name, const ConstTensor& tensor, DType wanted, std::string_view why);

/// Accepts f32 or another dtype. \param whose  what has that dtype \throws InvalidArgument
void check_f32_or(std::string_view name, const ConstTensor& tensor, DType own,
                  std::string_view whose = "logits");

/// Checks rows, columns and dtype of a matrix. \throws InvalidArgument
void check_same_shape(std::string_view name, const ConstTensor& tensor, std::string_view other,
                      const ConstTensor& model);

/// Whether the tensor has the usual form of a vector.
[[nodiscard]] inline bool is_column(const ConstTensor& tensor, std::int64_t count) noexcept {
  return tensor.rows == count && tensor.columns == 1 && tensor.row_stride == contiguous &&
         tensor.batch_rows == 0;
}

/// Whether the tensor is `count` contiguous elements, as one column or as one row.
[[nodiscard]] bool is_vector(const ConstTensor& tensor, std::int64_t count);

/// The shape and strides, for messages.
[[nodiscard]] std::string text_of_view(const ConstTensor& tensor);

[[noreturn]] void refuse_vector(std::string_view name, const ConstTensor& tensor, std::int64_t count);

/// \throws InvalidArgument if it is not such a vector
inline void check_vector(std::string_view name, const ConstTensor& tensor, std::int64_t count) {
  if (!is_column(tensor, count) && !is_vector(tensor, count)) refuse_vector(name, tensor, count);
}

/// The address range of a tensor that check_tensor() has accepted; empty without rows.
struct Extent {
  std::uintptr_t start = 0, end = 0;
};
[[nodiscard]] inline Extent extent_of(const ConstTensor& tensor) noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(tensor.data);
  return {start, start + static_cast<std::uintptr_t>(reach_of(tensor) * size_of(tensor.dtype))};
}

[[nodiscard]] constexpr bool overlap(const Extent& a, const Extent& b) noexcept {
  return a.start < b.end && b.start < a.end && a.start != a.end && b.start != b.end;
}

/// The number of tensors of CrossEntropy. ce/known_call.hpp asserts that no operation has more.
inline constexpr std::size_t most_tensors = 20;

/// The memory of a call's tensors: memory that is written belongs to one tensor only. Memory that is only read may
/// overlap.
class CallMemory {
 public:
  /// \param written  whether the kernels write it
  /// \throws InvalidArgument naming the tensor, if it overlaps an earlier one and either is written
  void add(std::string_view name, const ConstTensor& tensor, bool written) {
    const Extent extent = extent_of(tensor);
    for (std::size_t i = 0; i < count_; ++i) {
      const Entry& other = entries_[i];
      if ((written || other.written) && overlap(extent, other.extent)) refuse(name, tensor, other.name);
    }
    Entry& entry = entries_.at(count_++);
    entry.name = name;
    entry.extent = extent;
    entry.written = written;
  }

 private:
  [[noreturn]] static void refuse(std::string_view name, const ConstTensor& tensor, std::string_view other);

  struct Entry {
    std::string_view name;
    Extent extent;
    bool written;
  };
  std::array<Entry, most_tensors> entries_;  ///< only the counted ones are set
  std::size_t count_ = 0;
};

}  // namespace ce
