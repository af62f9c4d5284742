#pragma once
/// \file
/// Shared by all operators: the arguments of a boxed call, and tensors as the C interface takes them.

#include <torch/csrc/stable/library.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ce/ce.h"
#include "python/csrc/tensor.hpp"

namespace ce_torch {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "small values lie in the first bytes of a StableIValue");

template <class Value>
Value to_value(StableIValue given) {
  Value value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): Value may be a pointer
  constexpr std::size_t bytes = sizeof(Value);
  static_assert(std::is_trivially_copyable_v<Value> && bytes <= sizeof given);
  std::memcpy(&value, &given, bytes);
  return value;
}

inline StableIValue from_tensor(Tensor& tensor) { return std::bit_cast<StableIValue>(tensor.release()); }

/// Reads the arguments of a boxed call one after the other.
class Arguments {
 public:
  explicit Arguments(const StableIValue* stack) : next_(stack) {}

  Tensor tensor() { return Tensor(to_value<AtenTensorHandle>(*next_++)); }
  std::optional<Tensor> optional_tensor() {
    auto* given = to_value<StableIValue*>(*next_++);
    if (given == nullptr) return std::nullopt;
    const StableIValue value = *given;
    delete given;
    return Tensor(to_value<AtenTensorHandle>(value));
  }
  std::int64_t integer() { return to_value<std::int64_t>(*next_++); }
  float number() { return static_cast<float>(to_value<double>(*next_++)); }
  bool flag() { return to_value<bool>(*next_++); }

 private:
  const StableIValue* next_;
};

template <class... Tensors>
void give_back(StableIValue* stack, Tensors&... tensors) {
  ((*stack++ = from_tensor(tensors)), ...);
}

/// torch's current stream on the tensor's device.
[[nodiscard]] ce_stream stream_of(const Tensor& tensor);

/// \throws std::runtime_error naming the tensor
void require_same_device(const Tensor& tensor, const char* name, const Tensor& first);
/// \throws std::runtime_error naming the operation
void require_same_sizes(const Tensor& tensor, const Tensor& like, const char* operation,
                        const char* argument);

/// Counts a negative dimension from the end. \throws std::runtime_error naming the operation
[[nodiscard]] std::size_t dimension(std::int64_t dim, const Tensor& tensor, const char* operation);

/// The row layout that the matrices of a call share: the order in which rows are counted, and their batches. The first
/// matrix with batches of rows determines the batches; a later matrix with other batches is copied. A matrix must not
/// move while others are made with the plan.
struct RowPlan {
  const char* operation;
  std::size_t dim;  ///< the dimension along which the elements of a row lie
  /// Only the matrices count rows, so that rows may be taken in memory order.
  bool any_order = false;
  /// The dimensions in the order in which rows are counted, the slowest first; empty: in the tensor's order.
  std::vector<std::size_t> order = {};
  std::int64_t batch_rows = 0;      ///< 0: no matrix has had batches so far
  const Tensor* batched = nullptr;  ///< the first matrix with batches

  void add(const Tensor& matrix, const ce_tensor& rows) {
    if (rows.batch_rows == 0 || batched != nullptr) return;
    batch_rows = rows.batch_rows;
    batched = &matrix;
  }
};

/// A matrix that a call reads, as rows; a copy if the kernels do not support its layout.
class Input {
 public:
  Input(Tensor&& given, const char* argument, RowPlan& plan);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  [[nodiscard]] const ce_tensor& rows() const noexcept { return rows_; }

 private:
  Tensor tensor_;
  ce_tensor rows_;
};

/// A matrix that a call writes, as rows. If the kernels do not support its layout, they write other memory, which
/// finish() copies to the matrix. It is made before the inputs of a call, which then follow its batches.
class Output {
 public:
  enum class Content { is_overwritten, is_read };
  /// \param matrix  must outlive this object
  /// \throws std::runtime_error if elements share memory
  Output(const Tensor& matrix, const char* argument, RowPlan& plan,
         Content content = Content::is_overwritten);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  [[nodiscard]] const ce_tensor& rows() const noexcept { return rows_; }
  /// Called once the call is enqueued.
  void finish() const;

 private:
  const Tensor& matrix_;
  std::optional<Tensor> scratch_;
  ce_tensor rows_;
};

/// Returns a text such as "[2, 3]".
[[nodiscard]] std::string text_of(std::span<const std::int64_t> sizes);

}  // namespace ce_torch
