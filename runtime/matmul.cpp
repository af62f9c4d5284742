#include "runtime/matmul.hpp"

#include <fmt/format.h>

namespace ce::runtime {

std::string Matmul::key() const {
  const auto order = [](bool transposed) { return transposed ? "col" : "row"; };
  return fmt::format("matmul {} m={} n={} k={} a={}:{} b={}:{} d={}:{}{}{}{} align={}", ce::name(input), m, n,
                     k, order(a_transposed), a_stride, order(b_transposed), b_stride, ce::name(output),
                     d_stride, accumulates ? " add" : "", any_order ? " any_order" : "", bias ? " bias" : "",
                     alignment);
}

std::int64_t Matmul::bytes() const noexcept {
  const std::int64_t written = m * n + (accumulates ? m * n : 0) + (bias ? n : 0);
  return (m * k + k * n) * size_of(input) + written * size_of(output);
}

int alignment_of(std::initializer_list<const void*> addresses) noexcept {
  std::uintptr_t all = 256;
  for (const void* address : addresses) all |= reinterpret_cast<std::uintptr_t>(address);
  return static_cast<int>(all & (~all + 1));
}

}  // namespace ce::runtime
