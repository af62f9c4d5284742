#pragma once
/// \file
/// Splits products whose sizes are not multiples of 8.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/matmul.hpp"

namespace ce::runtime {

/// A product of 16-bit matrices as two products: one of all but the last few rows, columns or inner elements, and one
/// of these.
struct SplitMatmul {
  std::int64_t Matmul::*along;  ///< m, n or k
  Matmul main;                  ///< the largest size that is a multiple of 8
  Matmul rest;                  ///< the remainder; runs first if both add to one D
};

/// Libraries compute such products several times as slowly if the contiguous dimension of a matrix is not a multiple of
/// 8, such as a vocabulary of 50257: a product of 50256 and one of the last element then take less time. Returns
/// nothing if more than one size is not a multiple of 8, rows do not begin at 16 bytes, sums over k would be rounded to
/// 16 bits in between, or the product makes fewer than `least_work` multiplications.
[[nodiscard]] std::optional<SplitMatmul> split(const Matmul& matmul, std::int64_t least_work);

/// Another library's algorithms, preceded by the same algorithms for split products. The text of a split one is that of
/// the main product's algorithm and ",in_two"; the remainder uses the first algorithm that the library lists.
class SplitMatmuls final : public MatmulLibrary {
 public:
  static constexpr std::int64_t worth_it = std::int64_t{1} << 32;  ///< about 10 us of an H200

  explicit SplitMatmuls(std::unique_ptr<MatmulLibrary> library, std::int64_t least_work = worth_it)
      : library_(std::move(library)), least_work_(least_work) {}

  [[nodiscard]] std::string name() const override { return library_->name(); }
  [[nodiscard]] std::vector<MatmulAlgorithm> algorithms(const Matmul& matmul, std::int64_t most_workspace,
                                                        int most) override;
  [[nodiscard]] std::vector<MatmulAlgorithm> neighbours(const Matmul& matmul,
                                                        const MatmulAlgorithm& algorithm,
                                                        std::int64_t most_workspace, int most) override;
  [[nodiscard]] std::optional<MatmulAlgorithm> algorithm(const Matmul& matmul, std::string_view text,
                                                         std::int64_t most_workspace) override;
  void launch(const Matmul& matmul, const MatmulAlgorithm& algorithm, const MatmulOperands& operands,
              Stream stream) override;

 private:
  /// Returns nothing if the library has no algorithm for it.
  [[nodiscard]] std::optional<MatmulAlgorithm> first_of(const Matmul& rest, std::int64_t most_workspace);

  std::unique_ptr<MatmulLibrary> library_;
  std::int64_t least_work_;
};

}  // namespace ce::runtime
