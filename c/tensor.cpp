#include "c/tensor.hpp"

#include <string>

#include "c/guard.hpp"
#include "ce/error.hpp"

namespace ce::c {
namespace {

// Both sides have the same numbers. A dtype that is added to ce does not compile until it is added here.
constexpr ce_dtype to_c(DType dtype) {
  switch (dtype) {
    case DType::f32: return CE_DTYPE_F32;
    case DType::f16: return CE_DTYPE_F16;
    case DType::bf16: return CE_DTYPE_BF16;
    case DType::i32: return CE_DTYPE_I32;
    case DType::i64: return CE_DTYPE_I64;
    case DType::u8: return CE_DTYPE_U8;
  }
  return -1;
}
constexpr bool dtypes_are_equal() {
  for (ce_dtype dtype = CE_DTYPE_F32; dtype <= CE_DTYPE_U8; ++dtype)
    if (to_c(static_cast<DType>(dtype)) != dtype) return false;
  return to_c(static_cast<DType>(CE_DTYPE_U8 + 1)) == -1;
}
static_assert(dtypes_are_equal());
static_assert(CE_CONTIGUOUS == contiguous);

ce_tensor to_c(const Tensor& tensor) {
  return {.data = tensor.data,
          .dtype = to_c(tensor.dtype),
          .rows = tensor.rows,
          .columns = tensor.columns,
          .row_stride = tensor.row_stride,
          .column_stride = tensor.column_stride,
          .batch_rows = tensor.batch_rows,
          .batch_stride = tensor.batch_stride};
}

}  // namespace

void refuse_dtype(std::string_view name, ce_dtype dtype) {
  throw InvalidArgument(std::string(name) + ".dtype", std::to_string(dtype), "a value CE_DTYPE_...");
}

}  // namespace ce::c

using namespace ce::c;

ce_status ce_class_dimension_second(void* data, ce_dtype dtype, int64_t outer, int64_t classes, int64_t inner,
                                    ce_tensor* view) {
  return guarded([&] {
    require_pointer("view", view, "an address for the tensor");
    *view = to_c(
        ce::class_dimension_second(data, dtype_from("class_dimension_second", dtype), outer, classes, inner));
  });
}

ce_status ce_batched(void* data, ce_dtype dtype, int64_t batches, int64_t batch_rows, int64_t columns,
                     int64_t batch_stride, int64_t row_stride, ce_tensor* view) {
  return guarded([&] {
    require_pointer("view", view, "an address for the tensor");
    *view = to_c(ce::batched(data, dtype_from("batched", dtype), batches, batch_rows, columns, batch_stride,
                             row_stride));
  });
}
