#pragma once
/// \file
/// Tensors of torch through its stable C interface, and as rows of classes for ce.

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ce/ce.h"

namespace ce_torch {

/// Owns a reference. All but the destructor throw std::runtime_error where torch refuses.
class Tensor {
 public:
  /// Takes over the reference.
  explicit Tensor(AtenTensorHandle handle);
  Tensor(Tensor&& other) noexcept : Tensor() { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Tensor();

  /// An undefined one, which Python sees as None.
  [[nodiscard]] static Tensor undefined();
  /// Not initialised, on the device of `like`.
  [[nodiscard]] static Tensor empty(std::span<const std::int64_t> sizes,
                                    std::span<const std::int64_t> strides, std::int32_t dtype,
                                    const Tensor& like);
  /// Contiguous.
  [[nodiscard]] static Tensor empty(std::span<const std::int64_t> sizes, std::int32_t dtype,
                                    const Tensor& like);
  [[nodiscard]] static Tensor empty(std::int64_t size, std::int32_t dtype, const Tensor& like);
  /// Without an axis.
  [[nodiscard]] static Tensor empty_scalar(std::int32_t dtype, const Tensor& like);
  /// As torch.empty_like(): dense, its dimensions in the same order in memory.
  [[nodiscard]] static Tensor empty_like(const Tensor& like);
  /// Itself where it is contiguous, else a copy that is.
  [[nodiscard]] Tensor contiguous() const;
  /// Another reference.
  [[nodiscard]] Tensor share() const;

  [[nodiscard]] AtenTensorHandle handle() const noexcept { return handle_; }
  /// Gives the reference away.
  [[nodiscard]] AtenTensorHandle release() noexcept { return std::exchange(handle_, nullptr); }

  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept { return {sizes_, dimensions_}; }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return {strides_, dimensions_}; }
  [[nodiscard]] std::int64_t elements() const noexcept;
  /// Whether the elements fill a range of memory, each its own.
  [[nodiscard]] bool is_dense() const;
  /// torch's number of it.
  [[nodiscard]] std::int32_t dtype() const noexcept { return dtype_; }
  /// ce's. \throws std::runtime_error where it has none
  [[nodiscard]] ce_dtype ce_type() const;
  /// The index of a GPU, or `host`.
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] void* data() const;

 private:
  Tensor() = default;
  /// A new one, of which all is known but where sizes and strides are.
  Tensor(AtenTensorHandle handle, std::size_t dimensions, std::int32_t dtype, int device);
  void swap(Tensor& other) noexcept;

  AtenTensorHandle handle_ = nullptr;
  std::int64_t *sizes_ = nullptr, *strides_ = nullptr;
  std::size_t dimensions_ = 0;
  std::int32_t dtype_ = -1;
  int device_ = 0;
};

/// The rows that lie along dimension `dim`, first dimension slowest.
/// \returns nothing where they cannot be said with a stride of rows and one of batches of rows
[[nodiscard]] std::optional<ce_tensor> rows_of(const Tensor& tensor, std::size_t dim);

/// A contiguous tensor as [elements].
[[nodiscard]] ce_tensor vector_of(const Tensor& tensor);

/// \throws std::runtime_error
void check(AOTITorchError error, const char* what);

/// Says once in a process that a tensor was copied since its layout is beyond the kernels.
void hint_at_copy(const char* operation, const char* argument);

}  // namespace ce_torch
