#pragma once
/// \file
/// The optional per-token tensors of a linear layer's loss, each listed once. Not installed.

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ce/linear.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"

namespace ce {

/// All bits set: NaN as an f32, and -1 as an integer.
inline constexpr std::int64_t fill_of_unknown = -1;

/// A tensor of a call, and its counterpart in the operation that computes the losses of a chunk: null if that has none.
template <class View>
struct TokenTensor {
  std::string_view name;  ///< the name in include/ce/linear.hpp
  View LinearCrossEntropy::Tensors::*member;
  View CrossEntropy::Tensors::*of_forward = nullptr;
  View CrossEntropyMerge::Tensors::*of_merge = nullptr;
  std::int64_t fill = 0;  ///< bits of the elements of ignored tokens (LinearCrossEntropy::valid_tokens)
  std::int64_t fill_of_excess =
      fill_of_unknown;  ///< bits of all elements, if more tokens count than the call says

  template <class Tensors>
  [[nodiscard]] constexpr View Tensors::*of() const noexcept {
    if constexpr (std::is_same_v<Tensors, CrossEntropy::Tensors>)
      return of_forward;
    else
      return of_merge;
  }
};

inline constexpr std::array token_inputs{
    TokenTensor<ConstTensor>{.name = "row_weight",
                             .member = &LinearCrossEntropy::Tensors::row_weight,
                             .of_forward = &CrossEntropy::Tensors::row_weight,
                             .of_merge = &CrossEntropyMerge::Tensors::row_weight},
    TokenTensor<ConstTensor>{.name = "row_scale",
                             .member = &LinearCrossEntropy::Tensors::row_scale,
                             .of_forward = &CrossEntropy::Tensors::row_scale,
                             .of_merge = &CrossEntropyMerge::Tensors::row_scale,
                             .fill = std::bit_cast<std::int32_t>(1.0f)},
    TokenTensor<ConstTensor>{.name = "entropy_upstream",
                             .member = &LinearCrossEntropy::Tensors::entropy_upstream,
                             .of_forward = &CrossEntropy::Tensors::entropy_upstream},
    TokenTensor<ConstTensor>{.name = "lse_upstream",
                             .member = &LinearCrossEntropy::Tensors::lse_upstream,
                             .of_forward = &CrossEntropy::Tensors::lse_upstream},
};

inline constexpr std::array token_outputs{
    TokenTensor<Tensor>{.name = "lse",
                        .member = &LinearCrossEntropy::Tensors::lse,
                        .of_forward = &CrossEntropy::Tensors::lse,
                        .of_merge = &CrossEntropyMerge::Tensors::lse,
                        .fill = fill_of_unknown},
    TokenTensor<Tensor>{.name = "argmax",
                        .member = &LinearCrossEntropy::Tensors::argmax,
                        .of_forward = &CrossEntropy::Tensors::argmax,
                        .of_merge = &CrossEntropyMerge::Tensors::argmax,
                        .fill = fill_of_unknown},
    TokenTensor<Tensor>{.name = "hit",
                        .member = &LinearCrossEntropy::Tensors::hit,
                        .of_forward = &CrossEntropy::Tensors::hit,
                        .of_merge = &CrossEntropyMerge::Tensors::hit,
                        .fill_of_excess = 0},
    TokenTensor<Tensor>{.name = "logprob",
                        .member = &LinearCrossEntropy::Tensors::logprob,
                        .of_forward = &CrossEntropy::Tensors::logprob,
                        .of_merge = &CrossEntropyMerge::Tensors::logprob},
    TokenTensor<Tensor>{.name = "entropy",
                        .member = &LinearCrossEntropy::Tensors::entropy,
                        .of_forward = &CrossEntropy::Tensors::entropy,
                        .of_merge = &CrossEntropyMerge::Tensors::entropy},
};

}  // namespace ce
