#pragma once
/// \file
/// The options of cross entropy and its outputs beside the loss, each listed once with its members in the structs of
/// ce.h and of ce.
///
/// These tables determine how calls of C become calls of ce, and in Python the numbers, flags and results of the
/// operators (python/csrc/cross_entropy_call.hpp). Both are in the order of ce.h.

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ce/ce.h"
#include "ce/linear.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"

namespace ce::c {

/// An option with an amount.
struct AmountField {
  std::string_view name;  ///< name of the field in each struct
  float ce_cross_entropy_options::*given_to_forward;
  float ce_cross_entropy_backward_options::*given_to_backward;
  float CrossEntropy::*of_forward;
  float CrossEntropyBackward::*of_backward;
};

// clang-format off
#define CE_AMOUNT(field)                                                                   \
  AmountField{#field, &ce_cross_entropy_options::field, &ce_cross_entropy_backward_options::field, \
              &CrossEntropy::field, &CrossEntropyBackward::field}
inline constexpr std::array amount_fields{
    CE_AMOUNT(label_smoothing),
    CE_AMOUNT(z_loss),
    CE_AMOUNT(softcap),
    CE_AMOUNT(logit_scale),
    CE_AMOUNT(token_scaling),
};
#undef CE_AMOUNT
// clang-format on

/// A tensor that an operation writes if it is given; null for an operation without it.
template <class Given, class Operation>
struct OutputMember {
  const ce_tensor* Given::*given = nullptr;
  Tensor Operation::Tensors::*own = nullptr;
};

/// An output beside the loss.
struct OutputField {
  enum class Kind { of_rows, of_losses };  ///< one element a row, or shaped as the loss

  std::string_view name;  ///< name of the tensor in each struct
  ce_dtype dtype;         ///< for Kind::of_rows
  Kind kind;
  OutputMember<ce_cross_entropy_tensors, CrossEntropy> of_forward = {};
  OutputMember<ce_cross_entropy_merge_tensors, CrossEntropyMerge> of_merge = {};
  OutputMember<ce_linear_cross_entropy_tensors, LinearCrossEntropy> of_linear = {};

  template <class Operation>
  [[nodiscard]] constexpr auto of() const noexcept {
    if constexpr (std::is_same_v<Operation, CrossEntropy>)
      return of_forward;
    else if constexpr (std::is_same_v<Operation, CrossEntropyMerge>)
      return of_merge;
    else
      return of_linear;
  }
};

// clang-format off
#define CE_OF(Given, Operation, field) {&Given::field, &Operation::Tensors::field}
#define CE_OUTPUT(field, dtype, kind)                                           \
  OutputField{#field, dtype, OutputField::Kind::kind,                           \
              CE_OF(ce_cross_entropy_tensors, CrossEntropy, field),             \
              CE_OF(ce_cross_entropy_merge_tensors, CrossEntropyMerge, field),  \
              CE_OF(ce_linear_cross_entropy_tensors, LinearCrossEntropy, field)}
inline constexpr std::array output_fields{
    CE_OUTPUT(z_loss_out, CE_DTYPE_F32, of_losses),
    CE_OUTPUT(lse, CE_DTYPE_F32, of_rows),
    CE_OUTPUT(argmax, CE_DTYPE_I64, of_rows),
    CE_OUTPUT(hit, CE_DTYPE_U8, of_rows),
    CE_OUTPUT(logprob, CE_DTYPE_F32, of_rows),
    CE_OUTPUT(entropy, CE_DTYPE_F32, of_rows),
    OutputField{"lse_low", CE_DTYPE_F32, OutputField::Kind::of_rows,
                CE_OF(ce_cross_entropy_tensors, CrossEntropy, lse_low)},
};
#undef CE_OUTPUT
#undef CE_OF
// clang-format on

/// Visits indices of a table as constants, so that a call reads nothing of the table.
template <std::size_t count, class Visit>
constexpr void for_each_index(const Visit& visit) {
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    (visit(std::integral_constant<std::size_t, index>()), ...);
  }
  (std::make_index_sequence<count>());
}

/// Number of the table's outputs that an operation has.
template <class Operation>
[[nodiscard]] constexpr std::size_t count_outputs() noexcept {
  std::size_t count = 0;
  for (const OutputField& field : output_fields) count += field.of<Operation>().own != nullptr ? 1 : 0;
  return count;
}

}  // namespace ce::c
