#pragma once
/// \file
/// Options that describe problems.

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

/// Options as the user wrote them; an empty text is an option that was not given.
struct ProblemOptions {
  std::vector<std::string> operations, dtypes, rows, columns;
  std::string reduction, target, loss_dtype, weights, upstream, alignment;
  std::string ignore_index;         ///< only used with Amounts
  generator::CrossEntropyFlags on;  ///< options and outputs of cross entropy
  bool loss_only = false, probabilities = false;
  bool batched = false, strided = false;
  std::optional<bool> in_place;  ///< nothing: the operation's default

  friend bool operator==(const ProblemOptions&, const ProblemOptions&) = default;
};

/// The amounts of cross entropy's options, as in include/ce/operations.hpp. By default all are off.
struct Amounts {
  generator::CrossEntropyAmounts<float> of_options;
  std::int64_t ignore_index = -100;
};

/// No option is required: a command that needs one checks for it.
/// \param amounts  for a command that computes on given, dense data: options with an amount take it, and there are no
/// options for the layout of rows
void add_problem_options(CLI::App& command, ProblemOptions& options, Amounts* amounts = nullptr);

/// \throws InvalidArgument if options describe a problem in addition to a KEY
void require_key_alone(const std::string& key, const ProblemOptions& options);

/// Requires --op, --dtype, --rows and --cols.
/// \param expected  expected value of the first missing one
/// \param instead   what was given in its place
/// \throws InvalidArgument naming the option
void require_lists(const ProblemOptions& options, std::string_view expected,
                   std::string_view instead = "missing");

/// The lists, without repetitions.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] std::vector<generator::Operation> operations_of(const ProblemOptions& options);
[[nodiscard]] std::vector<DType> dtypes_of(const ProblemOptions& options);
[[nodiscard]] std::vector<std::int64_t> rows_of(const ProblemOptions& options);
[[nodiscard]] std::vector<std::int64_t> columns_of(const ProblemOptions& options);

/// One problem, with the options that its operation has. Not checked yet.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] generator::Problem problem_of(const ProblemOptions& options, generator::Operation operation,
                                            DType dtype, std::int64_t rows, std::int64_t columns);

/// Checks that every problem is valid and that each given option applies to one of them: options that would be ignored
/// are mistakes.
/// \throws InvalidArgument naming the option and its value
void check(const ProblemOptions& options, std::span<const generator::Problem> problems);

/// The same error, naming the option of an argument that calls name otherwise.
[[nodiscard]] InvalidArgument of_option(const InvalidArgument& error);

/// Every combination of the lists, the last one varying fastest, checked.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] std::vector<generator::Problem> problems_of(const ProblemOptions& options);

/// The only problem of lists with one element each.
[[nodiscard]] generator::Problem one_problem_of(const ProblemOptions& options);
/// The only problem of a command that computes on given data, which excludes ceilings and operations of ranks. An option
/// whose amount changes nothing is not in the problem.
[[nodiscard]] generator::Problem one_problem_of(const ProblemOptions& options, const Amounts& amounts);

}  // namespace ce::cli
