#include "cli/tensor_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "ce/error.hpp"
#include "cli/units.hpp"
#include "generator/operations/cross_entropy_rules.hpp"

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
  const auto write = [&](std::string_view name, DType dtype, std::int64_t its_rows) {
    tensors.push_back({.name = std::string(name), .dtype = dtype, .rows = its_rows, .written = true});
  };
  read(true, "logits", problem.dtype, rows, columns);
  read(problem.probabilities, "target", problem.dtype, rows, columns);
  read(!problem.probabilities, "target", problem.target_dtype, rows);
  read(problem.weights, "weight", problem.weight_dtype, columns);
  read(problem.upstream != Upstream::one, "upstream", problem.loss_dtype, upstream);
  read(backward, "lse", DType::f32, rows);
  read(generator::reads_entropy(problem), "entropy", DType::f32, rows);
  for (const auto& input : generator::cross_entropy_inputs)
    read(problem.has.*input.field, std::string(input.tensor).c_str(), DType::f32, input.elements(problem));
  if (!backward) write("loss", problem.loss_dtype, losses);
  if (problem.gradient)
    tensors.push_back({.name = "grad",
                       .dtype = problem.dtype,
                       .rows = rows,
                       .columns = columns,
                       .written = true,
                       .over = problem.in_place ? "logits" : ""});
  for (const auto& output : generator::cross_entropy_outputs)
    if (problem.has.*output.field) write(output.tensor, output.dtype_of(problem), output.elements(problem));
  return tensors;
}

namespace fs = std::filesystem;

/// Whether both paths name the same file, even one that does not exist yet.
bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code error;
  const auto canonical = [&error](const std::string& path) {
    const fs::path absolute = fs::absolute(path, error);
    return error ? absolute : fs::weakly_canonical(absolute, error);
  };
  const fs::path canonical_one = canonical(one);
  const fs::path canonical_other = error ? fs::path() : canonical(other);
  // A link in /proc to an open file that was deleted has no path.
  return error ? fs::equivalent(one, other, error) : canonical_one == canonical_other;
}

/// An output may have the file of the input that it overwrites, but of no other tensor. Tensors can share streams.
void require_own_file(const NamedTensor& output, std::span<const NamedTensor> tensors,
                      const std::map<std::string, std::string>& files) {
  const auto own = files.find(output.name);
  if (own == files.end() || is_stream(own->second)) return;
  for (const NamedTensor& other : tensors) {
    const auto file = files.find(other.name);
    if (other.name == output.name || other.name == output.over) continue;
    if (file != files.end() && !is_stream(file->second) && is_same_file(file->second, own->second))
      throw InvalidArgument(output.name, in_quotes(own->second),
                            fmt::format("a different file from that of {}", other.name));
  }
}

/// \param size  bytes read so far, for a stream that is too long
void require_size(const NamedTensor& tensor, const std::string& path, std::uintmax_t size) {
  if (size == tensor.bytes()) return;
  throw InvalidArgument(tensor.name, fmt::format("{}, {} bytes", in_quotes(path), size),
                        fmt::format("{} bytes: {} x {} elements of {}", tensor.bytes(), tensor.rows,
                                    tensor.columns, name(tensor.dtype)));
}

/// Reads a stream; of one that is longer than the tensor, only a little more than that.
/// \param expected  bytes to allocate at once; more is allocated as data arrives
std::vector<std::byte> read_all(std::istream& file, const NamedTensor& tensor, std::size_t expected) {
  constexpr std::size_t step = std::size_t{1} << 20;
  std::vector<std::byte> bytes;
  bytes.reserve(expected + step);
  while (file && bytes.size() <= tensor.bytes()) {
    const std::size_t start = bytes.size();
    bytes.resize(start + step);
    file.read(reinterpret_cast<char*>(bytes.data() + start), static_cast<std::streamsize>(step));
    bytes.resize(start + static_cast<std::size_t>(file.gcount()));
  }
  return bytes;
}

std::string names_of(std::span<const NamedTensor> tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Names the flag without which the problem lacks a tensor; empty if no flag adds it.
std::string with_flag(std::string_view tensor, const Problem& problem) {
  const auto flag_of = [&](const auto& rows) {
    for (const auto& row : rows)
      if (row.tensor == tensor && row.is_possible(problem)) return row.flag;
    return std::string_view();
  };
  std::string_view flag = flag_of(generator::cross_entropy_outputs);
  if (flag.empty()) flag = flag_of(generator::cross_entropy_inputs);
  return flag.empty() ? "" : fmt::format(", and {} with {}", tensor, flag);
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

bool is_stream(const std::string& path) {
  std::error_code error;
  return fs::is_other(path, error);
}

std::map<std::string, std::string> files_of(const std::vector<std::string>& texts, const Problem& problem,
                                            std::span<const NamedTensor> tensors) {
  std::map<std::string, std::string> files;
  for (const std::string& text : texts) {
    const std::size_t sign = text.find('=');
    const std::string name = text.substr(0, sign);
    const bool known =
        std::any_of(tensors.begin(), tensors.end(), [&](const NamedTensor& t) { return t.name == name; });
    if (sign == std::string::npos || sign + 1 == text.size() || !known)
      throw InvalidArgument("TENSOR=FILE", in_quotes(text),
                            fmt::format("a tensor of the problem and a file; its tensors are {}{}",
                                        names_of(tensors), known ? "" : with_flag(name, problem)));
    if (text.substr(sign + 1) == "-")
      throw InvalidArgument(name, in_quotes("-"),
                            "a file; /dev/stdin and /dev/stdout are streams, ./- is a file of this name");
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
    throw InvalidArgument("TENSOR=FILE", "without an output", "a file for at least one output");
  return files;
}

std::vector<std::byte> read_tensor(const NamedTensor& tensor, const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw NotFound(fmt::format("there is no file {} for {}", path, tensor.name));
  const auto size = !error && fs::is_regular_file(status) ? fs::file_size(path, error) : 0;
  if (error) throw InvalidArgument(tensor.name, in_quotes(path), "a file; " + error.message());
  if (size > 0) require_size(tensor, path, size);  // the sizes of streams are checked while reading
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes = read_all(file, tensor, size);
  if (!file.is_open() || file.bad())
    throw InvalidArgument(tensor.name, in_quotes(path), "a file that can be read");
  require_size(tensor, path, bytes.size());
  return bytes;
}

}  // namespace ce::cli
