#pragma once
/// \file
/// Products of two matrices, computed by a library of the device.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ce/dtype.hpp"

namespace ce::runtime {

/// D [m, n] = A [m, k] B [k, n], summed in f32. Matrices are row-major, with `stride` elements from one row to the next
/// as stored: a transposed A is stored as [k, m], a transposed B as [n, k].
struct Matmul {
  std::int64_t m = 0, n = 0, k = 0;
  DType input = DType::f32;   ///< dtype of A and B: f32, f16 or bf16
  DType output = DType::f32;  ///< dtype of D: f32, or that of the input
  bool a_transposed = false, b_transposed = false;
  bool accumulates = false;  ///< D += A B; a library may round the product first, and then the sum
  bool any_order = false;  ///< partial sums may be added up in any order: the last bits may differ each time
  bool bias = false;       ///< a vector [n] of the output's dtype is added to every row, and the sum rounded
  std::int64_t a_stride = 0, b_stride = 0, d_stride = 0;
  int alignment = 16;  ///< divides the addresses of A, B and D: a power of two, 256 bytes at most

  friend auto operator<=>(const Matmul&, const Matmul&) = default;

  /// The members as words: "matmul bf16 m=4096 n=128256 k=4096 a=row:4096 b=col:4096 d=f32:128256 add any_order bias align=256".
  [[nodiscard]] std::string key() const;
  /// The fewest bytes that any implementation must move.
  [[nodiscard]] std::int64_t bytes() const noexcept;
};

/// Memory of one product.
struct MatmulOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;  ///< MatmulAlgorithm::workspace_bytes, aligned to 256 bytes
};

/// The largest power of two, 256 at most, that divides all addresses.
[[nodiscard]] int alignment_of(std::initializer_list<const void*> addresses) noexcept;

/// One way to make a product. Its text is the same in every process with the same library.
struct MatmulAlgorithm {
  std::string text;  ///< "66/tile=128x256,stages=36,cluster=2x1x1,split_k=1,swizzle=0,custom=0"
  std::array<std::uint64_t, 8> opaque{};
  std::int64_t workspace_bytes = 0;
  std::vector<MatmulAlgorithm>
      pieces;  ///< the two products of a split product (split_matmuls.hpp); `opaque` is then unused
};

/// Every method may be called from any thread.
class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;

  /// The library's name with its version: "cublasLt 13.1.0", "host loops".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Algorithms that give the same bits for the same operands each time, unless the Matmul allows any order; the most
  /// promising one first.
  /// \param most_workspace  bytes that an algorithm may need
  /// \throws Unsupported if there is none
  [[nodiscard]] virtual std::vector<MatmulAlgorithm> algorithms(const Matmul& matmul,
                                                                std::int64_t most_workspace, int most) = 0;

  /// Algorithms that differ from this one in one attribute, such as the shape of a tile.
  [[nodiscard]] virtual std::vector<MatmulAlgorithm> neighbours(const Matmul& matmul,
                                                                const MatmulAlgorithm& algorithm,
                                                                std::int64_t most_workspace, int most) = 0;

  /// The algorithm of that text, listed or a neighbour; nothing if it is invalid for this product, or from another
  /// library.
  [[nodiscard]] virtual std::optional<MatmulAlgorithm> algorithm(const Matmul& matmul, std::string_view text,
                                                                 std::int64_t most_workspace) = 0;

  /// Launches the product, asynchronously on CUDA. Does nothing if m or n is 0.
  /// \param algorithm  listed for an equal Matmul
  virtual void launch(const Matmul& matmul, const MatmulAlgorithm& algorithm, const MatmulOperands& operands,
                      Stream stream) = 0;
};

}  // namespace ce::runtime
