#include "generator/source.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ce/error.hpp"
#include "cli/commands.hpp"
#include "cli/commands/config_choice.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/problem_options.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"
#include "generator/variant.hpp"
#include "tuner/kernel.hpp"

namespace ce::cli {
namespace {

constexpr const char* source_examples =
    "\nExamples:\n"
    "  ce-tune source 3fa2c81b04d7                     the winner of a key of db list\n"
    "  ce-tune source 3fa2 --flat > kernel.cu          as one file for any CUDA compiler\n"
    "  ce-tune source --op softmax --dtype bf16 --cols 4096 --list\n"
    "  ce-tune source --op softmax --dtype bf16 --cols 4096 --config block/warps=16,vec=8,load=cs,store=cs\n"
    "\n"
    "Without KEY, the options define the problem. Without --config, source prints the winner that the "
    "database has for the\ndevice, or else the config that runs untuned; standard error says which. The "
    "default of --rows is 8192.\n";

/// Default of --rows: rows are not in the source, and only decide which winner is used.
constexpr const char* usual_rows = "8192";

struct SourceOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::string key, config;
  bool flat = false, list = false;
};

struct Choice {
  generator::Problem problem;
  ConfigChoice chosen;
};

/// The one problem in the options.
generator::Problem asked_problem(const SourceOptions& options) {
  ProblemOptions one = options.problem;
  if (one.rows.empty()) one.rows = {usual_rows};
  require_lists(one, "a value, or a KEY of db list");
  return one_problem_of(one);
}

Known known_of_key(const SourceOptions& options) {
  require_key_alone(options.key, options.problem);
  const cache::Cache user = open_layered_database(options.common);
  const FoundKey found = find_key(databases_of(user, database_path(options.common).string()), options.key);
  return {*found.database.cache, found.key};
}

Choice choose_for_key(const SourceOptions& options) {
  const Known known = known_of_key(options);
  const generator::Problem& problem = known.problem_or_throw();
  if (!options.config.empty()) return {problem, named_config(options.config)};
  if (!known.decision)
    throw NotFound(
        fmt::format("{} ({}) has no winner; name a config with --config", known.key.id(), known.title()));
  return {problem, {known.decision->winner.config, "the winner"}};
}

Choice choose_for_problem(const SourceOptions& options) {
  const generator::Problem problem = asked_problem(options);
  if (!options.config.empty()) return {problem, named_config(options.config)};
  const std::unique_ptr<runtime::Device> device = open_device(options.common);
  return {problem, choose_config(options.common, *device, problem)};
}

ExitCode list_configs(const SourceOptions& options) {
  const generator::Problem problem =
      options.key.empty() ? asked_problem(options) : known_of_key(options).problem_or_throw();
  const std::unique_ptr<runtime::Device> device = open_device(options.common);
  std::vector<std::string> configs;
  for (const generator::Config& config : generator::space(problem, tuner::limits_of(device->model())))
    configs.push_back(generator::to_text(config));
  if (options.common.json) {
    print({{"problem", json_of(problem)}, {"device", device->model().name}, {"configs", configs}});
  } else {
    for (const std::string& config : configs) print_text("{}\n", config);
  }
  return ExitCode::success;
}

Json document_of(const Choice& choice, const generator::Program& program, bool flat) {
  Json sources = Json::array();
  for (const generator::Source& source : program.sources)
    sources.push_back({{"name", source.name},
                       {"text", flat ? source.flat() : source.text},
                       {"headers", flat ? Json::object() : Json(source.headers)}});
  Json steps = Json::array();
  for (const generator::Step& step : program.steps)
    steps.push_back({{"entry", step.entry},
                     {"source", step.source},
                     {"threads", step.threads},
                     {"shared_bytes", step.shared_bytes},
                     {"blocks", step.blocks(program.config, choice.problem)}});
  return {{"problem", json_of(choice.problem)},
          {"config", generator::to_text(choice.chosen.config)},
          {"origin", choice.chosen.origin},
          {"steps", steps},
          {"sources", sources}};
}

/// Prints notes beside the source, to standard error: its config, and what it needs.
std::string remarks_on(const Choice& choice, const generator::Program& program, bool flat) {
  std::string text = fmt::format("ce-tune: {}: {}, {}\n", generator::title(choice.problem),
                                 generator::to_text(choice.chosen.config), choice.chosen.origin);
  if (!flat) {
    std::string headers;
    for (const auto& [name, header] : program.sources.front().headers)
      headers += (headers.empty() ? "" : ", ") + name;
    text += fmt::format("ce-tune: it includes {}; --flat puts everything into one file\n", headers);
  }
  if (program.sources.size() > 1)
    text +=
        fmt::format("ce-tune: the program also has {}, the same for every config; --json prints them, too\n",
                    counted(static_cast<std::int64_t>(program.sources.size()) - 1, "other source"));
  return text;
}

/// Without --list, a device is only used to find the config that a program runs there.
void require_device_to_matter(const SourceOptions& options) {
  if (options.common.device.empty() || (options.key.empty() && options.config.empty())) return;
  throw InvalidArgument(
      "--device", in_quotes(options.common.device),
      fmt::format("no --device together with {}, because the source is the same for every device",
                  options.key.empty() ? "--config" : "KEY without --list"));
}

/// The key and the winner of a problem need a database.
void require_database_to_matter(const SourceOptions& options) {
  if (options.common.database.empty() || !options.key.empty()) return;
  if (!options.list && options.config.empty()) return;
  throw InvalidArgument("--db", in_quotes(options.common.database),
                        fmt::format("no --db together with {} without KEY, because no database is read",
                                    options.list ? "--list" : "--config"));
}

ExitCode show_source(const SourceOptions& options) {
  if (!options.list) require_device_to_matter(options);
  require_database_to_matter(options);
  if (options.list) return list_configs(options);
  const Choice choice = options.key.empty() ? choose_for_problem(options) : choose_for_key(options);
  const generator::Program program = generator::generate(choice.problem, choice.chosen.config);
  if (options.common.json) {
    print(document_of(choice, program, options.flat));
    return ExitCode::success;
  }
  const generator::Source& source = program.sources.front();
  fmt::print("{}", options.flat ? source.flat() : source.text);
  say("{}", remarks_on(choice, program, options.flat));
  return ExitCode::success;
}

}  // namespace

void add_source(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SourceOptions>();
  CLI::App* command = app.add_subcommand("source", "Print the generated CUDA of a winner or of any config");
  command->footer(source_examples);
  command->add_option("KEY", options->key, "A key of db list; its first 4 digits or more");
  CLI::Option* config =
      command
          ->add_option("--config", options->config, "The config, in the form that db show and --list print")
          ->type_name("CONFIG");
  CLI::Option* flat =
      command->add_flag("--flat", options->flat, "Print one file, with the text of every include");
  command->add_flag("--list", options->list, "Print the configs that fit the problem and the device instead")
      ->excludes(config)
      ->excludes(flat);
  add_problem_options(*command, options->problem);
  add_device_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return show_source(*options); }; });
}

}  // namespace ce::cli
