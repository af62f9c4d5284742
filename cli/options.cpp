#include "cli/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "ce/base/error.hpp"
#include "ce/base/log.hpp"
#include "ce/device_name.hpp"
#include "cli/units.hpp"
#include "runtime/cuda/device.hpp"

namespace ce::cli {
namespace {

using generator::Alignment;
using generator::Operation;
using generator::Problem;

constexpr std::size_t shortest_prefix = 4;
constexpr std::size_t most_candidates = 8;

std::string in_quotes(std::string_view text) { return fmt::format("\"{}\"", text); }

DType parse_dtype_of(std::string_view argument, std::string_view text, std::string_view expected) {
  const std::optional<DType> dtype = parse_dtype(text);
  if (!dtype) throw InvalidArgument(argument, in_quotes(text), expected);
  return *dtype;
}

Alignment parse_alignment(std::string_view text) {
  for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element})
    if (name(alignment) == text) return alignment;
  throw InvalidArgument("--align", in_quotes(text), "vector, shifted or element");
}

std::vector<std::int64_t> counts(std::string_view argument, const std::vector<std::string>& texts,
                                 std::int64_t most) {
  std::vector<std::int64_t> values;
  for (const std::string& text : split_list(argument, texts))
    values.push_back(parse_count(argument, text, 1, most));
  return values;
}

/// Rows that follow each other without a gap, in buffers that start on a boundary.
Alignment dense_alignment(const Problem& problem) {
  const generator::RowPlacement dense{.address = 0, .stride_bytes = problem.columns * size_of(problem.dtype)};
  return generator::alignment_of(problem.rows, dense, dense);
}

void apply_options(const ProblemOptions& options, Problem& problem) {
  if (problem.operation == Operation::cross_entropy) {
    problem.reduction = Reduction::mean;
    problem.gradient = !options.loss_only;
    if (!options.reduction.empty()) {
      const auto reduction = parse_reduction(options.reduction);
      if (!reduction) throw InvalidArgument("--reduction", in_quotes(options.reduction), "none, mean or sum");
      problem.reduction = *reduction;
    }
    if (!options.target.empty())
      problem.target_dtype = parse_dtype_of("--target", options.target, "i32 or i64");
    if (!options.loss_dtype.empty())
      problem.loss_dtype =
          parse_dtype_of("--loss-dtype", options.loss_dtype, "f32, or the dtype of the logits");
  }
  const bool usually_in_place = problem.operation == Operation::cross_entropy;
  problem.in_place = generator::has_output(problem) && options.in_place.value_or(usually_in_place);
  problem.alignment =
      options.alignment.empty() ? dense_alignment(problem) : parse_alignment(options.alignment);
}

/// Options that would be ignored are mistakes.
void check_applicable(const ProblemOptions& options, const std::vector<Operation>& operations) {
  const bool cross_entropy =
      std::find(operations.begin(), operations.end(), Operation::cross_entropy) != operations.end();
  const auto needs_cross_entropy = [&](std::string_view option, std::string_view value) {
    if (!cross_entropy && !value.empty())
      throw InvalidArgument(option, in_quotes(value), "only with --op cross_entropy");
  };
  needs_cross_entropy("--reduction", options.reduction);
  needs_cross_entropy("--target", options.target);
  needs_cross_entropy("--loss-dtype", options.loss_dtype);
  needs_cross_entropy("--loss-only", options.loss_only ? "given" : "");
  if (options.in_place.value_or(false) && options.loss_only && operations.size() == 1)
    throw InvalidArgument("--in-place", "given", "not with --loss-only, which writes no gradient");
}

}  // namespace

void add_database_option(CLI::App& command, CommonOptions& common) {
  command
      .add_option("--db", common.database,
                  "The database (default: CE_DB, else $XDG_DATA_HOME/ce/ce.db,\n"
                  "else ~/.local/share/ce/ce.db)")
      ->type_name("FILE");
}

void add_device_option(CLI::App& command, CommonOptions& common, const std::string& help) {
  constexpr const char* usual = "cuda, cuda:N or host\n(default: CE_DEVICE, else the first GPU, else host)";
  command.add_option("--device", common.device, help.empty() ? usual : help)->type_name("DEVICE");
}

void add_json_option(CLI::App& command, CommonOptions& common) {
  command.add_flag("--json", common.json, "Print one JSON document instead of text");
}

std::unique_ptr<runtime::Device> open_device(const CommonOptions& common) {
  const bool by_default = common.device.empty();
  const char* environment = std::getenv("CE_DEVICE");
  const bool by_environment = by_default && environment != nullptr && *environment != '\0';
  const std::string name = by_default ? default_device_name() : common.device;
  if (by_default && !by_environment && name == "host")
    log(LogLevel::info,
        "no GPU here: using the host device, whose times say nothing about one (ce-tune doctor)");
  try {
    return ce::open_device(name);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(by_environment ? "CE_DEVICE" : "--device", in_quotes(name), error.expected());
  } catch (const Unsupported& error) {
    if (runtime::cuda_device_count() > 0) throw;
    throw DeviceError("opening " + name, 0, error.what());
  }
}

void require_compiler(const runtime::Device& device) {
  try {
    static_cast<void>(device.compiler());
  } catch (const Unsupported& error) {
    throw Error(ErrorKind::compile, fmt::format("{} has no compiler: {}", device.name(), error.what()));
  }
}

std::filesystem::path database_path(const CommonOptions& common) {
  if (!common.database.empty()) return common.database;
  std::filesystem::path path = cache::Cache::default_path();
  if (path.empty())
    throw NotFound("nothing says where the database is; expected --db, CE_DB, XDG_DATA_HOME or HOME");
  return path;
}

cache::Cache open_database(const CommonOptions& common) {
  return cache::Cache::open_existing(database_path(common));
}

cache::Key find_key(const cache::Cache& cache, const std::string& prefix) {
  const bool hexadecimal = prefix.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (prefix.size() < shortest_prefix || !hexadecimal)
    throw InvalidArgument(
        "KEY", in_quotes(prefix),
        fmt::format("at least {} of the hexadecimal digits that db list shows", shortest_prefix));
  const std::vector<cache::Key> found = cache.find(prefix);
  if (found.size() == 1) return found.front();

  std::vector<std::string> candidates;
  if (found.empty())
    for (const cache::KeySummary& summary : cache.keys()) candidates.push_back(summary.key.id());
  else
    for (const cache::Key& key : found) candidates.push_back(key.id());
  const std::size_t left_out = candidates.size() > most_candidates ? candidates.size() - most_candidates : 0;
  candidates.resize(candidates.size() - left_out);
  const std::string list = fmt::format("{}{}", fmt::join(candidates, ", "),
                                       left_out > 0 ? fmt::format(" and {} more", left_out) : "");
  if (!found.empty())
    throw InvalidArgument("KEY", in_quotes(prefix), fmt::format("more digits, to tell {} apart", list));
  throw NotFound(candidates.empty() ? fmt::format("no key begins with {}: the database has none", prefix)
                                    : fmt::format("no key begins with {}; there are {}", prefix, list));
}

void add_problem_options(CLI::App& command, ProblemOptions& options) {
  constexpr const char* group = "Problems";
  const auto list = [&command](const char* name, std::vector<std::string>& values, const char* help) {
    command.add_option(name, values, help)->allow_extra_args(false)->group(group)->type_name("LIST");
  };
  list("--op", options.operations, "softmax, cross_entropy");
  list("--dtype", options.dtypes, "f32, f16, bf16");
  list("--rows", options.rows, "Rows: the tokens of a batch");
  list("--cols", options.columns, "Columns: the classes, the vocabulary");
  const auto word = [&command](const char* name, std::string& value, const char* type, const char* help) {
    command.add_option(name, value, help)->group(group)->type_name(type);
  };
  word("--reduction", options.reduction, "WORD", "Cross entropy: none, mean or sum (default: mean)");
  word("--target", options.target, "DTYPE", "Cross entropy: of the targets, i32 or i64 (default: i64)");
  word("--loss-dtype", options.loss_dtype, "DTYPE", "Cross entropy: of the loss (default: f32)");
  command
      .add_flag("--loss-only", options.loss_only, "Cross entropy: no gradient (default: loss and gradient)")
      ->group(group);
  const auto set_in_place = [&options](bool value) {
    return [&options, value](std::int64_t) { options.in_place = value; };
  };
  CLI::Option* in_place = command.add_flag_function("--in-place", set_in_place(true),
                                                    "Write the output over the input\n"
                                                    "(default: for the gradient of cross entropy only)");
  CLI::Option* apart =
      command.add_flag_function("--no-in-place", set_in_place(false), "Write the output beside the input");
  in_place->group(group)->excludes(apart);
  apart->group(group);
  word("--align", options.alignment, "WORD",
       "How rows lie to 16-byte boundaries (default: that of dense rows):\n"
       "vector: each on one; shifted: anywhere, but output like input;\nelement: anywhere");
}

std::vector<Problem> problems_of(const ProblemOptions& options) {
  std::vector<Operation> operations;
  for (const std::string& text : split_list("--op", options.operations))
    operations.push_back(generator::parse_operation(text, "--op"));
  check_applicable(options, operations);
  std::vector<DType> dtypes;
  for (const std::string& text : split_list("--dtype", options.dtypes))
    dtypes.push_back(parse_dtype_of("--dtype", text, "f32, f16 or bf16"));
  const auto rows = counts("--rows", options.rows, std::numeric_limits<std::int32_t>::max());
  const auto columns = counts("--cols", options.columns, std::int64_t{1} << 30);

  std::vector<Problem> problems;
  for (const Operation operation : operations)
    for (const DType dtype : dtypes)
      for (const std::int64_t row_count : rows)
        for (const std::int64_t column_count : columns) {
          Problem problem{.operation = operation, .dtype = dtype, .rows = row_count, .columns = column_count};
          apply_options(options, problem);
          generator::validate(problem);
          problems.push_back(problem);
        }
  return problems;
}

}  // namespace ce::cli
