#include "ce/matrices.hpp"

#include <fmt/format.h>

#include <array>
#include <span>

#include "ce/error.hpp"
#include "ce/row_layout.hpp"

namespace ce {
namespace {

/// A matrix and the layout of its rows.
struct Placed {
  const Matrix* matrix;
  RowLayout layout;
};

/// Gives all layouts the same batches. Rows at equal distances fit batches of any size.
/// \returns the rows of a batch; 0 if no matrix has batches
std::int64_t align_batches(std::span<Placed> all) {
  const Placed* first = nullptr;
  for (const Placed& placed : all) {
    if (placed.layout.batch_rows == 0) continue;
    if (first == nullptr) first = &placed;
    if (placed.layout.batch_rows != first->layout.batch_rows)
      throw InvalidArgument(fmt::format("{}.batch_rows", placed.matrix->name),
                            fmt::to_string(placed.layout.batch_rows),
                            fmt::format("{}, like {}, or 0 and one distance between all rows",
                                        first->layout.batch_rows, first->matrix->name));
  }
  if (first == nullptr) return 0;
  for (auto& [matrix, layout] : all)
    if (layout.batch_rows == 0) {
      layout.batch_rows = first->layout.batch_rows;
      layout.batch = layout.batch_rows * layout.row;
    }
  return first->layout.batch_rows;
}

generator::RowPlacement placement_of(const Placed& placed) {
  const ConstTensor& tensor = *placed.matrix->tensor;
  return {.address = reinterpret_cast<std::uint64_t>(tensor.data),
          .stride_bytes = placed.layout.row * size_of(tensor.dtype),
          .batch_stride_bytes = placed.layout.batch * size_of(tensor.dtype)};
}

Layout arguments_of(const Placed* placed) {
  if (placed == nullptr) return {};
  return {.row = placed->layout.row, .batch = placed->layout.batch, .column = placed->layout.column};
}

/// Checks that the output is the input itself, or does not overlap it.
bool is_in_place(const Matrix& output, const Matrix& input) {
  const ConstTensor &own = *output.tensor, &other = *input.tensor;
  if (own.data == other.data && row_layout(own) == row_layout(other)) return true;
  if (overlap(extent_of(own), extent_of(other)))
    throw InvalidArgument(
        fmt::format("{}.data", output.name), fmt::format("{} overlapping {}", own.data, input.name),
        fmt::format("exactly {} (same address and strides) or memory of its own", input.name));
  return false;
}

}  // namespace

Request bind_matrices(generator::Operation operation, const Matrix& input, const Matrix& second,
                      const Matrix& output, const runtime::Device& device, CallMemory& memory) {
  const ConstTensor& model = *input.tensor;
  if (!is_floating(model.dtype))
    throw InvalidArgument(fmt::format("{}.dtype", input.name), text_of(model.dtype), "f32, f16 or bf16");
  if (model.columns > generator::most_columns)
    throw InvalidArgument(fmt::format("{}.columns", input.name), fmt::to_string(model.columns),
                          fmt::format("1 to {}", generator::most_columns));
  check_tensor(input.name, model, device);
  if (model.rows > generator::most_rows)
    throw InvalidArgument(fmt::format("{}.rows", input.name), fmt::to_string(model.rows),
                          fmt::format("0 to {}", generator::most_rows));
  for (const Matrix* matrix : {&second, &output}) {
    if (matrix->tensor == nullptr) continue;
    check_same_shape(matrix->name, *matrix->tensor, input.name, model);
    check_tensor(matrix->name, *matrix->tensor, device);
  }

  const bool in_place = output.tensor != nullptr && is_in_place(output, input);
  if (second.tensor != nullptr) memory.add(second.name, *second.tensor, false);
  memory.add(in_place ? output.name : input.name, model, in_place);
  if (output.tensor != nullptr && !in_place) memory.add(output.name, *output.tensor, true);

  std::array<Placed, 3> all;
  std::size_t count = 0;
  for (const Matrix* matrix : {&input, &second, &output})
    if (matrix->tensor != nullptr) all[count++] = {matrix, row_layout(*matrix->tensor)};
  const std::span<Placed> placed(all.data(), count);
  const std::int64_t batch_rows = align_batches(placed);
  std::array<generator::RowPlacement, 3> placements;
  bool strided = false;
  for (std::size_t i = 0; i < count; ++i) {
    strided = strided || placed[i].layout.column != 1;
    placements[i] = placement_of(placed[i]);
  }
  // Given tensors come in this order.
  const Placed *own = placed.data(), *of_second = second.tensor != nullptr ? own + 1 : nullptr,
               *of_output = output.tensor != nullptr ? own + count - 1 : nullptr;
  // Every member is named: otherwise compilers first zero the whole struct, which takes longer.
  return {.problem = {.operation = operation,
                      .dtype = model.dtype,
                      .in_place = in_place,
                      .batched = batch_rows > 0,
                      .strided = strided,
                      .alignment =
                          strided ? generator::Alignment::vector
                                  : generator::alignment_of(model.rows, model.columns * size_of(model.dtype),
                                                            std::span(placements.data(), count)),
                      .rows = model.rows,
                      .columns = model.columns},
          .arguments = {.input = nullptr,
                        .second = nullptr,
                        .output = nullptr,
                        .input_layout = arguments_of(own),
                        .second_layout = arguments_of(of_second),
                        .output_layout = arguments_of(of_output),
                        .rows = model.rows,
                        .batch_rows = batch_rows,
                        .target = nullptr,
                        .weight = nullptr,
                        .upstream = nullptr,
                        .loss = nullptr,
                        .outputs = {},
                        .row_weight = nullptr,
                        .row_scale = nullptr,
                        .divisor = nullptr,
                        .entropy_upstream = nullptr,
                        .lse_upstream = nullptr,
                        .workspace = nullptr,
                        .partials = nullptr,
                        .status = nullptr,
                        .statistics = nullptr,
                        .statistics_out = nullptr,
                        .statistics_words = 0,
                        .ranks = 1,
                        .first_class = 0,
                        .classes = 0,
                        .ignore_index = 0,
                        .amounts = {}}};
}

}  // namespace ce
