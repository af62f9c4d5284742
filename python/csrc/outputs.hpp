#pragma once
/// \file
/// The outputs of cross entropy beside its loss, on one rank, on several, and with a linear layer: flags, tensors and
/// pieces of schemas for each row of ce::c::output_fields. An Operation selects the rows: those of CrossEntropy, those
/// of CrossEntropyMerge where ranks share the classes, or those of LinearCrossEntropy.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "c/cross_entropy_fields.hpp"
#include "ce/ce.h"
#include "python/csrc/call.hpp"
#include "python/csrc/tensor.hpp"

namespace ce_torch {

using ce::c::output_fields;
using ce::c::OutputField;

template <class Operation>
[[nodiscard]] constexpr bool has(const OutputField& output) noexcept {
  return output.of<Operation>().own != nullptr;
}

/// Whether the operators on one rank always write it, so that it has no flag.
[[nodiscard]] constexpr bool is_always_written(const OutputField& output) noexcept {
  return output.name == "lse";
}

/// torch's number for its dtype. C has no bool.
[[nodiscard]] inline std::int32_t dtype_of(const OutputField& output, std::int32_t loss_type) {
  if (output.kind == OutputField::Kind::of_losses) return loss_type;
  switch (output.dtype) {
    case CE_DTYPE_I64: return aoti_torch_dtype_int64();
    case CE_DTYPE_U8: return aoti_torch_dtype_bool();
    default: return aoti_torch_dtype_float32();
  }
}

/// Tells for each row of the table whether a call asks for it.
using Wanted = std::array<bool, output_fields.size()>;

/// Reads a flag for each output.
template <class Operation>
[[nodiscard]] Wanted read_wanted(Arguments& arguments) {
  Wanted wanted{};
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (has<Operation>(output_fields[i])) wanted[i] = arguments.flag();
  return wanted;
}

/// Reads a flag for each output of CrossEntropy that is not always written.
[[nodiscard]] inline Wanted read_wanted_beside_lse(Arguments& arguments) {
  Wanted wanted{};
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (has<ce::CrossEntropy>(output_fields[i]))
      wanted[i] = is_always_written(output_fields[i]) || arguments.flag();
  return wanted;
}

/// The results of a call; outputs that were not asked for are empty.
struct Outputs {
  Tensor loss;
  std::optional<Tensor> grad = {};
  std::array<std::optional<Tensor>, output_fields.size()> others = {};  ///< one for each row of the table
};

/// Views that the structs of the C interface point to, one for each row of the table.
using Views = std::array<ce_tensor, output_fields.size()>;

/// The member of a struct of the C interface that holds an output.
template <class Tensors>
[[nodiscard]] constexpr auto member_of(const OutputField& output) noexcept {
  if constexpr (std::is_same_v<Tensors, ce_cross_entropy_tensors>)
    return output.of_forward.given;
  else if constexpr (std::is_same_v<Tensors, ce_cross_entropy_merge_tensors>)
    return output.of_merge.given;
  else
    return output.of_linear.given;
}

/// Makes the wanted outputs, and sets them in the operation's tensors.
/// \param make  makes a tensor for a row of the table
template <class Tensors, class Make>
void give_wanted(const Wanted& wanted, Tensors& tensors, Views& views, Outputs& outputs, const Make& make) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    Tensor made = make(output_fields[i]);
    views[i] = vector_of(made);
    tensors.*member_of<Tensors>(output_fields[i]) = &views[i];
    outputs.others[i] = std::move(made);
  }
}

/// The value returned for an output that was not asked for.
enum class Absent {
  undefined,  ///< Python sees None
  empty,      ///< a tensor without elements: schemas and fake tensors can express it
};

/// The output, or its substitute of that dtype.
inline Tensor given_or(std::optional<Tensor>& output, Absent absent, std::int32_t dtype, const Tensor& like) {
  if (output) return std::move(*output);
  return absent == Absent::empty ? Tensor::empty(0, dtype, like) : Tensor::undefined();
}

/// Returns the outputs of the table that an operation has.
/// \returns the stack behind them
template <class Operation>
StableIValue* give_back_outputs(StableIValue* stack, Outputs& made, Absent absent, const Tensor& loss) {
  for (std::size_t i = 0; i < output_fields.size(); ++i) {
    if (!has<Operation>(output_fields[i])) continue;
    Tensor one = given_or(made.others[i], absent, dtype_of(output_fields[i], loss.dtype()), loss);
    give_back(stack++, one);
  }
  return stack;
}

/// Returns the loss, the gradient if there is one, and the outputs of the table that the operation has.
/// \returns the stack behind them
template <class Operation>
StableIValue* give_back_all(StableIValue* stack, Outputs& made, Absent absent) {
  const Tensor loss = made.loss.share();
  give_back(stack++, made.loss);
  if (made.grad) give_back(stack++, *made.grad);
  return give_back_outputs<Operation>(stack, made, absent, loss);
}

/// The name in most schemas: without the ending that distinguishes it from a number of the same name.
[[nodiscard]] inline std::string short_name(const OutputField& output) {
  constexpr std::string_view ending = "_out";
  return std::string(
      output.name.substr(0, output.name.size() - (output.name.ends_with(ending) ? ending.size() : 0)));
}

/// Makes ", Tensor NAME" for each output of an operation.
template <class Operation, class Name = std::string (*)(const OutputField&)>
[[nodiscard]] std::string schema_of_outputs(const Name& name = short_name) {
  std::string schema;
  for (const OutputField& output : output_fields)
    if (has<Operation>(output)) schema += ", Tensor " + name(output);
  return schema;
}

/// Makes ", bool NAME" for each output, in the order of read_wanted().
template <class Operation, class Name = std::string (*)(const OutputField&)>
[[nodiscard]] std::string schema_of_flags(const Name& name = short_name) {
  std::string schema;
  for (const OutputField& output : output_fields)
    if (has<Operation>(output)) schema += ", bool " + name(output);
  return schema;
}

/// Makes ", bool return_NAME" for each output, in the order of read_wanted_beside_lse().
[[nodiscard]] inline std::string schema_of_flags_beside_lse() {
  std::string schema;
  for (const OutputField& output : output_fields)
    if (has<ce::CrossEntropy>(output) && !is_always_written(output))
      schema += ", bool return_" + short_name(output);
  return schema;
}

}  // namespace ce_torch
