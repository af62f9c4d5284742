#pragma once
/// \file
/// Options that say which problems are meant.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ce/error.hpp"
#include "generator/operations/cross_entropy_rules.hpp"
#include "generator/problem.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace ce::cli {

/// As the user wrote them; an empty text is an option that was not given.
struct ProblemOptions {
  std::vector<std::string> operations, dtypes, rows, columns;
  std::string reduction, target, loss_dtype, weights, upstream, alignment;
  std::string ignore_index;         ///< only beside Amounts
  generator::CrossEntropyFlags on;  ///< its options and outputs of cross entropy alone
  bool loss_only = false, probabilities = false;
  bool batched = false, strided = false;
  std::optional<bool> in_place;  ///< nothing: what suits the operation

  friend bool operator==(const ProblemOptions&, const ProblemOptions&) = default;
};

/// How much of each option of cross entropy; as in include/ce/operations.hpp. The defaults change nothing.
struct Amounts {
  generator::CrossEntropyAmounts<float> of_options;
  std::int64_t ignore_index = -100;
};

/// None is required: a command that needs one checks for it.
/// \param amounts  for a command that computes on given data, which is dense: the options that have an amount
/// take it, and there are none that say how rows lie
void add_problem_options(CLI::App& command, ProblemOptions& options, Amounts* amounts = nullptr);

/// \throws InvalidArgument where a problem is described beside the KEY that names one
void require_key_alone(const std::string& key, const ProblemOptions& options);

/// That none of --op, --dtype, --rows and --cols was left out.
/// \param expected  of the first that was
/// \param instead   what is there in its place
/// \throws InvalidArgument naming the option
void require_lists(const ProblemOptions& options, std::string_view expected,
                   std::string_view instead = "missing");

/// The lists, without repetitions.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] std::vector<generator::Operation> operations_of(const ProblemOptions& options);
[[nodiscard]] std::vector<DType> dtypes_of(const ProblemOptions& options);
[[nodiscard]] std::vector<std::int64_t> rows_of(const ProblemOptions& options);
[[nodiscard]] std::vector<std::int64_t> columns_of(const ProblemOptions& options);

/// One problem, with those of the options that its operation has. Not yet checked.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] generator::Problem problem_of(const ProblemOptions& options, generator::Operation operation,
                                            DType dtype, std::int64_t rows, std::int64_t columns);

/// That every problem is one and that each option that was given applies to one of them: options that would
/// be ignored are mistakes.
/// \throws InvalidArgument naming the option and its value
void check(const ProblemOptions& options, std::span<const generator::Problem> problems);

/// The same error, of the option that gave the argument where a call names that otherwise.
[[nodiscard]] InvalidArgument of_option(const InvalidArgument& error);

/// Every combination of the lists, the last one varying fastest, checked.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] std::vector<generator::Problem> problems_of(const ProblemOptions& options);

/// The same for lists that make one problem.
[[nodiscard]] generator::Problem one_problem_of(const ProblemOptions& options);
/// The same of a command that computes on given data, as operations but the ceilings do. An option whose amount changes
/// nothing is not in the problem.
[[nodiscard]] generator::Problem one_problem_of(const ProblemOptions& options, const Amounts& amounts);

}  // namespace ce::cli
