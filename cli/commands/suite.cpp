#include "cli/commands/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;

constexpr std::array all_suites{Suite::widths, Suite::vocab, Suite::few_rows};

/// The problems to time for an operation.
struct TimedOperation {
  Operation operation;
  bool loss_only = false;
};

std::vector<TimedOperation> cases_of(Suite suite, const ProblemOptions& options) {
  std::vector<TimedOperation> cases;
  for (const Operation operation : operations_of(options)) cases.push_back({operation, options.loss_only});
  if (!cases.empty()) return cases;
  if (suite == Suite::vocab) return {{Operation::softmax}, {Operation::cross_entropy, options.loss_only}};
  cases = {{Operation::softmax},
           {Operation::log_softmax},
           {Operation::softmax_backward},
           {Operation::log_softmax_backward},
           {Operation::cross_entropy, true}};
  if (!options.loss_only) cases.push_back({Operation::cross_entropy, false});
  cases.push_back({Operation::cross_entropy_backward});
  return cases;
}

std::vector<DType> dtypes_of(Suite suite, const ProblemOptions& options) {
  if (!options.dtypes.empty()) return dtypes_of(options);
  if (suite == Suite::vocab) return {DType::f32, DType::bf16};
  return {DType::f32, DType::f16, DType::bf16};
}

std::vector<std::int64_t> columns_of(Suite suite, const ProblemOptions& options) {
  if (!options.columns.empty()) return columns_of(options);
  switch (suite) {
    case Suite::widths:
      return {128,   512,   1000,   1024,   2048,   4096,   8192,   16384,  32000, 32768,
              50257, 65536, 100277, 128256, 131072, 151936, 201088, 256000, 262144};
    case Suite::vocab:
      return {32000,    // Llama 2
              32768,    // Mistral v0.3
              50257,    // GPT-2
              100277,   // cl100k
              128256,   // Llama 3
              129280,   // DeepSeek-V3
              151936,   // Qwen 2.5
              201088,   // gpt-oss
              256000,   // Gemma
              262144};  // Gemma 3
    case Suite::few_rows: return {32000, 128256, 262144};
  }
  return {};
}

/// The largest power of two with at most one GiB of logits.
std::int64_t rows_of_a_gib(DType dtype, std::int64_t columns) {
  const std::int64_t rows = (std::int64_t{1} << 30) / (columns * size_of(dtype));
  return static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, rows))));
}

std::vector<std::int64_t> rows_of(Suite suite, const ProblemOptions& options, DType dtype,
                                  std::int64_t columns) {
  if (!options.rows.empty()) return rows_of(options);
  switch (suite) {
    case Suite::widths: return {rows_of_a_gib(dtype, columns)};
    case Suite::vocab: return {8192};
    case Suite::few_rows: return {1, 8, 32, 64};
  }
  return {};
}

}  // namespace

std::string_view name(Suite suite) noexcept {
  switch (suite) {
    case Suite::widths: return "widths";
    case Suite::vocab: return "vocab";
    case Suite::few_rows: return "few-rows";
  }
  return "?";
}

Suite parse_suite(std::string_view text) {
  for (const Suite suite : all_suites)
    if (name(suite) == text) return suite;
  throw InvalidArgument("--suite", fmt::format("\"{}\"", text), "widths, vocab or few-rows");
}

std::vector<Problem> problems_of(Suite suite, const ProblemOptions& options) {
  std::vector<Problem> problems;
  for (const auto& [operation, loss_only] : cases_of(suite, options)) {
    ProblemOptions own = options;
    own.loss_only = loss_only;
    for (const DType dtype : dtypes_of(suite, options)) {
      const auto first = static_cast<std::ptrdiff_t>(problems.size());
      for (const std::int64_t columns : columns_of(suite, options))
        for (const std::int64_t rows : rows_of(suite, options, dtype, columns))
          problems.push_back(problem_of(own, operation, dtype, rows, columns));
      if (suite != Suite::widths || !options.rows.empty())
        std::stable_sort(problems.begin() + first, problems.end(),
                         [](const Problem& a, const Problem& b) { return a.rows < b.rows; });
    }
  }
  check(options, problems);
  return problems;
}

}  // namespace ce::cli
