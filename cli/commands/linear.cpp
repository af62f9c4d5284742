// Tunes the loss of a linear layer ahead of the first call.
#include "ce/linear.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "ce/context.hpp"
#include "ce/error.hpp"
#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "tuner/verify/elements.hpp"

namespace ce::cli {
namespace {

constexpr const char* linear_examples =
    "\nExamples:\n"
    "  ce-tune linear --tokens 8192 --hidden 4096 --cols 128256\n"
    "  ce-tune linear --tokens 8192 --hidden 4096 --cols 128256 --loss-only --z-loss 1e-4\n"
    "  ce-tune linear --tokens 16384 --hidden 2048 --cols 151936 --memory-budget 512MiB\n"
    "\n"
    "linear makes one call on random numbers, as a program would. This tunes products, kernels and chunks, "
    "and the database\nkeeps the results. Other options need other kernels, and so another run. A run needs "
    "the memory of the layer, its\ngradients and the budget.\n";

struct LinearOptions {
  CommonOptions common;
  std::string tokens, hidden, columns, dtype = "bf16", loss_dtype = "f32", memory_budget, valid_tokens;
  bool loss_only = false;
  CrossEntropy operation;
};

/// Device memory filled with normally distributed numbers, repeated.
Memory random_memory(Context& context, DType dtype, std::int64_t elements, double deviation) {
  constexpr std::int64_t most = 1 << 20;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(static_cast<std::size_t>(std::min(elements, most)));
  for (double& value : values) value = normal(random);
  std::vector<std::byte> all(static_cast<std::size_t>(elements * size_of(dtype)));
  const std::size_t bytes = values.size() * static_cast<std::size_t>(size_of(dtype));
  generator::write_elements(dtype, all.data(), 0, 1, values);
  for (std::size_t at = bytes; at < all.size(); at += bytes)
    std::memcpy(all.data() + at, all.data(), std::min(bytes, all.size() - at));
  Memory memory = context.allocate(all.size());
  memory.upload(all.data());
  return memory;
}

/// \param valid  number of tokens that count, spread evenly
Memory random_targets(Context& context, std::int64_t tokens, std::int64_t valid, std::int64_t classes,
                      std::int64_t ignored) {
  std::mt19937_64 random(2);
  std::vector<std::int64_t> targets(static_cast<std::size_t>(tokens));
  std::uniform_int_distribution<std::int64_t> any(0, classes - 1);
  std::int64_t token = 0;
  for (std::int64_t& target : targets) {
    const bool counts = (token + 1) * valid / tokens > token * valid / tokens;
    target = counts ? any(random) : ignored;
    ++token;
  }
  Memory memory = context.allocate(targets.size() * sizeof(std::int64_t));
  memory.upload(targets.data());
  return memory;
}

ExitCode linear(const LinearOptions& options) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  const std::int64_t tokens = parse_count("--tokens", options.tokens, 1, most),
                     hidden = parse_count("--hidden", options.hidden, 1, most),
                     classes = parse_count("--cols", options.columns, 1, most);
  const auto dtype = parse_dtype(options.dtype);
  if (!dtype || !is_floating(*dtype))
    throw InvalidArgument("--dtype", in_quotes(options.dtype), "f32, f16 or bf16");
  const auto loss_dtype = parse_dtype(options.loss_dtype);
  if (loss_dtype != DType::f32 && loss_dtype != dtype)
    throw InvalidArgument("--loss-dtype", in_quotes(options.loss_dtype),
                          fmt::format("f32 or the layer's, {}", name(*dtype)));
  LinearCrossEntropy operation{.cross_entropy = options.operation};
  if (!options.memory_budget.empty())
    operation.memory_budget = parse_size("--memory-budget", options.memory_budget);
  if (!options.valid_tokens.empty())
    operation.valid_tokens = parse_count("--valid-tokens", options.valid_tokens, 1, tokens);
  const std::string database = database_path(options.common).string();
  if (const cache::Status status = cache::Cache::open(database).status(); !status.persistent)
    throw DatabaseError(fmt::format("the measurements would not be kept: {}", status.problem));
  Context context(
      {.device = options.common.device, .database = database, .policy = Policy::tune, .tuning_seconds = 0});
  const Memory x = random_memory(context, *dtype, tokens * hidden, 1),
               w = random_memory(context, *dtype, classes * hidden, 1 / std::sqrt(double(hidden))),
               t = random_targets(context, tokens, operation.valid_tokens.value_or(tokens), classes,
                                  options.operation.ignore_index),
               loss = context.allocate(sizeof(float));
  LinearCrossEntropy::Tensors tensors{
      .hidden = {.data = x.data(), .dtype = *dtype, .rows = tokens, .columns = hidden},
      .weight = {.data = w.data(), .dtype = *dtype, .rows = classes, .columns = hidden},
      .target = {t.data(), DType::i64, tokens},
      .loss = {loss.data(), *loss_dtype, 1}};
  std::vector<Memory> gradients;
  if (!options.loss_only)
    for (auto& [gradient, of] : {std::pair{&tensors.hidden_grad, &tensors.hidden},
                                 std::pair{&tensors.weight_grad, &tensors.weight}}) {
      const auto bytes = static_cast<std::size_t>(of->rows * of->columns * size_of(*dtype));
      *gradient = {.data = gradients.emplace_back(context.allocate(bytes)).data(),
                   .dtype = *dtype,
                   .rows = of->rows,
                   .columns = of->columns};
    }
  context.run(operation, tensors);
  context.check();
  const LinearSchedule schedule = context.schedule(operation, tensors);
  std::vector<std::byte> made(loss.bytes());
  loss.download(made.data());
  const double value = generator::read_element(*loss_dtype, made.data(), 0);
  if (options.common.json)
    print({{"database", database},
           {"device", context.device_name()},
           {"tokens", tokens},
           {"hidden", hidden},
           {"classes", classes},
           {"dtype", name(*dtype)},
           {"loss_only", options.loss_only},
           {"loss", std::isfinite(value) ? Json(value) : Json()},
           {"chunk_tokens", schedule.chunk_tokens},
           {"chunks", schedule.chunks},
           {"workspace_bytes", schedule.workspace_bytes},
           {"exponentials", schedule.exponentials}});
  else
    print_text("{} x {} x {} {}: {} of {} tokens, {} beyond its tensors{}\n", tokens, hidden, classes,
               name(*dtype), counted(schedule.chunks, "chunk"), schedule.chunk_tokens,
               size_text(schedule.workspace_bytes),
               schedule.exponentials ? ", gradients of exponentials" : "");
  return ExitCode::success;
}

}  // namespace

void add_linear(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<LinearOptions>();
  CLI::App* command = app.add_subcommand("linear", "Tune the loss of a linear layer");
  command->footer(linear_examples);
  command->add_option("--tokens", options->tokens, "Tokens of a batch")->required()->type_name("N");
  command->add_option("--hidden", options->hidden, "The hidden size")->required()->type_name("N");
  command->add_option("--cols", options->columns, "Classes, the vocabulary")->required()->type_name("N");
  command->add_option("--dtype", options->dtype, "f32, f16 or bf16 (default: bf16)")->type_name("DTYPE");
  command
      ->add_option("--loss-dtype", options->loss_dtype,
                   "f32 or the dtype of --dtype; Python without autocast uses the latter (default: f32)")
      ->type_name("DTYPE");
  command->add_flag("--loss-only", options->loss_only, "No gradient (default: loss and gradients)");
  command
      ->add_option("--memory-budget", options->memory_budget,
                   "Memory in addition to the tensors (default: a tenth of the free memory)")
      ->type_name("SIZE");
  command
      ->add_option("--valid-tokens", options->valid_tokens,
                   "Number of tokens that count, to leave the other tokens out of all products")
      ->type_name("N");
  for (const auto& option : generator::cross_entropy_options) {
    const std::string name(option.flag);
    float& amount = options->operation.*option.of_forward;
    command
        ->add_option_function<std::string>(
            name, [name, &amount](const std::string& given) { amount = parse_amount(name, given); },
            std::string(option.help))
        ->type_name("AMOUNT");
  }
  add_device_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return linear(*options); }; });
}

}  // namespace ce::cli
