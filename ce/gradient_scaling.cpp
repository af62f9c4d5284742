#include "ce/gradient_scaling.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ce/check_tensor.hpp"
#include "ce/error.hpp"
#include "ce/row_layout.hpp"
#include "generator/source.hpp"
#include "templates/arguments.cuh"

namespace ce {
namespace {

/// A dimension with equally spaced elements.
struct Dimension {
  std::int64_t size = 1, stride = 1;
};

/// The dimensions of a tensor whose elements are all treated alike, in memory order: the innermost one comes last.
std::array<Dimension, 3> dimensions_of(const ConstTensor& tensor) {
  const RowLayout layout = row_layout(tensor);
  const std::int64_t batch_rows = layout.batch_rows > 0 ? layout.batch_rows : tensor.rows;
  std::array<Dimension, 3> given{
      {{tensor.rows / batch_rows, layout.batch}, {batch_rows, layout.row}, {tensor.columns, layout.column}}};
  std::sort(given.begin(), given.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::array<Dimension, 3> dimensions{};
  std::size_t at = dimensions.size();
  for (const Dimension& dimension : given) {
    if (dimension.size == 1) continue;
    if (at < dimensions.size() && dimension.stride == dimensions[at].size * dimensions[at].stride)
      dimensions[at].size *= dimension.size;
    else
      dimensions[--at] = dimension;
  }
  return dimensions;
}

void check(const Tensor& grad, const ConstTensor& upstream, const runtime::Device& device) {
  const ConstTensor& view = *view_of(grad);
  require("grad", view);
  check_tensor("grad", view, device);
  if (!is_floating(grad.dtype)) throw InvalidArgument("grad.dtype", text_of(grad.dtype), "f32, f16 or bf16");
  require("upstream", upstream);
  check_tensor("upstream", upstream, device);
  check_f32_or("upstream", upstream, grad.dtype, "grad");
  check_vector("upstream", upstream, 1);
  CallMemory memory;
  memory.add("grad", view, true);
  memory.add("upstream", upstream, false);
}

}  // namespace

void GradientScaling::run(const Tensor& grad, const ConstTensor& upstream, Stream stream) {
  check(grad, upstream, device_);
  generator::Problem elements{.dtype = grad.dtype, .rows = grad.rows * grad.columns, .columns = 1};
  if (elements.rows == 0) return;
  Arguments arguments{};
  arguments.output = grad.data;
  arguments.upstream = upstream.data;
  const auto& [batches, rows, columns] = dimensions_of(grad);
  elements.strided = batches.size > 1 || rows.size > 1 || columns.stride != 1;
  if (elements.strided) {
    elements.rows = batches.size * rows.size;
    elements.columns = columns.size;
    arguments.output_layout = {.row = rows.stride, .batch = batches.stride, .column = columns.stride};
    arguments.batch_rows = rows.size;
    arguments.classes = columns.size;
  }
  arguments.rows = elements.rows;
  kernel(grad.dtype, upstream.dtype, elements.strided).launch(elements, arguments, stream);
}

const tuner::Kernel& GradientScaling::kernel(DType grad, DType upstream, bool gaps) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const tuner::Kernel>& known = kernels_[{grad, upstream, gaps}];
  if (known == nullptr) {
    const generator::Program program =
        tuner::build_shared(device_, cache_, generator::scale_gradient(grad, upstream, gaps));
    compiled_ += program.compiled;
    known = std::make_unique<const tuner::Kernel>(device_, program);
  }
  return *known;
}

}  // namespace ce
