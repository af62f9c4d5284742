#include "generator/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "ce/error.hpp"
#include "generator/operations/cross_entropy_rules.hpp"
#include "templates/arguments.cuh"
#include "templates/row/layout.cuh"

namespace ce::generator {
namespace {

/// A switch of a problem: a flag of cross entropy, or a member of its own.
struct Switch {
  std::string_view word;
  bool CrossEntropyFlags::*flag = nullptr;
  bool Problem::*field = nullptr;

  [[nodiscard]] constexpr bool& of(Problem& problem) const {
    return flag != nullptr ? problem.has.*flag : problem.*field;
  }
  [[nodiscard]] constexpr bool of(const Problem& problem) const {
    return flag != nullptr ? problem.has.*flag : problem.*field;
  }
};

/// The switches in the order in which their words are written.
constexpr auto switches = [] {
  std::array<Switch,
             cross_entropy_options.size() + cross_entropy_inputs.size() + cross_entropy_outputs.size() + 5>
      all;
  auto* next = all.begin();
  *next++ = {.word = "gradient", .field = &Problem::gradient};
  *next++ = {.word = "probabilities", .field = &Problem::probabilities};
  for (const CrossEntropyOption& option : cross_entropy_options) *next++ = {option.word, option.field};
  for (const CrossEntropyInput& input : cross_entropy_inputs) *next++ = {input.word, input.field};
  for (const CrossEntropyOutput& output : cross_entropy_outputs) *next++ = {output.word, output.field};
  *next++ = {.word = "in_place", .field = &Problem::in_place};
  *next++ = {.word = "batched", .field = &Problem::batched};
  *next++ = {.word = "strided", .field = &Problem::strided};
  return all;
}();

/// Bytes of a kernel's widest access.
constexpr std::uint64_t boundary = 16;

/// More columns than any memory holds; the bytes of so many can still be counted.
constexpr std::int64_t most_elements = std::int64_t{1} << 56;

/// Sets the member that a word of a key's text names; ignores other words.
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
  if (const auto weights = value_of("weights=")) {
    problem.weights = true;
    problem.weight_dtype = parse_dtype(*weights).value_or(DType::f32);
  }
  for (const Upstream upstream : {Upstream::scalar, Upstream::rows})
    if (value_of("upstream=") == name(upstream)) problem.upstream = upstream;
  for (const Switch& each : switches)
    if (word == each.word) each.of(problem) = true;
  if (const auto columns = value_of("cols=")) problem.columns = number(*columns);
  if (const auto rows = value_of("rows<=")) problem.rows = number(*rows);
  for (const Alignment alignment : alignments)
    if (value_of("align=") == name(alignment)) problem.alignment = alignment;
}

}  // namespace

Operation parse_operation(std::string_view text, std::string_view argument, Named which) {
  std::string known_names;
  for (const OperationRow& row : operation_rows) {
    if (!may_be_named(row.operation, which)) continue;
    if (row.word == text) return row.operation;
    known_names += fmt::format("{}{}", known_names.empty() ? "" : ", ", row.word);
  }
  throw InvalidArgument(argument, fmt::format("\"{}\"", text), "one of " + known_names);
}

std::string_view name(Alignment alignment) noexcept {
  switch (alignment) {
    case Alignment::vector: return "vector";
    case Alignment::dense: return "dense";
    case Alignment::shifted: return "shifted";
    case Alignment::element: return "element";
  }
  return "?";
}

std::string_view name(Upstream upstream) noexcept {
  switch (upstream) {
    case Upstream::one: return "one";
    case Upstream::scalar: return "scalar";
    case Upstream::rows: return "rows";
  }
  return "?";
}

Alignment alignment_of(std::int64_t rows, std::int64_t row_bytes,
                       std::span<const RowPlacement> tensors) noexcept {
  static_assert(std::has_single_bit(boundary), "so that a remainder is the lowest bits");
  std::uint64_t any = 0, different = 0;
  const auto look = [&](std::uint64_t own, std::uint64_t first) {
    any |= own;
    different |= own ^ first;
  };
  const RowPlacement& first = tensors.front();
  for (const RowPlacement& tensor : tensors) {
    look(tensor.address, first.address);
    if (rows > 1) {  // the strides of a single row are never used
      look(static_cast<std::uint64_t>(tensor.stride_bytes), static_cast<std::uint64_t>(first.stride_bytes));
      look(static_cast<std::uint64_t>(tensor.batch_stride_bytes),
           static_cast<std::uint64_t>(first.batch_stride_bytes));
    }
  }
  if (any % boundary == 0) return Alignment::vector;
  const bool dense = rows > 1 && row_bytes <= widest_dense_row &&
                     std::all_of(tensors.begin(), tensors.end(), [&](const RowPlacement& tensor) {
                       return tensor.address % boundary == 0 && tensor.stride_bytes == row_bytes &&
                              tensor.batch_stride_bytes == 0;
                     });
  return dense ? Alignment::dense : different % boundary == 0 ? Alignment::shifted : Alignment::element;
}

bool can_be_dense(const Problem& problem) noexcept {
  const std::int64_t row_bytes = problem.columns * size_of(problem.dtype);
  return problem.rows > 1 && !problem.batched && !problem.strided && row_bytes <= widest_dense_row &&
         row_bytes % static_cast<std::int64_t>(boundary) != 0;
}

bool starts_on_vectors(const Problem& problem, int vec) noexcept {
  return problem.alignment == Alignment::vector ||
         (problem.alignment == Alignment::dense && vec > 0 && problem.columns % vec == 0);
}

bool has_output(const Problem& problem) noexcept {
  return is_cross_entropy(problem.operation) ? problem.gradient
                                             : row_of(problem.operation).writes == Writes::always;
}

int inputs(const Problem& problem) noexcept {
  const bool reads_probabilities =
      problem.probabilities && problem.operation != Operation::cross_entropy_merge;
  return row_of(problem.operation).inputs + (reads_probabilities ? 1 : 0);
}

bool reads_all_weights(const Problem& problem) noexcept {
  return problem.operation != Operation::cross_entropy_merge && problem.weights &&
         (problem.has.smoothing || problem.probabilities);
}

bool has_costly_options(const Problem& problem) noexcept {
  return problem.has.softcap || reads_all_weights(problem);
}

bool reads_lse(const Problem& problem) noexcept {
  return problem.operation == Operation::cross_entropy_backward || problem.has.given_lse;
}

bool reduces(const Problem& problem) noexcept {
  if (problem.operation == Operation::cross_entropy_shard_backward) return false;
  return !reads_lse(problem) || problem.probabilities || (problem.has.smoothing && problem.weights);
}

bool reads_entropy(const Problem& problem) noexcept {
  return problem.operation == Operation::cross_entropy_backward && problem.has.entropy_upstream;
}

bool counts_first(const Problem& problem) noexcept {
  return is_cross_entropy(problem.operation) && problem.gradient && !problem.probabilities &&
         problem.reduction == Reduction::mean && !problem.has.divisor;
}

bool sums_losses(const Problem& problem) noexcept {
  return has_losses(problem.operation) && problem.reduction != Reduction::none;
}

bool fuses_sums(const Problem& problem) noexcept {
  return problem.gradient && problem.rows <= most_fused_rows;
}

Traffic traffic(const Problem& problem) noexcept {
  const bool merges = problem.operation == Operation::cross_entropy_merge;
  const std::int64_t read_columns = merges                                    ? 0
                                    : has_output(problem) || reduces(problem) ? problem.columns
                                                                              : 1,  // the targets
      matrix = problem.rows * read_columns * size_of(problem.dtype);
  Traffic bytes{.read = inputs(problem) * matrix, .written = has_output(problem) ? matrix : 0};
  if (!is_cross_entropy(problem.operation)) return bytes;
  if (!problem.probabilities) bytes.read += problem.rows * size_of(problem.target_dtype);
  const std::int64_t statistics = problem.rows * statistics_words(problem) * 4;
  if (problem.operation == Operation::cross_entropy_shard) {
    bytes.written += statistics;
    return bytes;
  }
  if (merges) bytes.read += problem.columns * statistics;
  if (problem.operation == Operation::cross_entropy_shard_backward) bytes.read += statistics;
  if (problem.weights && !merges) bytes.read += problem.columns * size_of(problem.weight_dtype);
  if (problem.upstream != Upstream::one)
    bytes.read += (problem.upstream == Upstream::rows ? problem.rows : 1) * size_of(problem.loss_dtype);
  for (const CrossEntropyInput& input : cross_entropy_inputs)
    if (problem.has.*input.field) bytes.read += input.elements(problem) * size_of(DType::f32);
  if (problem.operation == Operation::cross_entropy_backward)
    bytes.read += (reads_entropy(problem) ? 2 : 1) * problem.rows * size_of(DType::f32);
  if (!has_losses(problem.operation)) return bytes;
  bytes.written += (problem.reduction == Reduction::none ? problem.rows : 1) * size_of(problem.loss_dtype);
  for (const CrossEntropyOutput& output : cross_entropy_outputs)
    if (problem.has.*output.field)
      bytes.written += output.elements(problem) * size_of(output.dtype_of(problem));
  return bytes;
}

int statistics_words(const Problem& problem) noexcept {
  const bool narrow = problem.dtype != DType::f32;
  const StatsMembers members = cross_entropy_stats(
      true, problem.probabilities, problem.has.smoothing, problem.weights,
      problem.has.argmax_out || problem.has.hit_out, problem.has.entropy_out || problem.has.entropy_upstream);
  return shard_words(members, narrow, !problem.probabilities, problem.has.softcap);
}

std::int64_t sum_blocks(std::int64_t rows) noexcept {
  return std::min(most_sum_blocks, (rows + rows_per_sum - 1) / rows_per_sum);
}

std::int64_t workspace_bytes(const Problem& problem) noexcept {
  if (!sums_losses(problem) && !counts_first(problem)) return 0;
  // Losses, twice if there are z-losses, and three floats for each block of the sums.
  const std::int64_t floats = (problem.has.z_loss ? 2 : 1) * problem.rows + 3 * sum_blocks(problem.rows);
  return static_cast<std::int64_t>(offsetof(Workspace, losses)) + floats * 4;
}

std::string code_text(const Problem& problem) {
  std::string text = fmt::format("{} {}", name(problem.operation), name(problem.dtype));
  if (is_cross_entropy(problem.operation)) {
    if (!problem.probabilities) text += fmt::format(" target={}", name(problem.target_dtype));
    text += fmt::format(" loss={} {}", name(problem.loss_dtype), name(problem.reduction));
    if (problem.weights) text += fmt::format(" weights={}", name(problem.weight_dtype));
    if (problem.upstream != Upstream::one) text += fmt::format(" upstream={}", name(problem.upstream));
  }
  for (const Switch& each : switches)
    if (each.of(problem)) text += fmt::format(" {}", each.word);
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
      const auto* known = std::ranges::find(operation_rows, word, &OperationRow::word);
      if (known == operation_rows.end()) throw malformed();
      problem.operation = known->operation;
    } else {
      read_word(word, problem);
    }
    start = end + 1;
  }
  problem.rows = std::min(problem.rows, most_rows);
  // Text that was misread, incomplete or in another order does not print as the same text.
  if (problem.rows < 1 || problem.columns < 1 || key_text(problem) != text) throw malformed();
  validate(problem);
  return problem;
}

std::string title(const Problem& problem) {
  std::string options;
  if (problem.operation == Operation::cross_entropy)
    options = fmt::format(" {} {}", problem.gradient ? "loss+grad" : "loss", name(problem.reduction));
  else if (is_cross_entropy(problem.operation) && problem.operation != Operation::cross_entropy_shard)
    options = fmt::format(" {}", name(problem.reduction));
  if (problem.weights) options += " weights";
  if (problem.upstream != Upstream::one) options += fmt::format(" upstream={}", name(problem.upstream));
  for (const Switch& each : switches)
    if (each.of(problem) && each.field != &Problem::gradient)
      options += each.field == &Problem::in_place ? " in place" : fmt::format(" {}", each.word);
  if (problem.alignment != Alignment::vector) options += fmt::format(" ({} rows)", name(problem.alignment));
  return fmt::format("{} {} {} x {}{}", name(problem.operation), name(problem.dtype), problem.rows,
                     problem.columns, options);
}

std::string sweep_command(const Problem& problem) {
  const bool loss = is_cross_entropy(problem.operation);
  std::string text = fmt::format("ce-tune sweep --op {} --dtype {} --rows {} --cols {}",
                                 name(problem.operation), name(problem.dtype), problem.rows, problem.columns);
  const auto add = [&](bool differs, std::string_view option) {
    if (differs) text += fmt::format(" {}", option);
  };
  if (loss) {
    add(problem.reduction != Reduction::mean, fmt::format("--reduction {}", name(problem.reduction)));
    add(problem.operation == Operation::cross_entropy && !problem.gradient, "--loss-only");
    add(problem.probabilities, "--probabilities");
    add(problem.target_dtype != DType::i64, fmt::format("--target {}", name(problem.target_dtype)));
    add(problem.loss_dtype != DType::f32, fmt::format("--loss-dtype {}", name(problem.loss_dtype)));
    add(problem.weights, fmt::format("--weights={}", name(problem.weight_dtype)));
    for (const CrossEntropyOption& option : cross_entropy_options)
      add(problem.has.*option.field, option.flag);
    add(problem.upstream != Upstream::one, fmt::format("--upstream {}", name(problem.upstream)));
    for (const CrossEntropyInput& input : cross_entropy_inputs) add(problem.has.*input.field, input.flag);
    for (const CrossEntropyOutput& output : cross_entropy_outputs)
      add(problem.has.*output.field, output.flag);
  }
  if (has_output(problem) && problem.in_place != loss) add(true, loss ? "--no-in-place" : "--in-place");
  add(problem.batched, "--batched");
  add(problem.strided, "--strided");
  const bool is_usual =
      problem.alignment == Alignment::vector && problem.columns * size_of(problem.dtype) % 16 == 0;
  add(!problem.strided && !is_usual, fmt::format("--align {}", name(problem.alignment)));
  return text;
}

void validate(const Problem& problem) {
  if (!is_floating(problem.dtype)) throw InvalidArgument("dtype", name(problem.dtype), "f32, f16 or bf16");
  if (problem.target_dtype != DType::i32 && problem.target_dtype != DType::i64)
    throw InvalidArgument("target dtype", name(problem.target_dtype), "i32 or i64");
  const auto f32_or_own = [&](std::string_view argument, DType dtype) {
    if (dtype != DType::f32 && dtype != problem.dtype)
      throw InvalidArgument(
          argument, name(dtype),
          problem.dtype == DType::f32 ? "f32" : fmt::format("f32 or {}", name(problem.dtype)));
  };
  f32_or_own("loss dtype", problem.loss_dtype);
  f32_or_own("weight dtype", problem.weight_dtype);
  const auto only = [](bool option, bool allowed, std::string_view argument, std::string_view expected) {
    if (option && !allowed) throw InvalidArgument(argument, "set", expected);
  };
  const bool some = is_cross_entropy(problem.operation);
  constexpr std::string_view unset_elsewhere = "only with cross_entropy";
  only(problem.gradient, some, "gradient", unset_elsewhere);
  only(problem.probabilities, some, "probabilities", unset_elsewhere);
  only(problem.weights, some, "weights", unset_elsewhere);
  for (const CrossEntropyOption& option : cross_entropy_options)
    only(problem.has.*option.field, some && !(option.of_classes && problem.probabilities), option.word,
         option.of_classes ? "only with class indices of cross_entropy" : unset_elsewhere);
  for (const CrossEntropyInput& input : cross_entropy_inputs)
    only(problem.has.*input.field, input.is_possible(problem), input.word,
         "only with " + std::string(input.needed()));
  for (const CrossEntropyOutput& output : cross_entropy_outputs) {
    const std::string needed = output.needs != nullptr ? std::string(option_of(output.needs).word)
                               : output.of_classes     ? "class indices"
                               : problem.has.given_lse ? "a logsumexp that is found"
                                                       : "cross_entropy";
    only(problem.has.*output.field, output.is_possible(problem), output.word, "only with " + needed);
  }
  only(problem.upstream != Upstream::one, problem.gradient, "upstream", "only with a gradient");
  if (const CrossEntropyOption* option = option_without_saved_input(problem); option != nullptr)
    throw InvalidArgument(input_of(option->saved).word, "unset", fmt::format("set with {}", option->word));
  if (always_has_gradient(problem.operation) && !problem.gradient)
    throw InvalidArgument("gradient", "unset",
                          fmt::format("set, because {} writes the gradient", name(problem.operation)));
  if (problem.operation == Operation::cross_entropy_merge)
    for (const auto& [set, word] :
         {std::pair(problem.batched, "batched"), std::pair(problem.strided, "strided")})
      only(set, false, word, "only with operations that read rows");
  const bool is_shard = problem.operation == Operation::cross_entropy_shard;
  if (is_shard && problem.reduction != Reduction::none)
    throw InvalidArgument("reduction", name(problem.reduction),
                          "none, because cross_entropy_merge does the reduction");
  only(problem.gradient, row_of(problem.operation).writes != Writes::never, "gradient",
       "only with cross_entropy and backward operations");
  if (problem.rows < 1 || problem.rows > most_rows)
    throw InvalidArgument("rows", fmt::to_string(problem.rows), fmt::format("1 to {}", most_rows));
  if (problem.columns < 1 || problem.columns > most_columns)
    throw InvalidArgument("columns", fmt::to_string(problem.columns), fmt::format("1 to {}", most_columns));
  if (problem.alignment == Alignment::dense && !can_be_dense(problem))
    throw InvalidArgument("alignment", name(problem.alignment),
                          fmt::format("another one, except for two or more rows of up to {} bytes, not a "
                                      "multiple of {}, without batches",
                                      widest_dense_row, boundary));
  if (problem.rows > most_elements / problem.columns)
    throw InvalidArgument(
        "rows", fmt::to_string(problem.rows),
        fmt::format("at most {} with {} columns", most_elements / problem.columns, problem.columns));
}

}  // namespace ce::generator
