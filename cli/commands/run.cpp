#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "ce/chooser.hpp"
#include "ce/error.hpp"
#include "ce/policy.hpp"
#include "cli/commands.hpp"
#include "cli/commands/config_choice.hpp"
#include "cli/commands/single_call.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/problem_options.hpp"
#include "cli/say.hpp"
#include "cli/tensor_files.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {
namespace {

constexpr const char* run_examples =
    "\nExamples:\n"
    "  ce-tune run --op softmax --dtype f32 --rows 64 --cols 1000 input=x.bin output=y.bin\n"
    "  ce-tune run --op cross_entropy --dtype bf16 --rows 64 --cols 32000 --smoothing 0.1 \\\n"
    "      logits=x.bin target=t.bin loss=loss.bin grad=dx.bin\n"
    "\n"
    "Tensors have their names in include/ce/operations.hpp. A file holds only the elements of one tensor, "
    "row after row,\nlittle-endian, as NumPy's tofile() writes them. Every input needs a file; outputs "
    "without a file are not written.\n";

struct RunOptions {
  CommonOptions common;
  ProblemOptions problem;
  Amounts amounts;
  std::string config;
  std::string policy;
  std::vector<std::string> tensors;
};

using Files = std::map<std::string, std::string>;

/// Compiled kernels of the database are used; nothing is written if there is no database.
cache::Cache binaries(const CommonOptions& common) {
  try {
    return open_database(common);
  } catch (const NotFound&) {
    if (!common.database.empty()) throw;
    return cache::Cache::in_memory();
  }
}

TensorBytes read_inputs(const std::vector<NamedTensor>& tensors, const Files& files) {
  TensorBytes inputs;
  for (const NamedTensor& tensor : tensors)
    if (!tensor.written) inputs[tensor.name] = read_tensor(tensor, files.at(tensor.name));
  return inputs;
}

Json document_of(const runtime::Device& device, const generator::Problem& problem, const ConfigChoice& chosen,
                 const std::vector<NamedTensor>& tensors, const Files& files) {
  Json list = Json::array();
  for (const NamedTensor& tensor : tensors) {
    const auto file = files.find(tensor.name);
    list.push_back({{"name", tensor.name},
                    {"dtype", name(tensor.dtype)},
                    {"rows", tensor.rows},
                    {"columns", tensor.columns},
                    {"written", tensor.written},
                    {"file", file == files.end() ? Json() : Json(file->second)}});
  }
  return {{"problem", json_of(problem)},
          {"device", {{"device", device.name()}, {"model", json_of(device.model())}}},
          {"environment", device.environment()},
          {"config", generator::to_text(chosen.config)},
          {"origin", chosen.origin},
          {"tensors", list}};
}

/// Runs --config, else the known winner or what a program runs without one. Nothing is tuned.
TensorBytes run_config(const RunOptions& options, runtime::Device& device, const generator::Problem& problem,
                       const TensorBytes& inputs, ConfigChoice& chosen) {
  chosen =
      options.config.empty() ? choose_config(options.common, device, problem) : named_config(options.config);
  cache::Cache cache = binaries(options.common);
  std::optional<tuner::Kernel> kernel;
  return call_once(
      device, problem, options.amounts,
      [&](const generator::Problem& asked) -> const tuner::Kernel& {
        return kernel.emplace(kernel_of(device, cache, asked, chosen.config,
                                        options.config.empty() ? Verify::once : Verify::no));
      },
      inputs);
}

/// Runs what a program with that policy would run.
TensorBytes run_policy(const RunOptions& options, runtime::Device& device, const generator::Problem& problem,
                       const TensorBytes& inputs, ConfigChoice& chosen) {
  const Policy policy = parse_policy("--policy", options.policy);
  // Programs also run without a path for a database.
  std::filesystem::path database = options.common.database;
  if (database.empty()) database = cache::Cache::default_path();
  cache::Cache cache = cache::Cache::open_layered(database);
  Chooser chooser(device, cache, tuner::Settings::for_device(device.model()), policy);
  return call_once(
      device, problem, options.amounts,
      [&](const generator::Problem& asked) -> const tuner::Kernel& {
        const PlanTable::Entry& entry = chooser.choose(asked, nullptr);
        chosen = {entry.kernel.config(),
                  fmt::format("{}: {}", name(entry.choice.origin), entry.choice.reason)};
        return entry.kernel;
      },
      inputs);
}

ExitCode run(const RunOptions& options) {
  const generator::Problem problem = one_problem_of(options.problem, options.amounts);
  const std::vector<NamedTensor> tensors = tensors_of(problem);
  const Files files = files_of(options.tensors, problem, tensors);
  const TensorBytes inputs = read_inputs(tensors, files);
  std::vector<const NamedTensor*> wanted;
  for (const NamedTensor& tensor : tensors)
    if (tensor.written && files.contains(tensor.name)) wanted.push_back(&tensor);
  for (const NamedTensor* tensor : wanted)
    require_output(tensor->name, files.at(tensor->name), options.common.json);
  const std::unique_ptr<runtime::Device> device = open_device(options.common);
  require_compiler(*device);
  ConfigChoice chosen;
  const TensorBytes outputs = options.policy.empty() ? run_config(options, *device, problem, inputs, chosen)
                                                     : run_policy(options, *device, problem, inputs, chosen);
  for (const NamedTensor* tensor : wanted)
    write_output(tensor->name, files.at(tensor->name), [&](std::ostream& file) {
      const std::vector<std::byte>& bytes = outputs.at(tensor->name);
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    });
  if (options.common.json) {
    print(document_of(*device, problem, chosen, tensors, files));
    return ExitCode::success;
  }
  // The standard output may be one of the pipes.
  const bool to_pipe = std::ranges::any_of(wanted, [&](const auto* one) {
    return is_stream(files.at(one->name)) || is_standard_output(files.at(one->name));
  });
  print_text(to_pipe ? stderr : stdout, "{} on {}: {}, {}\n", generator::title(problem), device->name(),
             generator::to_text(chosen.config), chosen.origin);
  return ExitCode::success;
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Run an operation once on data in files");
  command->footer(run_examples);
  command->add_option("TENSORS", options->tensors, "A file for each input, and for each output to write")
      ->required()
      ->type_name("TENSOR=FILE");
  CLI::Option* config =
      command
          ->add_option("--config", options->config,
                       "The config to run, in the form that db show and source --list print")
          ->type_name("CONFIG");
  command
      ->add_option("--policy", options->policy,
                   "Choose the config as a program with this policy does, and tune if the policy does: "
                   "tune,\nlookup, frozen or background (default: the config that the database knows, else "
                   "an untuned\none, without tuning)")
      ->type_name("POLICY")
      ->excludes(config);
  add_problem_options(*command, options->problem, &options->amounts);
  for (const char* required : {"--op", "--dtype", "--rows", "--cols"})
    command->get_option(required)->required();
  add_device_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ce::cli
