#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "cli/analysis/retime.hpp"
#include "cli/commands.hpp"
#include "cli/commands/config_choice.hpp"
#include "cli/commands/tuning_run.hpp"
#include "cli/interruption.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/problem_options.hpp"
#include "cli/progress.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "generator/source.hpp"
#include "tuner/key.hpp"
#include "tuner/strategy.hpp"

namespace ce::cli {
namespace {

constexpr const char* time_examples =
    "\nExamples:\n"
    "  ce-tune time 3fa2c81b04d7                       the best five of a key of db list\n"
    "  ce-tune time --op softmax --dtype bf16 --rows 8192 --cols 4096 \\\n"
    "    --config block/warps=2,vec=8,load=ca,store=cg --config block/warps=4,vec=8,load=ca,store=cg\n"
    "\n"
    "The kernels take turns of a few runs each, so that drift of the machine affects all alike. The database "
    "keeps only\nthe compiled kernels.\n";

constexpr std::size_t usual_configs = 5;

struct TimeOptions {
  CommonOptions common;
  ProblemOptions problem;
  TuningOptions tuning;
  std::string key, samples;
  std::vector<std::string> configs;
};

/// The problem and config to time.
struct Field {
  generator::Problem problem;
  std::vector<generator::Config> configs;
};

std::vector<generator::Config> named_configs(const TimeOptions& options) {
  std::vector<generator::Config> configs;
  for (const std::string& text : options.configs) configs.push_back(parse_config_option(text));
  return configs;
}

Field field_of(const TimeOptions& options) {
  Field field;
  if (!options.key.empty()) {
    require_key_alone(options.key, options.problem);
    const cache::Cache cache = open_database(options.common);
    const Known known(cache, find_key(cache, options.key));
    field.problem = known.problem_or_throw();
    field.configs = named_configs(options);
    if (field.configs.empty() && known.decision)
      for (const tuner::Candidate& candidate : known.decision->ranking)
        if (field.configs.size() < usual_configs) field.configs.push_back(candidate.config);
    if (field.configs.empty())
      throw NotFound(
          fmt::format("{} ({}) has no winner; name configs with --config", known.key.id(), known.title()));
    return field;
  }
  require_lists(options.problem, "one value, or a KEY of db list");
  field.problem = one_problem_of(options.problem);
  field.configs = named_configs(options);
  if (field.configs.empty()) throw InvalidArgument("--config", "missing", "one or more configs");
  return field;
}

std::string text_of(const std::vector<cache::Measurement>& timings, double best_us) {
  using enum Table::Align;
  Table table({{.title = "CONFIG", .least = 24},
               Table::times("TIME"),
               Table::throughputs(),
               {"SPREAD", right},
               {"BEHIND", right}});
  for (const cache::Measurement& timing : timings)
    table.add({timing.config, timing.median_us, throughput_of(timing), percent_text(timing.spread),
               percent_text(timing.median_us / best_us - 1)});
  return table.text();
}

Json entry_of(const cache::Measurement& timing, double best_us) {
  return {{"config", timing.config},
          {"median_us", timing.median_us},
          {"spread", timing.spread},
          {"gbs", throughput_of(timing)},
          {"behind", timing.median_us / best_us - 1},
          {"samples_us", timing.samples_us}};
}

ExitCode time(const TimeOptions& options) {
  const Field field = field_of(options);
  const int samples = options.samples.empty()
                          ? 30
                          : static_cast<int>(parse_count("--samples", options.samples, 1, most_samples));
  const std::unique_ptr<runtime::Device> device = open_device(options.common);
  if (!options.configs.empty())
    for (const generator::Config& config : field.configs)
      require_serves(config, field.problem, device->model());
  const tuner::Settings settings = settings_of(options.tuning, device->model());
  require_compiler(*device);
  cache::Cache cache = cache::Cache::open(database_path(options.common));
  require_record(cache, options.tuning, "no compiled kernel");
  TuningRun run = begin_run(*device);

  ProgressDisplay display(Screen::standard_error());
  const LogThroughDisplay logging(display);
  const Interruption interruption([&display] { display.note("ce-tune: stopping"); });
  const tuner::Hooks hooks{
      .progress = [&display](const tuner::Progress& progress) { display.update(progress); },
      .stop = interruption.token()};
  display.begin(1, 1, generator::title(field.problem));
  tuner::Beside beside = tuner::Retimer(*device, cache, settings)
                             .time_beside(tuner::key_of(field.problem, device->model()), field.problem,
                                          field.configs, samples, tuner::samples_a_turn, hooks);
  std::vector<cache::Measurement>& timings = beside.measurements;
  display.finish(generator::title(field.problem));
  std::sort(timings.begin(), timings.end(),
            [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  const double best_us = timings.front().median_us;
  end_run(run, cache);

  if (options.common.json) {
    Json document = json_of(run);
    document["problem"] = json_of(field.problem);
    for (const cache::Measurement& timing : timings) document["timings"].push_back(entry_of(timing, best_us));
    document["reference"] = {{"kernel", beside.reference}, {"samples_us", beside.references_us}};
    print(document);
  } else {
    print_text("{}", text_of(timings, best_us));
  }
  return ExitCode::success;
}

}  // namespace

void add_time(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TimeOptions>();
  CLI::App* command = app.add_subcommand("time", "Time configs of one problem in turns");
  command->footer(time_examples);
  command->add_option("KEY", options->key, "A key of db list; its first 4 digits or more");
  command
      ->add_option(
          "--config", options->configs,
          "A config, in the form that db show prints; may be repeated (default: the best five of KEY)")
      ->type_name("CONFIG")
      ->allow_extra_args(false);
  command->add_option("--samples", options->samples, "Samples of each config (default: 30)")->type_name("N");
  add_problem_options(*command, options->problem);
  add_timing_options(*command, options->tuning);
  add_device_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, &chosen] { chosen = [options] { return time(*options); }; });
}

}  // namespace ce::cli
