#include "ce/gradient_scaling.hpp"

#include <cstdint>

#include "ce/check_tensor.hpp"
#include "ce/error.hpp"
#include "generator/source.hpp"
#include "templates/arguments.cuh"

namespace ce {
namespace {

bool is_dense(const ConstTensor& tensor) {
  const bool rows_follow =
      tensor.rows <= 1 || tensor.row_stride == contiguous || tensor.row_stride == tensor.columns;
  return rows_follow && tensor.batch_rows == 0 && (tensor.columns <= 1 || tensor.column_stride == 1);
}

void check(const Tensor& grad, const ConstTensor& upstream, const runtime::Device& device) {
  const ConstTensor& view = *view_of(grad);
  require("grad", view);
  check_tensor("grad", view, device);
  if (!is_floating(grad.dtype)) throw InvalidArgument("grad.dtype", text_of(grad.dtype), "f32, f16 or bf16");
  if (!is_dense(view))
    throw InvalidArgument("grad", text_of_view(view), "rows that follow each other, without batches");
  require("upstream", upstream);
  check_tensor("upstream", upstream, device);
  check_f32_or("upstream", upstream, grad.dtype);
  check_vector("upstream", upstream, 1);
  CallMemory memory;
  memory.add("grad", view, true);
  memory.add("upstream", upstream, false);
}

}  // namespace

void GradientScaling::run(const Tensor& grad, const ConstTensor& upstream, Stream stream) {
  check(grad, upstream, device_);
  const generator::Problem elements{.dtype = grad.dtype, .rows = grad.rows * grad.columns, .columns = 1};
  if (elements.rows == 0) return;
  Arguments arguments{};
  arguments.output = grad.data;
  arguments.upstream = upstream.data;
  arguments.rows = elements.rows;
  kernel(grad.dtype, upstream.dtype).launch(elements, arguments, stream);
}

const tuner::Kernel& GradientScaling::kernel(DType grad, DType upstream) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const tuner::Kernel>& known = kernels_[{grad, upstream}];
  if (known == nullptr) {
    const generator::Program program =
        tuner::build_shared(device_, cache_, generator::scale_gradient(grad, upstream));
    compiled_ += program.compiled;
    known = std::make_unique<const tuner::Kernel>(device_, program);
  }
  return *known;
}

}  // namespace ce
