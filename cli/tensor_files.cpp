#include "cli/tensor_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "ce/base/error.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;
using generator::Upstream;

static_assert(std::endian::native == std::endian::little);

std::vector<NamedTensor> of_cross_entropy(const Problem& problem) {
  const bool backward = problem.operation == Operation::cross_entropy_backward;
  const std::int64_t rows = problem.rows, columns = problem.columns,
                     losses = problem.reduction == Reduction::none ? rows : 1,
                     upstream = problem.upstream == Upstream::rows ? rows : 1;
  std::vector<NamedTensor> tensors;
  const auto read = [&](bool there, const char* name, DType dtype, std::int64_t its_rows,
                        std::int64_t its_columns = 1) {
    if (there) tensors.push_back({.name = name, .dtype = dtype, .rows = its_rows, .columns = its_columns});
  };
  const auto write = [&](bool there, const char* name, DType dtype, std::int64_t its_rows) {
    if (there) tensors.push_back({.name = name, .dtype = dtype, .rows = its_rows, .written = true});
  };
  read(true, "logits", problem.dtype, rows, columns);
  read(problem.probabilities, "target", problem.dtype, rows, columns);
  read(!problem.probabilities, "target", problem.target_dtype, rows);
  read(problem.weights, "weight", problem.weight_dtype, columns);
  read(problem.upstream != Upstream::one, "upstream", problem.loss_dtype, upstream);
  read(backward, "lse", DType::f32, rows);
  write(!backward, "loss", problem.loss_dtype, losses);
  if (problem.gradient)
    tensors.push_back({.name = "grad",
                       .dtype = problem.dtype,
                       .rows = rows,
                       .columns = columns,
                       .written = true,
                       .over = problem.in_place ? "logits" : ""});
  write(problem.z_loss_out, "z_loss", problem.loss_dtype, losses);
  write(problem.lse_out, "lse", DType::f32, rows);
  write(problem.argmax_out, "argmax", DType::i64, rows);
  write(problem.hit_out, "hit", DType::u8, rows);
  return tensors;
}

/// An output can have the file of the input that it is written over, and of no other tensor.
void require_own_file(const NamedTensor& output, std::span<const NamedTensor> tensors,
                      const std::map<std::string, std::string>& files) {
  const auto own = files.find(output.name);
  if (own == files.end() || std::filesystem::is_other(own->second)) return;  // a pipe or a device
  const auto place = [](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  };
  for (const NamedTensor& other : tensors) {
    const auto file = files.find(other.name);
    if (other.name == output.name || file == files.end()) continue;
    if (other.name != output.over && place(file->second) == place(own->second))
      throw InvalidArgument(output.name, in_quotes(own->second),
                            fmt::format("another file than that of {}", other.name));
  }
}

std::string names_of(std::span<const NamedTensor> tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<NamedTensor> tensors_of(const Problem& problem) {
  if (generator::is_ceiling(problem.operation)) return {};
  if (generator::is_cross_entropy(problem.operation)) return of_cross_entropy(problem);
  const auto matrix = [&](const char* name) {
    return NamedTensor{
        .name = name, .dtype = problem.dtype, .rows = problem.rows, .columns = problem.columns};
  };
  const bool backward = generator::inputs(problem) == 2;
  std::vector<NamedTensor> tensors{matrix(backward ? "output_grad" : "input")};
  if (backward) tensors.push_back(matrix("output"));
  NamedTensor& written = tensors.emplace_back(matrix(backward ? "input_grad" : "output"));
  written.written = true;
  if (problem.in_place) written.over = tensors.front().name;
  return tensors;
}

std::map<std::string, std::string> files_of(const std::vector<std::string>& texts,
                                            std::span<const NamedTensor> tensors) {
  std::map<std::string, std::string> files;
  for (const std::string& text : texts) {
    const std::size_t sign = text.find('=');
    const std::string name = text.substr(0, sign);
    const bool known =
        std::any_of(tensors.begin(), tensors.end(), [&](const NamedTensor& t) { return t.name == name; });
    if (sign == std::string::npos || sign + 1 == text.size() || !known)
      throw InvalidArgument(
          "TENSOR=FILE", in_quotes(text),
          fmt::format("a tensor of the problem and a file; its tensors are {}", names_of(tensors)));
    if (!files.emplace(name, text.substr(sign + 1)).second)
      throw InvalidArgument("TENSOR=FILE", in_quotes(text), fmt::format("one file for {}", name));
  }
  for (const NamedTensor& tensor : tensors)
    if (tensor.written) require_own_file(tensor, tensors, files);
  bool any_output = false;
  for (const NamedTensor& tensor : tensors) {
    const bool given = files.contains(tensor.name);
    any_output = any_output || (tensor.written && given);
    if (!tensor.written && !given)
      throw InvalidArgument(tensor.name, "missing", fmt::format("{}=FILE, an input", tensor.name));
  }
  if (!any_output)
    throw InvalidArgument("TENSOR=FILE", "without an output",
                          "a file for at least one tensor that is written");
  return files;
}

std::vector<std::byte> read_tensor(const NamedTensor& tensor, const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory)
    throw NotFound(fmt::format("there is no file {} for {}", path, tensor.name));
  if (error) throw InvalidArgument(tensor.name, in_quotes(path), "a file; " + error.message());
  if (size != tensor.bytes())
    throw InvalidArgument(tensor.name, fmt::format("{}, {} bytes", in_quotes(path), size),
                          fmt::format("{} bytes: {} x {} elements of {}", tensor.bytes(), tensor.rows,
                                      tensor.columns, name(tensor.dtype)));
  std::vector<std::byte> bytes(tensor.bytes());
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw InvalidArgument(tensor.name, in_quotes(path), "a file that can be read");
  return bytes;
}

}  // namespace ce::cli
