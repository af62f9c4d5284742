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

/// The divisor of a mean over all chunks.
struct LinearDivisor {
  DType target_dtype = DType::i64;
  DType weight_dtype = DType::f32;
  bool probabilities = false;  ///< every row counts
  bool weights = false;        ///< classes have weights
  bool scales = false;  ///< the kernel writes scaled weights, with which the divisor is the number of rows

  friend auto operator<=>(const LinearDivisor&, const LinearDivisor&) = default;
};
[[nodiscard]] Program linear_divisor(const LinearDivisor& divisor);

/// The sum of the losses of `rows` chunks.
[[nodiscard]] Program linear_loss_sum(DType loss);

/// The sums of `columns` columns of a matrix.
[[nodiscard]] Program linear_column_sums(DType element);

/// Finds the positions of the tokens that count, among `rows` targets.
[[nodiscard]] Program linear_places(DType target);

/// Gathers the rows of tokens that count: `rows` rows of `columns` units, of 1, 2, 4, 8 or 16 bytes each.
[[nodiscard]] Program linear_gather(int unit_bytes);
/// Scatters gathered rows back to their tokens: `rows` is the number of all tokens.
[[nodiscard]] Program linear_scatter(int unit_bytes);

/// The options of the kernel that computes statistics of rows without storing their logits
/// (kernels/gemm/statistics.cuh). Its parameter is LinearStatisticsArguments.
struct LinearStatistics {
  DType input = DType::bf16;   ///< dtype of hidden and weight: f16 or bf16
  DType logits = DType::bf16;  ///< dtype of the logits for which the statistics are merged
  DType target_dtype = DType::i64;
  DType bias_dtype = DType::f32;    ///< used with bias
  DType weight_dtype = DType::f32;  ///< used with weights
  bool bias = false;
  bool weights = false;  ///< classes have weights
  bool smoothing = false, scale = false, softcap = false, row_scales = false;
  bool indices = false;       ///< argmax or hit is asked for
  bool moment = false;        ///< entropy is asked for
  bool exponentials = false;  ///< the kernel writes exponentials, of which gradients are made

  friend auto operator<=>(const LinearStatistics&, const LinearStatistics&) = default;

  /// Number of 32-bit words for a row.
  [[nodiscard]] int words() const noexcept;
  /// The members above as words: "linear_statistics bf16 logits=bf16 target=i64 smoothing".
  [[nodiscard]] std::string text() const;
};

// The kernels that make gradients of the exponentials (templates/linear/exponentials/). Their parameter is
// LinearExponentialsArguments, and their launches take the rows and the hidden size as rows and columns of a Problem.

enum class LinearStep : std::uint8_t {
  reference,  ///< computes the logit that a row's exponentials are first taken relative to
  scale,  ///< multiplies hidden states by their factors, and makes exponentials relative to the maximum of their row
  hidden_gradient,  ///< computes the gradient of hidden states, from exponentials x weight
  order             ///< sorts the rows by their classes
};
[[nodiscard]] Program linear_step(LinearStep step, const LinearStatistics& statistics);
/// The kernel of the factors that turn exponentials into gradients.
struct LinearFactors {
  LinearStatistics statistics;
  DType upstream = DType::f32;
  bool z_loss = false;

  friend auto operator<=>(const LinearFactors&, const LinearFactors&) = default;
};
[[nodiscard]] Program linear_factors(const LinearFactors& factors);
/// The kernel that adds the targets' contribution to the gradient of the weight.
[[nodiscard]] Program linear_weight_gradient(const LinearStatistics& statistics, DType gradient);

/// The tiles that linear_statistics() supports. The first one is used if there is no measurement.
[[nodiscard]] std::span<const ProductTile> product_tiles() noexcept;
/// "tile=128x192,stages=5,cluster=2".
[[nodiscard]] std::string to_text(const ProductTile& tile);

/// Digest of every template of linear_statistics(), for all options and tiles; with exponentials also of the templates
/// that make gradients of them. Races with another digest are out of date.
[[nodiscard]] const std::string& linear_template_digest(bool exponentials);

/// Launches take the number of blocks as the rows of a Problem.
[[nodiscard]] Program linear_statistics(const LinearStatistics& statistics, const ProductTile& tile);

}  // namespace ce::generator
