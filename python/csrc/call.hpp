#pragma once
/// \file
/// What operators have in common: the arguments of a boxed call, and tensors as the C interface takes them.

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

#include "ce/ce.h"
#include "python/csrc/tensor.hpp"

namespace ce_torch {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "small values lie in the first bytes of a StableIValue");

template <class Value>
Value to_value(StableIValue given) {
  Value value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer itself, too
  constexpr std::size_t bytes = sizeof(Value);
  static_assert(std::is_trivially_copyable_v<Value> && bytes <= sizeof given);
  std::memcpy(&value, &given, bytes);
  return value;
}

inline StableIValue from_tensor(Tensor& tensor) { return std::bit_cast<StableIValue>(tensor.release()); }

/// The arguments of a boxed call, taken in turn.
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

/// The stream that torch has for the tensor's device at present.
[[nodiscard]] ce_stream stream_of(const Tensor& tensor);

/// \throws std::runtime_error naming the tensor
void require_same_device(const Tensor& tensor, const char* name, const Tensor& first);
/// \throws std::runtime_error naming the operation
void require_same_sizes(const Tensor& tensor, const Tensor& like, const char* operation,
                        const char* argument);

/// From 0 on. \throws std::runtime_error naming the operation
[[nodiscard]] std::size_t dimension(std::int64_t dim, const Tensor& tensor, const char* operation);

/// What is read, as rows; a copy where the layout is beyond the kernels.
struct Input {
  Input(Tensor&& given, std::size_t dim, const char* operation, const char* argument)
      : tensor(std::move(given)) {
    std::optional<ce_tensor> known = rows_of(tensor, dim);
    if (!known) {
      hint_at_copy(operation, argument);
      tensor = tensor.contiguous();
      known = rows_of(tensor, dim);
    }
    rows = known.value();
  }
  Tensor tensor;
  ce_tensor rows;
};

/// What is written where it is. \throws std::runtime_error for a layout beyond the kernels
[[nodiscard]] ce_tensor written_rows(const Tensor& tensor, std::size_t dim, const char* operation,
                                     const char* argument);

/// "[2, 3]"
[[nodiscard]] std::string text_of(std::span<const std::int64_t> sizes);

}  // namespace ce_torch
