#include "cli/problem_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "ce/error.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using generator::Alignment;
using generator::Operation;
using generator::Problem;
using generator::Upstream;

bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

DType parse_dtype_of(std::string_view argument, std::string_view text, bool (*allowed)(DType),
                     std::string_view expected) {
  const std::optional<DType> dtype = parse_dtype(text);
  if (!dtype || !allowed(*dtype)) throw InvalidArgument(argument, in_quotes(text), expected);
  return *dtype;
}

Alignment parse_alignment(std::string_view text) {
  for (const Alignment alignment : generator::alignments)
    if (name(alignment) == text) return alignment;
  throw InvalidArgument("--align", in_quotes(text), "vector, dense, shifted or element");
}

Upstream parse_upstream(std::string_view text) {
  for (const Upstream upstream : {Upstream::scalar, Upstream::rows})
    if (name(upstream) == text) return upstream;
  throw InvalidArgument("--upstream", in_quotes(text), "scalar or rows");
}

Reduction parse_reduction_of(std::string_view text) {
  const std::optional<Reduction> reduction = parse_reduction(text);
  if (!reduction) throw InvalidArgument("--reduction", in_quotes(text), "none, mean or sum");
  return *reduction;
}

std::vector<std::int64_t> counts(std::string_view argument, const std::vector<std::string>& texts,
                                 std::int64_t most) {
  std::vector<std::int64_t> values;
  for (const std::string& text : split_list(argument, texts))
    values.push_back(parse_count(argument, text, 1, most));
  return values;
}

bool is_forward(const Problem& problem) { return problem.operation == Operation::cross_entropy; }
bool is_any_cross_entropy(const Problem& problem) { return generator::is_cross_entropy(problem.operation); }

/// Contiguous rows, in buffers that start on a boundary.
Alignment dense_alignment(const Problem& problem) {
  if (problem.strided) return Alignment::vector;
  const std::int64_t row_bytes = problem.columns * size_of(problem.dtype);
  const generator::RowPlacement rows{.stride_bytes = row_bytes};
  const Alignment alignment = generator::alignment_of(problem.rows, row_bytes, {&rows, 1});
  // There are gaps between batches.
  return alignment == Alignment::dense && problem.batched ? Alignment::shifted : alignment;
}

void apply_cross_entropy(const ProblemOptions& options, Problem& problem) {
  const bool has_losses = generator::has_losses(problem.operation);
  problem.gradient =
      generator::always_has_gradient(problem.operation) || (is_forward(problem) && !options.loss_only);
  problem.reduction = options.reduction.empty() ? Reduction::mean : parse_reduction_of(options.reduction);
  problem.probabilities = options.probabilities;
  for (const auto& option : generator::cross_entropy_options)
    problem.has.*option.field = options.on.*option.field && !(option.of_classes && problem.probabilities);
  if (!options.target.empty() && !problem.probabilities)
    problem.target_dtype = parse_dtype_of("--target", options.target, is_index, "i32 or i64");
  if (!options.weights.empty()) {
    problem.weights = true;
    problem.weight_dtype =
        parse_dtype_of("--weights", options.weights, is_floating, "f32, or the dtype of the logits");
  }
  if (!options.upstream.empty() && problem.gradient) problem.upstream = parse_upstream(options.upstream);
  if (!options.loss_dtype.empty() && (has_losses || problem.upstream != Upstream::one))
    problem.loss_dtype =
        parse_dtype_of("--loss-dtype", options.loss_dtype, is_floating, "f32, or the dtype of the logits");
  for (const auto& input : generator::cross_entropy_inputs)
    problem.has.*input.field = options.on.*input.field && input.is_possible(problem);
  for (const auto& output : generator::cross_entropy_outputs)
    problem.has.*output.field = options.on.*output.field && output.is_possible(problem);
  if (problem.operation != Operation::cross_entropy_shard) return;
  generator::leave_out_results(problem);
  problem.weights = generator::reads_all_weights(problem);
}

/// A given option, and the problems that it applies to.
struct Given {
  std::string_view option;
  std::string_view value;  ///< empty if it was not given
  std::function<bool(const Problem&)> applies;
  std::string expected;
};

/// All options except the lists.
std::vector<Given> given(const ProblemOptions& options) {
  const auto flag = [](bool set) { return std::string_view(set ? "given" : ""); };
  const std::string some = "only with --op cross_entropy or cross_entropy_backward",
                    indices = "only with class indices of --op cross_entropy or cross_entropy_backward",
                    forward = "only with --op cross_entropy";
  const auto has_target = [](const Problem& p) { return is_any_cross_entropy(p) && !p.probabilities; };
  const auto has_loss = [](const Problem& p) {
    return is_forward(p) || (is_any_cross_entropy(p) && p.upstream != Upstream::one);
  };
  const auto has_rows = [](const Problem& p) { return !generator::is_ceiling(p.operation); };
  std::vector<Given> all{
      {"--reduction", options.reduction, is_any_cross_entropy, some},
      {"--target", options.target, has_target, indices},
      {"--loss-dtype", options.loss_dtype, has_loss,
       "only with --op cross_entropy, or cross_entropy_backward with --upstream"},
      {"--loss-only", flag(options.loss_only), is_forward, forward},
      {"--probabilities", flag(options.probabilities), is_any_cross_entropy, some},
      {"--weights", options.weights, is_any_cross_entropy, some},
      {"--ignore-index", options.ignore_index, has_target, indices},
      {"--upstream", options.upstream, [](const Problem& p) { return p.gradient; },
       "only with a gradient of --op cross_entropy or cross_entropy_backward"},
      {"--in-place", flag(options.in_place.value_or(false)), generator::has_output,
       "not with --loss-only, which writes no gradient"},
      {"--batched", flag(options.batched), has_rows, "only with operations on rows"},
      {"--strided", flag(options.strided), has_rows, "only with operations on rows"},
      {"--align", options.alignment, [](const Problem& p) { return !p.strided; }, "not with --strided"},
  };
  for (const auto& option : generator::cross_entropy_options)
    all.push_back({option.flag, flag(options.on.*option.field),
                   option.of_classes ? std::function<bool(const Problem&)>(has_target) : is_any_cross_entropy,
                   option.of_classes ? indices : some});
  for (const auto& input : generator::cross_entropy_inputs)
    all.push_back({input.flag, flag(options.on.*input.field),
                   [&input](const Problem& problem) { return input.is_possible(problem); },
                   "only with " + std::string(input.needed())});
  for (const auto& output : generator::cross_entropy_outputs) {
    std::string needed;
    if (output.needs != nullptr) needed = std::string(generator::option_of(output.needs).flag) + " of ";
    if (output.of_classes) needed = "class indices of ";
    const auto given_lse =
        std::ranges::find(generator::cross_entropy_inputs, &generator::CrossEntropyFlags::given_lse,
                          &generator::CrossEntropyInput::field);
    const std::string without = output.of_all_classes ? fmt::format(" without {}", given_lse->flag) : "";
    all.push_back({output.flag, flag(options.on.*output.field),
                   [&output](const Problem& problem) { return output.is_possible(problem); },
                   fmt::format("only with {}--op cross_entropy{}", needed, without)});
  }
  return all;
}

/// Adds the options for the layout of rows.
void add_layout_options(CLI::App& command, ProblemOptions& options, const char* group) {
  command
      .add_option("--align", options.alignment,
                  "Where rows begin relative to 16-byte boundaries (default: as dense rows do):\nvector: "
                  "each row on a boundary; dense: narrow rows without gaps;\nshifted: anywhere, but output "
                  "like input; element: anywhere")
      ->group(group)
      ->type_name("WORD");
  command.add_flag("--batched", options.batched, "Rows lie in batches, with gaps between batches")
      ->group(group);
  command.add_flag("--strided", options.strided, "The dimension of classes is not the last one")
      ->group(group);
}

/// Adds the options of cross entropy.
void add_loss_options(CLI::App& command, ProblemOptions& options, Amounts* amounts) {
  const std::string group =
      amounts != nullptr ? "Cross entropy"
                         : "Cross entropy (a kernel depends on which options are used, not on their amounts)";
  const auto word = [&](const char* name, std::string& value, const char* type, const char* help) {
    command.add_option(name, value, help)->group(group)->type_name(type);
  };
  const auto flag = [&](const char* name, bool& value, const char* help) {
    command.add_flag(name, value, help)->group(group);
  };
  word("--reduction", options.reduction, "WORD", "none, mean or sum (default: mean)");
  word("--target", options.target, "DTYPE", "Dtype of class indices: i32 or i64 (default: i64)");
  word("--loss-dtype", options.loss_dtype, "DTYPE",
       "Dtype of loss, z-loss and upstream gradient (default: f32)");
  flag("--loss-only", options.loss_only, "No gradient (default: loss and gradient)");
  flag("--probabilities", options.probabilities, "Targets are probabilities, not class indices");
  float* amount = amounts != nullptr ? amounts->of_options.values.data() : nullptr;
  for (const auto& option : generator::cross_entropy_options) {
    const std::string name(option.flag), help(option.help);
    bool& there = options.on.*option.field;
    if (amounts == nullptr) {
      flag(name.c_str(), there, help.c_str());
      continue;
    }
    const auto set = [name, &there, &value = *amount++](const std::string& given) {
      there = true;
      value = parse_amount(name, given);
    };
    command.add_option_function<std::string>(name, set, help)->group(group)->type_name("AMOUNT");
  }
  command
      .add_flag("--weights{f32}", options.weights,
                "Use class weights; --weights=DTYPE for another dtype than f32")
      ->group(group);
  using Index = std::numeric_limits<std::int64_t>;
  const auto set_ignore_index = [&options, amounts](const std::string& given) {
    options.ignore_index = given;
    amounts->ignore_index = parse_count("--ignore-index", given, Index::min(), Index::max());
  };
  if (amounts != nullptr)
    command
        .add_option_function<std::string>("--ignore-index", set_ignore_index,
                                          "Target of rows to leave out (default: -100)")
        ->group(group)
        ->type_name("INDEX");
  word("--upstream", options.upstream, "WORD",
       "The gradient is multiplied by one number (scalar), or by one\nfor each row (rows)");
  for (const auto& input : generator::cross_entropy_inputs)
    flag(std::string(input.flag).c_str(), options.on.*input.field, std::string(input.help).c_str());
  for (const auto& output : generator::cross_entropy_outputs)
    flag(std::string(output.flag).c_str(), options.on.*output.field, std::string(output.help).c_str());
}

}  // namespace

void add_problem_options(CLI::App& command, ProblemOptions& options, Amounts* amounts) {
  constexpr const char* group = "Problems";
  const auto list = [&](const char* name, std::vector<std::string>& values, const std::string& help) {
    command.add_option(name, values, help)->allow_extra_args(false)->group(group)->type_name("LIST");
  };
  const std::string others = amounts == nullptr ? ";\nof ranks: cross_entropy_shard, cross_entropy_merge,\n"
                                                  "cross_entropy_shard_backward, cross_entropy_exchange;\n"
                                                  "copy, read, add: only memory traffic, as a ceiling"
                                                : "";
  list("--op", options.operations,
       "softmax, log_softmax, softmax_backward, log_softmax_backward,\n"
       "cross_entropy, cross_entropy_backward" +
           others);
  list("--dtype", options.dtypes, "f32, f16, bf16");
  list("--rows", options.rows, "Rows: the tokens of a batch");
  list("--cols", options.columns, "Columns: the classes, the vocabulary");
  const auto set_in_place = [&options](bool value) {
    return [&options, value](std::int64_t) { options.in_place = value; };
  };
  CLI::Option* in_place = command.add_flag_function("--in-place", set_in_place(true),
                                                    "Write the output over the input\n"
                                                    "(default: for gradients of cross entropy only)");
  CLI::Option* apart = command.add_flag_function("--no-in-place", set_in_place(false),
                                                 "Write the output to memory of its own");
  in_place->group(group)->excludes(apart);
  apart->group(group);
  if (amounts == nullptr) add_layout_options(command, options, group);
  add_loss_options(command, options, amounts);
}

void require_lists(const ProblemOptions& options, std::string_view expected, std::string_view instead) {
  for (const auto& [name, list] : {std::pair{"--op", &options.operations},
                                   {"--dtype", &options.dtypes},
                                   {"--rows", &options.rows},
                                   {"--cols", &options.columns}})
    if (list->empty()) throw InvalidArgument(name, instead, expected);
}

std::vector<Operation> operations_of(const ProblemOptions& options) {
  std::vector<Operation> operations;
  for (const std::string& text : split_list("--op", options.operations))
    operations.push_back(generator::parse_operation(text, "--op"));
  return operations;
}

std::vector<DType> dtypes_of(const ProblemOptions& options) {
  std::vector<DType> dtypes;
  for (const std::string& text : split_list("--dtype", options.dtypes))
    dtypes.push_back(parse_dtype_of("--dtype", text, is_floating, "f32, f16 or bf16"));
  return dtypes;
}

std::vector<std::int64_t> rows_of(const ProblemOptions& options) {
  return counts("--rows", options.rows, std::numeric_limits<std::int32_t>::max());
}

std::vector<std::int64_t> columns_of(const ProblemOptions& options) {
  return counts("--cols", options.columns, std::int64_t{1} << 30);
}

Problem problem_of(const ProblemOptions& options, Operation operation, DType dtype, std::int64_t rows,
                   std::int64_t columns) {
  Problem problem{.operation = operation, .dtype = dtype, .rows = rows, .columns = columns};
  const bool loss = generator::is_cross_entropy(operation);
  if (loss) apply_cross_entropy(options, problem);
  if (!generator::is_ceiling(operation)) {
    // Normalised as in calls: two rows have equal distances, and a single column has no stride.
    problem.batched = options.batched && rows > 2;
    problem.strided = options.strided && columns > 1;
  }
  problem.in_place = generator::has_output(problem) && options.in_place.value_or(loss);
  problem.alignment = options.alignment.empty() || problem.strided ? dense_alignment(problem)
                                                                   : parse_alignment(options.alignment);
  return generator::canonical(problem);
}

void check(const ProblemOptions& options, std::span<const Problem> problems) {
  for (const Given& option : given(options))
    if (!option.value.empty() && std::none_of(problems.begin(), problems.end(), option.applies))
      throw InvalidArgument(option.option,
                            option.value == "given" ? std::string(option.value) : in_quotes(option.value),
                            option.expected);
  for (const Problem& problem : problems)
    if (const auto* option = generator::option_without_saved_input(problem); option != nullptr)
      throw InvalidArgument(generator::input_of(option->saved).flag, "missing",
                            fmt::format("with {} of {}", option->flag, name(problem.operation)));
  try {
    for (const Problem& problem : problems) generator::validate(problem);
  } catch (const InvalidArgument& error) {
    throw of_option(error);
  }
}

InvalidArgument of_option(const InvalidArgument& error) {
  for (const auto& [argument, option] :
       {std::pair{"rows", "--rows"}, {"loss dtype", "--loss-dtype"}, {"weight dtype", "--weights"}})
    if (error.argument() == argument)
      return {option, in_quotes(error.value()), error.expected(), error.where()};
  for (const auto& option : generator::cross_entropy_options)
    if (error.argument() == option.name)
      return {option.flag, in_quotes(error.value()), error.expected(), error.where()};
  return error;
}

void require_key_alone(const std::string& key, const ProblemOptions& options) {
  if (options != ProblemOptions{})
    throw InvalidArgument("KEY", in_quotes(key),
                          "no problem options together with KEY, which already names a problem");
}

std::vector<Problem> problems_of(const ProblemOptions& options) {
  const auto operations = operations_of(options);
  const auto dtypes = dtypes_of(options);
  const auto rows = rows_of(options), columns = columns_of(options);
  std::vector<Problem> problems;
  for (const Operation operation : operations)
    for (const DType dtype : dtypes)
      for (const std::int64_t row_count : rows)
        for (const std::int64_t column_count : columns)
          problems.push_back(problem_of(options, operation, dtype, row_count, column_count));
  check(options, problems);
  return problems;
}

Problem one_problem_of(const ProblemOptions& options) {
  const std::vector<Problem> problems = problems_of(options);
  if (problems.size() != 1)
    throw InvalidArgument("the problem options", fmt::format("{} problems", problems.size()), "one problem");
  return problems.front();
}

Problem one_problem_of(const ProblemOptions& options, const Amounts& amounts) {
  for (const std::string& text : split_list("--op", options.operations))
    static_cast<void>(generator::parse_operation(text, "--op", generator::Named::of_one_rank));
  // An option that the operation does not have is a mistake, whatever its amount.
  static_cast<void>(one_problem_of(options));
  ProblemOptions effective = options;
  for (std::size_t i = 0; i < amounts.of_options.values.size(); ++i) {
    const auto& option = generator::cross_entropy_options[i];
    effective.on.*option.field = amounts.of_options.values[i] != option.neutral;
  }
  for (const auto& output : generator::cross_entropy_outputs)
    if (options.on.*output.field && output.needs != nullptr && !(effective.on.*output.needs))
      throw InvalidArgument(generator::option_of(output.needs).flag, in_quotes("0"),
                            fmt::format("more than 0 with {}", output.flag));
  return one_problem_of(effective);
}

}  // namespace ce::cli
