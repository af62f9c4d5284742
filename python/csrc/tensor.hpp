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
  /// Not initialised: of these sizes, dense.
  /// \param order  its dimensions, outermost first; empty: as they are
  [[nodiscard]] Tensor empty_in(std::span<const std::size_t> order) const;
  /// A copy that is dense in that order.
  [[nodiscard]] Tensor copy_in(std::span<const std::size_t> order) const;
  /// Copies the elements of another one of the same sizes. Autograd sees nothing of it, as of what kernels write.
  void overwrite(const Tensor& source) const;
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
  /// Whether elements may share memory: the strides do not show that each has its own.
  [[nodiscard]] bool overlaps_itself() const;
  /// The dimensions as they lie in memory, outermost first.
  [[nodiscard]] std::vector<std::size_t> memory_order() const;
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
  /// Its memory under another handle, which has no part in autograd and does not keep the memory.
  [[nodiscard]] Tensor alias() const;

  AtenTensorHandle handle_ = nullptr;
  std::int64_t *sizes_ = nullptr, *strides_ = nullptr;
  std::size_t dimensions_ = 0;
  std::int32_t dtype_ = -1;
  int device_ = 0;
};

/// The rows that lie along dimension `dim`.
/// \param order  the dimensions in the order in which rows are counted, the slowest first; empty: as they are
/// \returns nothing where they cannot be said with a stride of rows and one of batches of rows, or share memory
[[nodiscard]] std::optional<ce_tensor> rows_of(const Tensor& tensor, std::size_t dim,
                                               std::span<const std::size_t> order = {});

/// All elements, in an order of no meaning.
/// \returns nothing where three strides do not say where they are, or where they share memory
[[nodiscard]] std::optional<ce_tensor> elements_of(const Tensor& tensor);

/// A contiguous tensor as [elements].
[[nodiscard]] ce_tensor vector_of(const Tensor& tensor);

/// \throws std::runtime_error
void check(AOTITorchError error, const char* what);

/// Says once in a process that a tensor was copied since its layout is beyond the kernels, or beyond what they take beside
/// the call's other tensors.
void hint_at_copy(const char* operation, const char* argument);

}  // namespace ce_torch
