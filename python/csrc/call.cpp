#include "python/csrc/call.hpp"

#include <algorithm>
#include <string>

#include "python/csrc/contexts.hpp"
#include "python/csrc/torch_memory.hpp"

namespace ce_torch {

ce_stream stream_of(const Tensor& tensor) {
  return tensor.device() == host ? nullptr : current_stream(tensor.device());
}

void require_same_device(const Tensor& tensor, const char* name, const Tensor& first) {
  if (tensor.device() != first.device())
    refuse(Refusal::value_error, std::string() + name + " is on another device than the first tensor");
}

std::size_t dimension(std::int64_t dim, const Tensor& tensor, const char* operation) {
  const auto dimensions = static_cast<std::int64_t>(std::max<std::size_t>(1, tensor.sizes().size()));
  if (dim < -dimensions || dim >= dimensions)
    refuse(Refusal::index_error, std::string() + operation + ": dim is " + std::to_string(dim) +
                                     "; expected " + std::to_string(-dimensions) + " to " +
                                     std::to_string(dimensions - 1));
  return static_cast<std::size_t>(dim < 0 ? dim + dimensions : dim);
}

ce_tensor written_rows(const Tensor& tensor, std::size_t dim, const char* operation, const char* argument) {
  const std::optional<ce_tensor> rows = rows_of(tensor, dim);
  if (!rows)
    refuse(Refusal::value_error,
           std::string() + operation + ": " + argument +
               " has strides that no kernel writes; expected rows with one stride, or batches of such rows");
  return *rows;
}

std::string text_of(std::span<const std::int64_t> sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

void require_same_sizes(const Tensor& tensor, const Tensor& like, const char* operation,
                        const char* argument) {
  const auto a = tensor.sizes(), b = like.sizes();
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    refuse(Refusal::value_error, std::string() + operation + ": " + argument + " has sizes " + text_of(a) +
                                     "; expected " + text_of(b));
}

}  // namespace ce_torch
