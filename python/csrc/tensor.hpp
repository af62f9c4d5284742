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

/// Owns a reference. All members but the destructor throw std::runtime_error if torch refuses.
class Tensor {
 public:
  /// Takes ownership of the reference.
  explicit Tensor(AtenTensorHandle handle);
  Tensor(Tensor&& other) noexcept : Tensor() { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Tensor();

  /// An undefined tensor, which Python sees as None.
  [[nodiscard]] static Tensor undefined();
  /// A tensor that is not initialised, on the device of `like`.
  [[nodiscard]] static Tensor empty(std::span<const std::int64_t> sizes,
                                    std::span<const std::int64_t> strides, std::int32_t dtype,
                                    const Tensor& like);
  /// A contiguous tensor.
  [[nodiscard]] static Tensor empty(std::span<const std::int64_t> sizes, std::int32_t dtype,
                                    const Tensor& like);
  [[nodiscard]] static Tensor empty(std::int64_t size, std::int32_t dtype, const Tensor& like);
  /// A tensor without an axis.
  [[nodiscard]] static Tensor empty_scalar(std::int32_t dtype, const Tensor& like);
  /// Works as torch.empty_like(): dense, its dimensions in the same order in memory.
  [[nodiscard]] static Tensor empty_like(const Tensor& like);
  /// Returns itself if it is contiguous, else a contiguous copy.
  [[nodiscard]] Tensor contiguous() const;
  /// A dense tensor of these sizes that is not initialised.
  /// \param order  its dimensions, outermost first; empty: in the tensor's order
  [[nodiscard]] Tensor empty_in(std::span<const std::size_t> order) const;
  /// A copy that is dense in that order.
  [[nodiscard]] Tensor copy_in(std::span<const std::size_t> order) const;
  /// Copies the elements of another tensor of the same sizes. Autograd does not see it, as it does not see writes of
  /// kernels.
  void overwrite(const Tensor& source) const;
  /// Returns another reference.
  [[nodiscard]] Tensor share() const;

  [[nodiscard]] AtenTensorHandle handle() const noexcept { return handle_; }
  /// Gives up the reference.
  [[nodiscard]] AtenTensorHandle release() noexcept { return std::exchange(handle_, nullptr); }

  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept { return {sizes_, dimensions_}; }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return {strides_, dimensions_}; }
  [[nodiscard]] std::int64_t elements() const noexcept;
  /// Whether the elements fill a range of memory without overlap.
  [[nodiscard]] bool is_dense() const;
  /// Whether elements may share memory: the strides do not prove that they do not.
  [[nodiscard]] bool overlaps_itself() const;
  /// The dimensions in memory order, outermost first.
  [[nodiscard]] std::vector<std::size_t> memory_order() const;
  /// torch's number for its dtype.
  [[nodiscard]] std::int32_t dtype() const noexcept { return dtype_; }
  /// ce's dtype. \throws std::runtime_error if ce has none for it
  [[nodiscard]] ce_dtype ce_type() const;
  /// The index of a GPU, or `host`.
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] void* data() const;

 private:
  Tensor() = default;
  /// A new tensor of which everything but the address of its sizes and strides is known.
  Tensor(AtenTensorHandle handle, std::size_t dimensions, std::int32_t dtype, int device);
  void swap(Tensor& other) noexcept;
  /// Its memory under another handle, which autograd ignores and which does not keep the memory alive.
  [[nodiscard]] Tensor alias() const;

  AtenTensorHandle handle_ = nullptr;
  std::int64_t *sizes_ = nullptr, *strides_ = nullptr;
  std::size_t dimensions_ = 0;
  std::int32_t dtype_ = -1;
  int device_ = 0;
};

/// The rows along dimension `dim`.
/// \param order  the dimensions in the order in which rows are counted, the slowest first; empty: in the tensor's order
/// \returns nothing if a stride of rows and one of batches of rows cannot describe them, or if they share memory
[[nodiscard]] std::optional<ce_tensor> rows_of(const Tensor& tensor, std::size_t dim,
                                               std::span<const std::size_t> order = {});

/// All elements, in any order.
/// \returns nothing if three strides cannot describe them, or if they share memory
[[nodiscard]] std::optional<ce_tensor> elements_of(const Tensor& tensor);

/// A contiguous tensor as [elements].
[[nodiscard]] ce_tensor vector_of(const Tensor& tensor);

/// \throws std::runtime_error
void check(AOTITorchError error, const char* what);

/// Reports once in a process that a tensor was copied because the kernels do not support its layout, alone or beside
/// the call's other tensors.
void hint_at_copy(const char* operation, const char* argument);

}  // namespace ce_torch
