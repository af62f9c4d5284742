#include "runtime/host/matmul.hpp"

#include "templates/device/half.cuh"

namespace ce::runtime::host {
namespace {

float read(const void* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::f16: return float_from_f16_bits(static_cast<const unsigned short*>(data)[at]);
    case DType::bf16: return float_from_bf16_bits(static_cast<const unsigned short*>(data)[at]);
    default: return static_cast<const float*>(data)[at];
  }
}

void write(void* data, DType dtype, std::int64_t at, double value) {
  const auto rounded = static_cast<float>(value);
  switch (dtype) {
    case DType::f16: static_cast<unsigned short*>(data)[at] = f16_bits_from_float(rounded); break;
    case DType::bf16: static_cast<unsigned short*>(data)[at] = bf16_bits_from_float(rounded); break;
    default: static_cast<float*>(data)[at] = rounded;
  }
}

/// Element [row, column] of a stored matrix, or of its transpose.
std::int64_t offset(bool transposed, std::int64_t stride, std::int64_t row, std::int64_t column) {
  return transposed ? column * stride + row : row * stride + column;
}

}  // namespace

void MatmulLoops::launch(const Matmul& matmul, const MatmulAlgorithm&, const MatmulOperands& operands,
                         Stream) {
  const auto& [a, b, bias, d, workspace] = operands;
  std::vector<double> b_values(static_cast<std::size_t>(matmul.k * matmul.n));
  for (std::int64_t inner = 0; inner < matmul.k; ++inner)
    for (std::int64_t column = 0; column < matmul.n; ++column)
      b_values[static_cast<std::size_t>(inner * matmul.n + column)] =
          read(b, matmul.input, offset(matmul.b_transposed, matmul.b_stride, inner, column));
  std::vector<double> sums(static_cast<std::size_t>(matmul.n));
  for (std::int64_t row = 0; row < matmul.m; ++row) {
    for (std::int64_t column = 0; column < matmul.n; ++column) {
      double& sum = sums[static_cast<std::size_t>(column)];
      sum = matmul.accumulates ? read(d, matmul.output, row * matmul.d_stride + column) : 0;
      if (matmul.bias) sum += read(bias, matmul.output, column);
    }
    for (std::int64_t inner = 0; inner < matmul.k; ++inner) {
      const double factor = read(a, matmul.input, offset(matmul.a_transposed, matmul.a_stride, row, inner));
      const double* values = b_values.data() + inner * matmul.n;
      for (std::int64_t column = 0; column < matmul.n; ++column)
        sums[static_cast<std::size_t>(column)] += factor * values[column];
    }
    for (std::int64_t column = 0; column < matmul.n; ++column)
      write(d, matmul.output, row * matmul.d_stride + column, sums[static_cast<std::size_t>(column)]);
  }
}

}  // namespace ce::runtime::host
