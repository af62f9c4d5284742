#include "runtime/split_matmuls.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "ce/error.hpp"

namespace ce::runtime {
namespace {

constexpr std::int64_t unit = 8;
constexpr std::string_view in_two = ",in_two";
/// Used for a product whose algorithm is chosen: the winner of a race with more tokens splits it, too.
constexpr std::int64_t any_work = 0;

bool begins_at_16_bytes(std::int64_t stride, DType dtype) { return stride * size_of(dtype) % 16 == 0; }

MatmulAlgorithm joined(MatmulAlgorithm main, MatmulAlgorithm rest) {
  MatmulAlgorithm both{.text = main.text + std::string(in_two),
                       .workspace_bytes = std::max(main.workspace_bytes, rest.workspace_bytes)};
  both.pieces = {std::move(main), std::move(rest)};
  return both;
}

const void* after(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(data) + elements * size_of(dtype);
}

/// The operands behind the first `count` rows, columns or inner elements.
MatmulOperands rest_of(const Matmul& matmul, const SplitMatmul& pieces, MatmulOperands operands) {
  const std::int64_t count = pieces.main.*pieces.along;
  const auto skip_d = [&](std::int64_t elements) {
    operands.d = static_cast<std::byte*>(operands.d) + elements * size_of(matmul.output);
  };
  const std::int64_t in_a =
      matmul.a_transposed == (pieces.along == &Matmul::m) ? count : count * matmul.a_stride;
  const std::int64_t in_b =
      matmul.b_transposed == (pieces.along == &Matmul::k) ? count : count * matmul.b_stride;
  if (pieces.along != &Matmul::n) operands.a = after(operands.a, in_a, matmul.input);
  if (pieces.along != &Matmul::m) operands.b = after(operands.b, in_b, matmul.input);
  if (pieces.along == &Matmul::m) skip_d(count * matmul.d_stride);
  if (pieces.along == &Matmul::n) {
    skip_d(count);
    if (matmul.bias) operands.bias = after(operands.bias, count, matmul.output);
  }
  return operands;
}

}  // namespace

std::optional<SplitMatmul> split(const Matmul& matmul, std::int64_t least_work) {
  if (size_of(matmul.input) != 2) return std::nullopt;
  if (static_cast<double>(matmul.m) * static_cast<double>(matmul.n) * static_cast<double>(matmul.k) <
      static_cast<double>(least_work))
    return std::nullopt;
  if (matmul.alignment < 16 || !begins_at_16_bytes(matmul.a_stride, matmul.input) ||
      !begins_at_16_bytes(matmul.b_stride, matmul.input) ||
      !begins_at_16_bytes(matmul.d_stride, matmul.output))
    return std::nullopt;
  std::int64_t Matmul::*along = nullptr;
  const auto look_at = [&](std::int64_t Matmul::*size, bool lies_in_rows) {
    if (!lies_in_rows || matmul.*size % unit == 0) return true;
    if (along != nullptr || matmul.*size < unit) return false;
    along = size;
    return true;
  };
  const bool alone = look_at(&Matmul::m, matmul.a_transposed) && look_at(&Matmul::n, true) &&
                     look_at(&Matmul::k, !matmul.a_transposed || matmul.b_transposed);
  if (!alone || along == nullptr) return std::nullopt;
  if (along == &Matmul::k && matmul.output != DType::f32) return std::nullopt;
  SplitMatmul pieces{.along = along, .main = matmul, .rest = matmul};
  pieces.rest.*along = matmul.*along % unit;
  pieces.main.*along -= pieces.rest.*along;
  pieces.rest.alignment = 16;
  if (along == &Matmul::k) {
    pieces.rest.bias = false;
    pieces.main.accumulates = true;
  }
  return pieces;
}

std::optional<MatmulAlgorithm> SplitMatmuls::first_of(const Matmul& rest, std::int64_t most_workspace) {
  try {
    return library_->algorithms(rest, most_workspace, 1).front();
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

std::vector<MatmulAlgorithm> SplitMatmuls::algorithms(const Matmul& matmul, std::int64_t most_workspace,
                                                      int most) {
  std::vector<MatmulAlgorithm> all;
  const std::optional<SplitMatmul> pieces = split(matmul, least_work_);
  const auto rest = pieces ? first_of(pieces->rest, most_workspace) : std::nullopt;
  if (rest) {
    try {
      for (MatmulAlgorithm& main : library_->algorithms(pieces->main, most_workspace, (most + 1) / 2))
        all.push_back(joined(std::move(main), *rest));
    } catch (const Unsupported&) {
      // Then the product is not split.
    }
  }
  if (const int left = most - static_cast<int>(all.size()); left > 0) {
    try {
      std::vector<MatmulAlgorithm> in_one = library_->algorithms(matmul, most_workspace, left);
      all.insert(all.end(), std::make_move_iterator(in_one.begin()), std::make_move_iterator(in_one.end()));
    } catch (const Unsupported&) {
      if (all.empty()) throw;
    }
  }
  return all;
}

std::vector<MatmulAlgorithm> SplitMatmuls::neighbours(const Matmul& matmul, const MatmulAlgorithm& algorithm,
                                                      std::int64_t most_workspace, int most) {
  if (algorithm.pieces.empty()) return library_->neighbours(matmul, algorithm, most_workspace, most);
  const std::optional<SplitMatmul> pieces = split(matmul, any_work);
  if (!pieces) return {};
  std::vector<MatmulAlgorithm> all;
  for (MatmulAlgorithm& main : library_->neighbours(pieces->main, algorithm.pieces[0], most_workspace, most))
    all.push_back(joined(std::move(main), algorithm.pieces[1]));
  return all;
}

std::optional<MatmulAlgorithm> SplitMatmuls::algorithm(const Matmul& matmul, std::string_view text,
                                                       std::int64_t most_workspace) {
  if (!text.ends_with(in_two)) return library_->algorithm(matmul, text, most_workspace);
  text.remove_suffix(in_two.size());
  const std::optional<SplitMatmul> pieces = split(matmul, any_work);
  if (!pieces) return std::nullopt;
  std::optional<MatmulAlgorithm> main = library_->algorithm(pieces->main, text, most_workspace);
  std::optional<MatmulAlgorithm> rest = first_of(pieces->rest, most_workspace);
  if (!main || !rest) return std::nullopt;
  return joined(*std::move(main), *std::move(rest));
}

void SplitMatmuls::launch(const Matmul& matmul, const MatmulAlgorithm& algorithm,
                          const MatmulOperands& operands, Stream stream) {
  if (algorithm.pieces.empty()) return library_->launch(matmul, algorithm, operands, stream);
  const std::optional<SplitMatmul> pieces = split(matmul, any_work);
  library_->launch(pieces.value().rest, algorithm.pieces[1], rest_of(matmul, pieces.value(), operands),
                   stream);
  library_->launch(pieces.value().main, algorithm.pieces[0], operands, stream);
}

}  // namespace ce::runtime
