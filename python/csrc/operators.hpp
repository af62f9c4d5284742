#pragma once
/// \file
/// The tables of the operators torch.ops.ce.*.

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ce_torch {

using Boxed = void (*)(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs);

struct Operator {
  std::string name, arguments, returns;  ///< parts of the schema
  Boxed boxed, twin;  ///< with and without an underscore in front of the name (operators.cpp)
};

[[nodiscard]] std::vector<Operator> softmax_operators();
[[nodiscard]] std::vector<Operator> cross_entropy_operators();
/// Operators that exist only as twins: frequent calls with few arguments, as each argument costs a call time.
[[nodiscard]] std::vector<Operator> eager_cross_entropy_operators();
[[nodiscard]] std::vector<Operator> rank_operators();
/// Operators whose CPU kernel is the host device, whatever Python decides.
[[nodiscard]] std::vector<Operator> linear_operators();

}  // namespace ce_torch
