#include "python/csrc/tensor.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>

#include "python/csrc/contexts.hpp"

namespace ce_torch {
namespace {

struct Types {
  const std::int32_t f32 = aoti_torch_dtype_float32(), f16 = aoti_torch_dtype_float16(),
                     bf16 = aoti_torch_dtype_bfloat16(), i32 = aoti_torch_dtype_int32(),
                     i64 = aoti_torch_dtype_int64(), boolean = aoti_torch_dtype_bool(),
                     u8 = aoti_torch_dtype_uint8(), cuda = aoti_torch_device_type_cuda(),
                     cpu = aoti_torch_device_type_cpu();
  static const Types& get() {
    static const Types types;
    return types;
  }
};

std::vector<std::int64_t> contiguous_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t next = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = next;
    next *= std::max<std::int64_t>(1, sizes[d]);
  }
  return strides;
}

/// Dense strides of dimensions in the given order, outermost first.
std::vector<std::int64_t> strides_in(std::span<const std::size_t> order,
                                     std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t next = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next *= std::max<std::int64_t>(1, sizes[order[i]]);
  }
  return strides;
}

/// Whether dimension a is to lie outside of b: nothing if their strides do not tell.
std::optional<bool> is_outside(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                               std::size_t a, std::size_t b) {
  if (strides[a] == 0 || strides[b] == 0) return std::nullopt;
  if (strides[a] != strides[b]) return strides[a] > strides[b];
  if (sizes[a] > sizes[b]) return true;
  return std::nullopt;
}

/// Dense strides for dimensions in the memory order of the given ones.
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> sizes,
                                        std::span<const std::int64_t> strides) {
  std::vector<std::size_t> order(sizes.size());  // innermost first
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  for (std::size_t i = 1; i < order.size(); ++i) {
    std::size_t moving = i;
    for (std::size_t j = i; j-- > 0;) {
      const std::optional<bool> outside = is_outside(sizes, strides, order[j], order[moving]);
      if (outside == true) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (outside == false) {
        break;
      }
    }
  }
  std::reverse(order.begin(), order.end());
  return strides_in(order, sizes);
}

/// Elements along one or more dimensions that a single stride describes.
struct Dimension {
  std::int64_t size, stride;
};

/// Whether no elements share memory: in the order of strides, each step is larger than everything the smaller strides
/// span. Sorts the dimensions.
bool are_apart(std::span<Dimension> dimensions) {
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::int64_t reach = 1;
  for (const auto& [size, stride] : dimensions) {
    if (size <= 1) continue;
    if (stride < reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}

}  // namespace

void check(AOTITorchError error, const char* what) {
  if (error != AOTI_TORCH_SUCCESS) throw std::runtime_error(std::string("ce: torch could not ") + what);
}

Tensor::Tensor(AtenTensorHandle handle) : handle_(handle) {
  bool is_defined = false;
  check(aoti_torch_is_defined(handle, &is_defined), "examine a tensor");
  if (!is_defined) return;
  std::int64_t dimensions = 0;
  std::int32_t type = 0, index = 0;
  check(aoti_torch_get_dim(handle, &dimensions), "tell a tensor's dimensions");
  check(aoti_torch_get_sizes(handle, &sizes_), "tell a tensor's sizes");
  check(aoti_torch_get_strides(handle, &strides_), "tell a tensor's strides");
  check(aoti_torch_get_dtype(handle, &dtype_), "tell a tensor's dtype");
  check(aoti_torch_get_device_type(handle, &type), "tell a tensor's device");
  check(aoti_torch_get_device_index(handle, &index), "tell a tensor's device");
  dimensions_ = static_cast<std::size_t>(dimensions);
  device_ = type == Types::get().cuda ? index : host;
}

Tensor::Tensor(AtenTensorHandle handle, std::size_t dimensions, std::int32_t dtype, int device)
    : handle_(handle), dimensions_(dimensions), dtype_(dtype), device_(device) {
  check(aoti_torch_get_sizes(handle, &sizes_), "tell a tensor's sizes");
  check(aoti_torch_get_strides(handle, &strides_), "tell a tensor's strides");
}

Tensor::~Tensor() {
  if (handle_ != nullptr) static_cast<void>(aoti_torch_delete_tensor_object(handle_));
}

void Tensor::swap(Tensor& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(sizes_, other.sizes_);
  std::swap(strides_, other.strides_);
  std::swap(dimensions_, other.dimensions_);
  std::swap(dtype_, other.dtype_);
  std::swap(device_, other.device_);
}

Tensor Tensor::undefined() {
  AtenTensorHandle made = nullptr;
  check(aoti_torch_new_uninitialized_tensor(&made), "make an undefined tensor");
  return Tensor(made);
}

Tensor Tensor::empty(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                     std::int32_t dtype, const Tensor& like) {
  const Types& types = Types::get();
  const bool on_host = like.device() == host;
  AtenTensorHandle made = nullptr;
  if (aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(), dtype,
                               on_host ? types.cpu : types.cuda, on_host ? 0 : like.device(),
                               &made) != AOTI_TORCH_SUCCESS)
    refuse(Refusal::out_of_memory, "torch could not allocate a tensor, because the device's memory is short");
  return {made, sizes.size(), dtype, like.device()};
}

Tensor Tensor::empty(std::span<const std::int64_t> sizes, std::int32_t dtype, const Tensor& like) {
  return empty(sizes, contiguous_strides(sizes), dtype, like);
}

Tensor Tensor::empty(std::int64_t size, std::int32_t dtype, const Tensor& like) {
  const std::int64_t stride = 1;
  return empty(std::span(&size, 1), std::span(&stride, 1), dtype, like);
}

Tensor Tensor::empty_scalar(std::int32_t dtype, const Tensor& like) { return empty({}, {}, dtype, like); }

Tensor Tensor::empty_like(const Tensor& like) {
  if (like.is_dense()) return empty(like.sizes(), like.strides(), like.dtype(), like);
  return empty(like.sizes(), dense_strides(like.sizes(), like.strides()), like.dtype(), like);
}

Tensor Tensor::contiguous() const {
  bool is_contiguous = false;
  check(aoti_torch_is_contiguous(handle_, &is_contiguous), "examine a tensor");
  if (is_contiguous) return share();
  Tensor copy = empty(sizes(), dtype_, *this);
  check(aoti_torch_copy_(copy.handle(), handle_, 1), "copy a tensor");
  return copy;
}

Tensor Tensor::empty_in(std::span<const std::size_t> order) const {
  return order.empty() ? empty(sizes(), dtype_, *this)
                       : empty(sizes(), strides_in(order, sizes()), dtype_, *this);
}

Tensor Tensor::copy_in(std::span<const std::size_t> order) const {
  Tensor copy = empty_in(order);
  copy.overwrite(*this);
  return copy;
}

void Tensor::overwrite(const Tensor& source) const {
  check(aoti_torch_copy_(alias().handle(), source.alias().handle(), 1), "copy a tensor");
}

Tensor Tensor::alias() const {
  const Types& types = Types::get();
  const bool on_host = device_ == host;
  AtenTensorHandle made = nullptr;
  check(aoti_torch_create_tensor_from_blob(data(), static_cast<std::int64_t>(dimensions_), sizes_, strides_,
                                           0, dtype_, on_host ? types.cpu : types.cuda, on_host ? 0 : device_,
                                           &made),
        "examine a tensor's memory");
  return {made, dimensions_, dtype_, device_};
}

Tensor Tensor::share() const {
  AtenTensorHandle another = nullptr;
  check(aoti_torch_new_tensor_handle(handle_, &another), "share a tensor");
  return Tensor(another);
}

std::int64_t Tensor::elements() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes()) product *= size;
  return product;
}

bool Tensor::is_dense() const {
  bool is_contiguous = false;
  check(aoti_torch_is_contiguous(handle_, &is_contiguous), "examine a tensor");
  if (is_contiguous) return true;
  std::vector<std::size_t> order(dimensions_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t d) { return sizes_[d] == 1; });
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return strides_[a] < strides_[b]; });
  std::int64_t next = 1;
  for (const std::size_t d : order) {
    if (strides_[d] != next) return false;
    next *= sizes_[d];
  }
  return true;
}

bool Tensor::overlaps_itself() const {
  if (elements() == 0) return false;
  std::vector<Dimension> dimensions(dimensions_);
  for (std::size_t d = 0; d < dimensions_; ++d) dimensions[d] = {sizes_[d], strides_[d]};
  return !are_apart(dimensions);
}

std::vector<std::size_t> Tensor::memory_order() const {
  std::vector<std::size_t> order(dimensions_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return strides_[a] > strides_[b]; });
  return order;
}

ce_dtype Tensor::ce_type() const {
  const Types& types = Types::get();
  if (dtype_ == types.bf16) return CE_DTYPE_BF16;
  if (dtype_ == types.f32) return CE_DTYPE_F32;
  if (dtype_ == types.f16) return CE_DTYPE_F16;
  if (dtype_ == types.i64) return CE_DTYPE_I64;
  if (dtype_ == types.i32) return CE_DTYPE_I32;
  if (dtype_ == types.boolean || dtype_ == types.u8) return CE_DTYPE_U8;
  refuse(Refusal::type_error,
         "a tensor has a dtype without kernels of ce; expected float32, float16 or bfloat16");
}

void* Tensor::data() const {
  void* data = nullptr;
  check(aoti_torch_get_data_ptr(handle_, &data), "tell where a tensor's memory is");
  return data;
}

std::optional<ce_tensor> rows_of(const Tensor& tensor, std::size_t dim, std::span<const std::size_t> order) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const std::int64_t columns = sizes.empty() ? 1 : sizes[dim];
  std::array<Dimension, 3> dimensions{};  // those of rows, then those of columns
  std::size_t count = 0;
  std::int64_t all = 1;
  bool fits = true;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t d = order.empty() ? i : order[i];
    if (d == dim || sizes[d] == 1) continue;
    all *= sizes[d];
    if (count > 0 && dimensions[count - 1].stride == strides[d] * sizes[d]) {
      dimensions[count - 1] = {dimensions[count - 1].size * sizes[d], strides[d]};
    } else if (count == 2) {
      fits = false;
    } else {
      dimensions[count++] = {sizes[d], strides[d]};
    }
  }
  ce_tensor rows = ce_matrix(tensor.data(), tensor.ce_type(), all, columns);
  if (all == 0 || columns == 0) return rows;
  if (!fits) return std::nullopt;
  if (columns > 1) rows.column_stride = strides[dim];
  if (count == 1) {
    rows.row_stride = dimensions[0].stride;
  } else if (count == 2) {
    rows.row_stride = dimensions[1].stride;
    rows.batch_rows = dimensions[1].size;
    rows.batch_stride = dimensions[0].stride;
  }
  const bool is_plain = count == 0 ? rows.column_stride == 1
                                   : count == 1 && rows.column_stride == 1 && rows.row_stride >= columns;
  if (is_plain) return rows;
  dimensions[2] = {columns, rows.column_stride};
  if (!are_apart(dimensions)) return std::nullopt;
  return rows;
}

std::optional<ce_tensor> elements_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const std::int64_t elements = tensor.elements();
  if (elements == 0) return ce_vector(tensor.data(), tensor.ce_type(), 0);
  std::array<Dimension, 3> dimensions{{{1, 0}, {1, 0}, {1, 1}}};  // the last is the innermost
  std::size_t first = dimensions.size();
  const std::vector<std::size_t> order = tensor.memory_order();
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t d = order[i];
    if (sizes[d] == 1) continue;
    if (first < dimensions.size() && strides[d] == dimensions[first].size * dimensions[first].stride) {
      dimensions[first].size *= sizes[d];
    } else if (first == 0) {
      return std::nullopt;
    } else {
      dimensions[--first] = {sizes[d], strides[d]};
    }
  }
  ce_tensor view =
      ce_matrix(tensor.data(), tensor.ce_type(), dimensions[0].size * dimensions[1].size, dimensions[2].size);
  view.column_stride = dimensions[2].stride;
  if (view.rows > 1) view.row_stride = dimensions[1].stride;
  if (dimensions[0].size > 1) {
    view.batch_rows = dimensions[1].size;
    view.batch_stride = dimensions[0].stride;
  }
  if (!are_apart(dimensions)) return std::nullopt;
  return view;
}

ce_tensor vector_of(const Tensor& tensor) {
  return ce_vector(tensor.data(), tensor.ce_type(), tensor.elements());
}

void hint_at_copy(const char* operation, const char* argument) {
  static std::atomic<bool> said = false;
  if (said.exchange(true) || ce_log_is_wanted(CE_LOG_INFO) == 0) return;
  std::fprintf(stderr,
               "ce: %s copied its %s, because no kernel takes its strides, or not together with the strides "
               "of the call's other tensors; ce makes no copy of rows with one stride, or of batches of such "
               "rows (this warning is shown once)\n",
               operation, argument);
}

}  // namespace ce_torch
