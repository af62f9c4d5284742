#pragma once
/// \file
/// Kernels that run around the products of LinearCrossEntropy. Their parameter is LinearArguments, and their launches take
/// the rows and columns of a Problem.

#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "generator/source.hpp"
#include "templates/product_layout.cuh"

namespace ce::generator {

/// Rounds `rows` elements to another dtype.
[[nodiscard]] Program linear_convert(DType from, DType to);

/// What a mean over all chunks is divided by.
struct LinearDivisor {
  DType target_dtype = DType::i64;
  DType weight_dtype = DType::f32;
  bool probabilities = false;  ///< every row counts
  bool weights = false;        ///< classes have them
  bool scales = false;         ///< writes weights that make the number of rows the divisor

  friend auto operator<=>(const LinearDivisor&, const LinearDivisor&) = default;
};
[[nodiscard]] Program linear_divisor(const LinearDivisor& divisor);

/// The sum of the losses of `rows` chunks.
[[nodiscard]] Program linear_loss_sum(DType loss);

/// The sums of `columns` columns.
[[nodiscard]] Program linear_column_sums(DType element);

/// Where the tokens are that count, of `rows` targets.
[[nodiscard]] Program linear_places(DType target);

/// Rows of tokens that count next to each other: `rows` rows of `columns` units, of 1, 2, 4, 8 or 16 bytes each.
[[nodiscard]] Program linear_gather(int unit_bytes);
/// The way back: `rows` are all tokens.
[[nodiscard]] Program linear_scatter(int unit_bytes);

/// The code of the kernel that takes statistics of rows whose logits are in no memory (kernels/gemm/statistics.cuh). Its
/// parameter is LinearStatisticsArguments.
struct LinearStatistics {
  DType input = DType::bf16;   ///< of hidden and weight: f16 or bf16
  DType logits = DType::bf16;  ///< as whose statistics they are merged
  DType target_dtype = DType::i64;
  DType bias_dtype = DType::f32;    ///< with bias
  DType weight_dtype = DType::f32;  ///< with weights
  bool bias = false;
  bool weights = false;  ///< of the classes
  bool smoothing = false, scale = false, softcap = false, row_scales = false;
  bool indices = false;       ///< argmax or hit is asked for
  bool moment = false;        ///< entropy is
  bool exponentials = false;  ///< it leaves what gradients are made of

  friend auto operator<=>(const LinearStatistics&, const LinearStatistics&) = default;

  /// 32-bit words about a row.
  [[nodiscard]] int words() const noexcept;
  /// The members above as words: "linear_statistics bf16 logits=bf16 target=i64 smoothing".
  [[nodiscard]] std::string text() const;
};

// What gradients are made of the exponentials that it leaves (templates/linear/exponentials/). Their parameter is
// LinearExponentialsArguments, and their launches take the rows and the hidden size as rows and columns of a Problem.

enum class LinearStep : std::uint8_t {
  reference,  ///< with respect to what exponentials begin to be taken
  scale,  ///< hidden states times their factors, and exponentials with respect to the maximum of their row
  hidden_gradient,  ///< the gradient of hidden states, from exponentials x weight
  order             ///< the rows in the order of their classes
};
[[nodiscard]] Program linear_step(LinearStep step, const LinearStatistics& statistics);
/// What exponentials are multiplied by.
struct LinearFactors {
  LinearStatistics statistics;
  DType upstream = DType::f32;
  bool z_loss = false;

  friend auto operator<=>(const LinearFactors&, const LinearFactors&) = default;
};
[[nodiscard]] Program linear_factors(const LinearFactors& factors);
/// What the targets add to the gradient of the weight.
[[nodiscard]] Program linear_weight_gradient(const LinearStatistics& statistics, DType gradient);

/// The tiles that it can be made of, the one first that serves without a measurement.
[[nodiscard]] std::span<const ProductTile> product_tiles() noexcept;
/// "tile=128x192,stages=5,cluster=2".
[[nodiscard]] std::string to_text(const ProductTile& tile);

/// Digest of every template of that kernel, whatever its options and its tile; with exponentials also of all that make
/// gradients of them. A race with another one is history.
[[nodiscard]] const std::string& linear_template_digest(bool exponentials);

/// Its launches take the number of blocks as the rows of a Problem.
[[nodiscard]] Program linear_statistics(const LinearStatistics& statistics, const ProductTile& tile);

}  // namespace ce::generator
