#pragma once
/// \file
/// The shapes that `bench` times.

#include <cstdint>
#include <string_view>
#include <vector>

#include "cli/problem_options.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

enum class Suite : std::uint8_t {
  widths,    ///< columns from 128 to 262144, with as many rows as half a GiB to one GiB of logits hold
  vocab,     ///< vocabularies of language models, 8192 rows
  few_rows,  ///< 1 to 64 rows, as in decoding
};

[[nodiscard]] std::string_view name(Suite suite) noexcept;
/// \throws InvalidArgument naming --suite
[[nodiscard]] Suite parse_suite(std::string_view text);

/// The suite's problems by operation and dtype, in the order of rows and then columns. Operations, dtypes, rows and
/// columns in the options replace those of the suite.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] std::vector<generator::Problem> problems_of(Suite suite, const ProblemOptions& options);

}  // namespace ce::cli
