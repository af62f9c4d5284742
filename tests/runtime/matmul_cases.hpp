#pragma once
/// \file
/// Products of a device's library against f64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/split_matmuls.hpp"
#include "templates/device/half.cuh"

namespace ce::runtime::test {

inline std::vector<std::byte> stored(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const unsigned short bits =
          dtype == DType::f16 ? f16_bits_from_float(values[i]) : bf16_bits_from_float(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

inline std::vector<float> read_back(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else {
      unsigned short bits = 0;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = dtype == DType::f16 ? float_from_f16_bits(bits) : float_from_bf16_bits(bits);
    }
  }
  return values;
}

/// A matrix as it is stored, with a gap of `gap` elements after each row.
struct StoredMatrix {
  std::int64_t rows, columns, stride;
  std::vector<float> values;  ///< as the dtype holds them, gaps included

  /// \param unit  of the stride, which is rounded up to it
  StoredMatrix(std::int64_t own_rows, std::int64_t own_columns, std::int64_t gap, DType dtype,
               std::mt19937& random, std::int64_t unit = 1)
      : rows(own_rows),
        columns(own_columns),
        stride((own_columns + gap + unit - 1) / unit * unit),
        values(static_cast<std::size_t>(own_rows * stride)) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& value : values) value = uniform(random);
    values = read_back(stored(values, dtype), dtype);
  }
  [[nodiscard]] double at(bool transposed, std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(transposed ? column * stride + row : row * stride + column)];
  }
};

/// Of a library the first `most`, and as many neighbours of the first.
inline std::vector<MatmulAlgorithm> some_algorithms(MatmulLibrary& library, const Matmul& matmul, int most) {
  constexpr std::int64_t workspace = std::int64_t{32} << 20;
  std::vector<MatmulAlgorithm> all = library.algorithms(matmul, workspace, most);
  const std::vector<MatmulAlgorithm> alike = library.neighbours(matmul, all.front(), workspace, most);
  all.insert(all.end(), alike.begin(), alike.end());
  // Each is made anew from its text: what cuBLASLt keeps beside its attributes may have other bits.
  for (MatmulAlgorithm& algorithm : all) {
    const std::optional<MatmulAlgorithm> same = library.algorithm(matmul, algorithm.text, workspace);
    EXPECT_TRUE(same && same->text == algorithm.text && same->workspace_bytes == algorithm.workspace_bytes &&
                same->pieces.size() == algorithm.pieces.size())
        << algorithm.text << " of " << matmul.key();
    if (same) algorithm = *same;
  }
  for (const char* none : {"", "66", "66/tile=", "loop", "loops,", "-3/tile=1"})
    EXPECT_FALSE(library.algorithm(matmul, none, workspace)) << none;
  return all;
}

/// The product with some algorithms against f64; gaps between rows must stay as they are.
inline void check_product(Device& device, MatmulLibrary& library, Matmul matmul, std::int64_t gap, int most,
                          std::int64_t stride_unit = 1) {
  std::mt19937 random(7);
  const auto [m, n, k] = std::tuple(matmul.m, matmul.n, matmul.k);
  const StoredMatrix a(matmul.a_transposed ? k : m, matmul.a_transposed ? m : k, gap, matmul.input, random,
                       stride_unit);
  const StoredMatrix b(matmul.b_transposed ? n : k, matmul.b_transposed ? k : n, gap, matmul.input, random,
                       stride_unit);
  const StoredMatrix d(m, n, gap, matmul.output, random, stride_unit), bias(1, n, 0, matmul.output, random);
  matmul.a_stride = a.stride;
  matmul.b_stride = b.stride;
  matmul.d_stride = d.stride;
  const auto on_device = [&](const StoredMatrix& matrix, DType dtype) {
    const std::vector<std::byte> bytes = stored(matrix.values, dtype);
    Buffer buffer(device, bytes.size());
    device.upload(buffer.data(), bytes.data(), bytes.size());
    return buffer;
  };
  const Buffer a_memory = on_device(a, matmul.input), b_memory = on_device(b, matmul.input),
               bias_memory = on_device(bias, matmul.output);
  matmul.alignment = 16;
  for (const MatmulAlgorithm& algorithm : some_algorithms(library, matmul, most)) {
    SCOPED_TRACE(matmul.key() + " by " + algorithm.text);
    const Buffer workspace(device, static_cast<std::size_t>(algorithm.workspace_bytes));
    const Buffer d_memory = on_device(d, matmul.output);
    library.launch(matmul, algorithm,
                   {a_memory.data(), b_memory.data(), bias_memory.data(), d_memory.data(), workspace.data()},
                   device.trial_stream());
    device.synchronize(device.trial_stream());
    std::vector<std::byte> bytes(d_memory.size());
    device.download(bytes.data(), d_memory.data(), bytes.size());
    const std::vector<float> got = read_back(bytes, matmul.output);
    const double unit = matmul.output == DType::f32   ? 0x1p-24
                        : matmul.output == DType::f16 ? 0x1p-11
                                                      : 0x1p-8;
    double worst = 0;
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < d.stride; ++column) {
        const auto at = static_cast<std::size_t>(row * d.stride + column);
        if (column >= n) {
          ASSERT_EQ(got[at], d.values[at]) << "a gap was written at " << row << ", " << column;
          continue;
        }
        double expected = matmul.accumulates ? d.values[at] : 0, magnitude = std::abs(expected), product = 0;
        if (matmul.bias) {
          expected += bias.values[static_cast<std::size_t>(column)];
          magnitude += std::abs(bias.values[static_cast<std::size_t>(column)]);
        }
        for (std::int64_t inner = 0; inner < k; ++inner) {
          const double term =
              a.at(matmul.a_transposed, row, inner) * b.at(matmul.b_transposed, inner, column);
          expected += term;
          product += term;
          magnitude += std::abs(term);
        }
        // The product may be rounded before something is added to it.
        const double first = matmul.accumulates || matmul.bias ? std::abs(product) : 0;
        const double allowed = unit * (std::abs(expected) + first) + 0x1p-22 * magnitude + 1e-7;
        worst = std::max(worst, std::abs(got[at] - expected) / allowed);
      }
    EXPECT_LE(worst, 1) << "times the rounding that is allowed";
  }
}

/// Every dtype, layout, sum and bias, on sizes that are multiples of nothing and of 64.
inline void check_products(Device& device, int most) {
  for (const DType input : {DType::f32, DType::f16, DType::bf16})
    for (const DType output : {input, DType::f32})
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
          for (const int kind : {0, 1, 2}) {
            Matmul matmul{.m = 37,
                          .n = 72,
                          .k = 24,
                          .input = input,
                          .output = output,
                          .a_transposed = a_transposed,
                          .b_transposed = b_transposed,
                          .accumulates = kind == 1,
                          .bias = kind == 2};
            check_product(device, device.matmuls(), matmul, 8, most);
            matmul.m = 64;
            matmul.k = 192;
            check_product(device, device.matmuls(), matmul, 0, most);
          }
}

/// The device's library behind another one.
class Behind final : public MatmulLibrary {
 public:
  explicit Behind(Device& device) : library_(device.matmuls()) {}
  std::string name() const override { return library_.name(); }
  std::vector<MatmulAlgorithm> algorithms(const Matmul& matmul, std::int64_t workspace, int most) override {
    return library_.algorithms(matmul, workspace, most);
  }
  std::vector<MatmulAlgorithm> neighbours(const Matmul& matmul, const MatmulAlgorithm& of,
                                          std::int64_t workspace, int most) override {
    return library_.neighbours(matmul, of, workspace, most);
  }
  std::optional<MatmulAlgorithm> algorithm(const Matmul& matmul, std::string_view text,
                                           std::int64_t workspace) override {
    return library_.algorithm(matmul, text, workspace);
  }
  void launch(const Matmul& matmul, const MatmulAlgorithm& algorithm, const MatmulOperands& operands,
              Stream stream) override {
    if (std::min({matmul.m, matmul.n, matmul.k}) < 8) ++rests;
    library_.launch(matmul, algorithm, operands, stream);
  }
  int rests = 0;  ///< products of less than 8 rows, columns or inner elements

 private:
  MatmulLibrary& library_;
};

/// Products of 16-bit matrices one of whose sizes is no multiple of 8, made in two and in one.
inline void check_split_products(Device& device, int most) {
  auto behind = std::make_unique<Behind>(device);
  const Behind& inner = *behind;
  SplitMatmuls library(std::move(behind), 0);
  for (std::int64_t Matmul::*odd : {&Matmul::m, &Matmul::n, &Matmul::k})
    for (const DType output : {DType::bf16, DType::f32})
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
          for (const int kind : {0, 1, 2}) {
            Matmul matmul{.m = 72,
                          .n = 80,
                          .k = 64,
                          .input = DType::bf16,
                          .output = output,
                          .a_transposed = a_transposed,
                          .b_transposed = b_transposed,
                          .accumulates = kind == 1,
                          .bias = kind == 2};
            matmul.*odd += 3;
            const bool in_rows =
                odd == &Matmul::n || (odd == &Matmul::m ? a_transposed : !a_transposed || b_transposed);
            const bool rounds = output != DType::f32 && odd == &Matmul::k;
            const int before = inner.rests;
            check_product(device, library, matmul, 8, most, 8);
            EXPECT_EQ(inner.rests > before, in_rows && !rounds) << matmul.key();
          }
}

}  // namespace ce::runtime::test
