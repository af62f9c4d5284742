#include "generator/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <optional>
#include <utility>

#include "ce/base/error.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {
namespace {

constexpr std::array<std::pair<Operation, std::string_view>, 4> operation_names{{
    {Operation::softmax, "softmax"},
    {Operation::cross_entropy, "cross_entropy"},
    {Operation::copy, "copy"},
    {Operation::read, "read"},
}};

/// The widest access of a kernel.
constexpr std::uint64_t boundary = 16;

constexpr std::int64_t most_rows = (std::int64_t{1} << 31) - 1;  // blocks of a one-dimensional grid
constexpr std::int64_t most_columns = std::int64_t{1} << 30;     // columns are 32-bit integers in the kernels

/// Sets the field that a word of a key's text is about; words about none are left to the caller.
void read_word(std::string_view word, Problem& problem) {
  const auto value_of = [word](std::string_view start) {
    return word.starts_with(start) ? std::optional(word.substr(start.size())) : std::nullopt;
  };
  const auto number = [](std::string_view digits) {
    std::int64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  };
  if (const auto dtype = parse_dtype(word)) problem.dtype = *dtype;
  if (const auto target = value_of("target="))
    problem.target_dtype = parse_dtype(*target).value_or(DType::i64);
  if (const auto loss = value_of("loss=")) problem.loss_dtype = parse_dtype(*loss).value_or(DType::f32);
  if (const auto reduction = parse_reduction(word)) problem.reduction = *reduction;
  if (word == "gradient") problem.gradient = true;
  if (word == "in_place") problem.in_place = true;
  if (const auto columns = value_of("cols=")) problem.columns = number(*columns);
  if (const auto rows = value_of("rows<=")) problem.rows = number(*rows);
  for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element})
    if (value_of("align=") == name(alignment)) problem.alignment = alignment;
}

}  // namespace

std::string_view name(Operation operation) noexcept {
  for (const auto& [known, text] : operation_names)
    if (known == operation) return text;
  return "?";
}

Operation parse_operation(std::string_view text, std::string_view argument) {
  std::string known_names;
  for (const auto& [known, known_name] : operation_names) {
    if (known_name == text) return known;
    known_names += fmt::format("{}{}", known_names.empty() ? "" : ", ", known_name);
  }
  throw InvalidArgument(argument, fmt::format("\"{}\"", text), "one of " + known_names);
}

std::string_view name(Alignment alignment) noexcept {
  switch (alignment) {
    case Alignment::vector: return "vector";
    case Alignment::shifted: return "shifted";
    case Alignment::element: return "element";
  }
  return "?";
}

Alignment alignment_of(std::int64_t rows, const RowPlacement& input, const RowPlacement& output) noexcept {
  const auto past = [](std::uint64_t x) { return x % boundary; };
  // The stride of a single row is never used.
  const std::uint64_t in_step = rows > 1 ? past(static_cast<std::uint64_t>(input.stride_bytes)) : 0;
  const std::uint64_t out_step = rows > 1 ? past(static_cast<std::uint64_t>(output.stride_bytes)) : 0;
  if (past(input.address) == 0 && past(output.address) == 0 && in_step == 0 && out_step == 0)
    return Alignment::vector;
  if (past(input.address) == past(output.address) && in_step == out_step) return Alignment::shifted;
  return Alignment::element;
}

bool has_output(const Problem& problem) noexcept {
  return problem.operation != Operation::read &&
         (problem.operation != Operation::cross_entropy || problem.gradient);
}

std::int64_t rows_bucket(std::int64_t rows) noexcept {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
}

Problem bucketed(Problem problem) noexcept {
  problem.rows = rows_bucket(problem.rows);
  return problem;
}

Traffic traffic(const Problem& problem) noexcept {
  const std::int64_t matrix = problem.rows * problem.columns * size_of(problem.dtype);
  Traffic bytes{.read = matrix, .written = has_output(problem) ? matrix : 0};
  if (problem.operation == Operation::cross_entropy) {
    bytes.read += problem.rows * size_of(problem.target_dtype);
    bytes.written += (problem.reduction == Reduction::none ? problem.rows : 1) * size_of(problem.loss_dtype);
  }
  return bytes;
}

std::int64_t sum_blocks(std::int64_t rows) noexcept { return (rows + rows_per_sum - 1) / rows_per_sum; }

std::int64_t workspace_bytes(const Problem& problem) noexcept {
  if (problem.operation != Operation::cross_entropy || problem.reduction == Reduction::none) return 0;
  const std::int64_t floats = problem.rows + sum_blocks(problem.rows);
  return static_cast<std::int64_t>(offsetof(Workspace, losses)) + floats * 4;
}

std::string code_text(const Problem& problem) {
  std::string text = fmt::format("{} {}", name(problem.operation), name(problem.dtype));
  if (problem.operation == Operation::cross_entropy)
    text += fmt::format(" target={} loss={} {}{}", name(problem.target_dtype), name(problem.loss_dtype),
                        name(problem.reduction), problem.gradient ? " gradient" : "");
  if (problem.in_place) text += " in_place";
  return text + fmt::format(" cols={} align={}", problem.columns, name(problem.alignment));
}

std::string key_text(const Problem& problem) {
  return fmt::format("{} rows<={} l2=cold", code_text(problem), rows_bucket(problem.rows));
}

Problem parse_key_text(std::string_view text) {
  const auto malformed = [text] {
    return InvalidArgument("key", fmt::format("\"{}\"", text),
                           "text such as \"softmax bf16 cols=4096 align=vector rows<=8192 l2=cold\"");
  };
  Problem problem;
  std::size_t start = 0;
  for (bool first = true; start < text.size(); first = false) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (first) {
      const auto* known = std::find_if(operation_names.begin(), operation_names.end(),
                                       [word](const auto& named) { return named.second == word; });
      if (known == operation_names.end()) throw malformed();
      problem.operation = known->first;
    } else {
      read_word(word, problem);
    }
    start = end + 1;
  }
  problem.rows = std::min(problem.rows, most_rows);
  // Whatever was misread, left out or put in another order does not come out again.
  if (problem.rows < 1 || problem.columns < 1 || key_text(problem) != text) throw malformed();
  return problem;
}

std::string title(const Problem& problem) {
  std::string options;
  if (problem.operation == Operation::cross_entropy)
    options = fmt::format(" {} {}", problem.gradient ? "loss+grad" : "loss", name(problem.reduction));
  if (problem.in_place) options += " in place";
  if (problem.alignment != Alignment::vector) options += fmt::format(" ({} rows)", name(problem.alignment));
  return fmt::format("{} {} {} x {}{}", name(problem.operation), name(problem.dtype), problem.rows,
                     problem.columns, options);
}

void validate(const Problem& problem) {
  if (!is_floating(problem.dtype)) throw InvalidArgument("dtype", name(problem.dtype), "f32, f16 or bf16");
  if (is_floating(problem.target_dtype))
    throw InvalidArgument("target dtype", name(problem.target_dtype), "i32 or i64");
  if (problem.loss_dtype != DType::f32 && problem.loss_dtype != problem.dtype)
    throw InvalidArgument(
        "loss dtype", name(problem.loss_dtype),
        problem.dtype == DType::f32 ? "f32" : fmt::format("f32 or {}", name(problem.dtype)));
  if (problem.rows < 1 || problem.rows > most_rows)
    throw InvalidArgument("rows", fmt::to_string(problem.rows), fmt::format("1 to {}", most_rows));
  if (problem.columns < 1 || problem.columns > most_columns)
    throw InvalidArgument("columns", fmt::to_string(problem.columns), fmt::format("1 to {}", most_columns));
}

}  // namespace ce::generator
