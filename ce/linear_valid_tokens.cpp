#include "ce/linear_valid_tokens.hpp"

#include <algorithm>
#include <bit>

#include "ce/linear_tensors.hpp"

namespace ce {
namespace {

/// A per-token input of a call. Rows without a token read `fill`.
std::vector<TokenTensor<ConstTensor>> inputs_of(const LinearCrossEntropy& operation,
                                                const LinearCrossEntropy::Tensors& tensors,
                                                const LinearShape& shape) {
  std::vector<TokenTensor<ConstTensor>> all{{.name = "target",
                                             .member = &LinearCrossEntropy::Tensors::target,
                                             .fill = operation.cross_entropy.ignore_index}};
  all.insert(all.end(), token_inputs.begin(), token_inputs.end());
  if (shape.upstream_of_tokens)
    all.push_back({.name = "upstream", .member = &LinearCrossEntropy::Tensors::upstream});
  std::erase_if(all, [&](const auto& one) { return (tensors.*one.member).data == nullptr; });
  return all;
}

/// A per-token output of a call.
std::vector<TokenTensor<Tensor>> outputs_of(const LinearCrossEntropy::Tensors& tensors,
                                            const LinearShape& shape) {
  std::vector<TokenTensor<Tensor>> all(token_outputs.begin(), token_outputs.end());
  if (shape.reduction == Reduction::none) {
    all.push_back({.name = "loss", .member = &LinearCrossEntropy::Tensors::loss});
    all.push_back({.name = "z_loss_out", .member = &LinearCrossEntropy::Tensors::z_loss_out});
  }
  std::erase_if(all, [&](const auto& one) { return (tensors.*one.member).data == nullptr; });
  return all;
}

/// The largest unit that divides row sizes and strides.
int unit_of(const ConstTensor& a, const ConstTensor& b, std::int64_t row_bytes) {
  std::uintptr_t all = static_cast<std::uintptr_t>(row_bytes) | 16;
  for (const ConstTensor* tensor : {&a, &b}) {
    all |= reinterpret_cast<std::uintptr_t>(tensor->data);
    if (tensor->rows > 1) all |= static_cast<std::uintptr_t>(tensor->row_step() * size_of(tensor->dtype));
  }
  return 1 << std::countr_zero(all);
}

/// The arguments that move rows of `from` to `to`, in units.
LinearArguments move_of(const ConstTensor& from, const Tensor& to, int unit) {
  const auto units = [&](std::int64_t elements) { return elements * size_of(from.dtype) / unit; };
  return {.input = from.data,
          .output = to.data,
          .columns = units(from.columns),
          .stride = units(std::max(from.row_step(), from.columns)),
          .output_stride = units(std::max(to.row_step(), to.columns))};
}

/// The vector as a column.
template <class T>
T column_of(const T& tensor) {
  return {tensor.data, tensor.dtype, tensor.rows * tensor.columns};
}

}  // namespace

std::int64_t bytes_of_vectors(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                              const LinearShape& shape) {
  std::int64_t bytes = 0;
  for (const auto& one : inputs_of(operation, tensors, shape))
    bytes += bytes_of_piece(shape.tokens * size_of((tensors.*one.member).dtype));
  for (const auto& one : outputs_of(tensors, shape))
    bytes += bytes_of_piece(shape.tokens * size_of((tensors.*one.member).dtype));
  return bytes;
}

ValidTokens::ValidTokens(LinearKernels& kernels, const LinearCrossEntropy& operation,
                         const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
                         const LinearPlan& plan, std::byte* workspace)
    : kernels_(kernels),
      operation_(operation),
      given_(tensors),
      shape_(shape),
      plan_(plan),
      workspace_(workspace),
      of_valid_(tensors) {
  std::byte* next = workspace + plan.valid_tokens.start;
  const auto take = [&](std::int64_t bytes) {
    std::byte* const piece = next;
    next += bytes_of_piece(bytes);
    return piece;
  };
  const auto take_numbers = [&](std::int64_t count) {
    return reinterpret_cast<long long*>(take(count * std::int64_t{sizeof(long long)}));
  };
  counted_ = take_numbers(1);
  places_ = take_numbers(shape.tokens);
  numbers_ = take_numbers(shape.all_tokens);
  const auto take_vector = [&](DType dtype) {
    return Tensor{take(shape.tokens * size_of(dtype)), dtype, shape.tokens};
  };
  for (const auto& input : inputs_of(operation, tensors, shape)) {
    const ConstTensor& given = tensors.*input.member;
    of_valid_.*input.member = take_vector(given.dtype);
    inputs_.push_back({column_of(given), of_valid_.*input.member, input.fill});
  }
  for (const auto& output : outputs_of(tensors, shape)) {
    const Tensor& given = tensors.*output.member;
    of_valid_.*output.member = take_vector(given.dtype);
    outputs_.push_back({column_of(given), of_valid_.*output.member, output.fill, output.fill_of_excess});
  }
}

Tensor ValidTokens::rows_in(const LinearPiece& piece, std::int64_t rows) const noexcept {
  return {workspace_ + piece.start, shape_.dtype, rows, shape_.hidden, shape_.hidden_stride()};
}

ConstTensor ValidTokens::hidden(std::int64_t rows) const noexcept { return rows_in(plan_.hidden, rows); }

Tensor ValidTokens::hidden_grad(std::int64_t rows) const noexcept { return rows_in(plan_.hidden_grad, rows); }

void ValidTokens::gather(Stream stream) {
  const ConstTensor& target = given_.target;
  kernels_.places(target.dtype,
                  {.rows = shape_.all_tokens,
                   .columns = shape_.tokens,
                   .target = target.data,
                   .ignore_index = operation_.cross_entropy.ignore_index,
                   .places = places_,
                   .numbers = numbers_,
                   .counted = counted_,
                   .limit = shape_.valid_tokens},
                  stream);
  for (const auto& [of_all, of_valid, fill] : inputs_) {
    const auto unit = static_cast<int>(size_of(of_all.dtype));
    const Tensor to{const_cast<void*>(of_valid.data), of_valid.dtype, of_valid.rows};
    LinearArguments arguments = move_of(of_all, to, unit);
    arguments.rows = shape_.tokens;
    arguments.places = places_;
    arguments.tokens = shape_.all_tokens;
    arguments.fill = fill;
    kernels_.gather(unit, arguments, stream);
  }
}

void ValidTokens::gather_hidden(std::int64_t first, std::int64_t rows, Stream stream) {
  const Tensor to = rows_in(plan_.hidden, rows);
  const int unit = unit_of(given_.hidden, to, shape_.hidden * size_of(shape_.dtype));
  LinearArguments arguments = move_of(given_.hidden, to, unit);
  arguments.rows = rows;
  arguments.places = places_ + first;
  arguments.tokens = shape_.all_tokens;
  arguments.counted = counted_;
  arguments.limit = shape_.valid_tokens;
  kernels_.gather(unit, arguments, stream);
}

void ValidTokens::scatter_hidden_grad(std::int64_t first, std::int64_t rows, Stream stream) {
  const Tensor from = hidden_grad(rows);
  const int unit = unit_of(from, given_.hidden_grad, shape_.hidden * size_of(shape_.dtype));
  LinearArguments arguments = move_of(from, given_.hidden_grad, unit);
  arguments.rows = rows;
  arguments.first = first;
  arguments.numbers = numbers_;
  arguments.tokens = shape_.all_tokens;
  kernels_.scatter(unit, arguments, stream);
}

void ValidTokens::scatter(Stream stream) {
  for (const auto& [of_all, of_valid, fill, fill_of_excess] : outputs_) {
    const auto unit = static_cast<int>(size_of(of_all.dtype));
    LinearArguments arguments = move_of(of_valid, of_all, unit);
    arguments.rows = shape_.tokens;
    arguments.numbers = numbers_;
    arguments.counted = counted_;
    arguments.limit = shape_.valid_tokens;
    arguments.tokens = shape_.all_tokens;
    arguments.fill = fill;
    arguments.fill_of_excess = fill_of_excess;
    kernels_.scatter(unit, arguments, stream);
  }
  if (shape_.reduction != Reduction::none) {
    spoil_if_exceeded(given_.loss, stream);
    spoil_if_exceeded(given_.z_loss_out, stream);
  }
  // With a bound above 0, hidden states that are NaN spoil it.
  if (shape_.valid_tokens == 0) spoil_if_exceeded(given_.bias_grad, stream);
}

void ValidTokens::spoil_if_exceeded(const Tensor& vector, Stream stream) {
  if (vector.data == nullptr) return;
  const Tensor column = column_of(vector);
  const auto unit = static_cast<int>(size_of(column.dtype));
  LinearArguments arguments = move_of(column, column, unit);
  arguments.rows = arguments.tokens = column.rows;
  arguments.counted = counted_;
  arguments.limit = shape_.valid_tokens;
  kernels_.gather(unit, arguments, stream);
}

}  // namespace ce
