#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ce/base/error.hpp"
#include "cli/commands.hpp"
#include "cli/interruption.hpp"
#include "cli/options.hpp"
#include "cli/problem_options.hpp"
#include "cli/progress.hpp"
#include "cli/sweep_result.hpp"
#include "cli/tuning_run.hpp"
#include "cli/units.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {
namespace {

constexpr const char* examples =
    "\nExamples:\n"
    "  ce-tune sweep --op softmax --dtype bf16 --rows 8192 --cols 4096,32000,50257,128256\n"
    "  ce-tune sweep --op cross_entropy --dtype f32,bf16 --rows 4096,8192 --cols 128256 --reduction mean\n"
    "  ce-tune sweep --op cross_entropy --dtype f32 --rows 64 --cols 1000 --device host --db my.db --json\n"
    "\n"
    "Every combination is tuned. What the database knows is not measured again, so the same command resumes "
    "a sweep\n"
    "that was interrupted. Ctrl-C stops after the config that is being measured, a second one at once; both "
    "leave the\n"
    "database whole.\n";

struct SweepOptions {
  CommonOptions common;
  ProblemOptions problems;
  TuningOptions tuning;
  std::string samples;
};

tuner::Settings settings_of(const SweepOptions& options, const runtime::Model& model) {
  tuner::Settings settings = settings_of(options.tuning, model);
  if (!options.samples.empty()) {
    // The earlier rounds keep their usual share of the samples.
    const int samples = static_cast<int>(parse_count("--samples", options.samples, 1, most_samples));
    tuner::Breadth& search = settings.search;
    for (int* part : {&search.screening_samples, &search.semifinal_samples})
      *part = std::max(1, samples * *part / search.final_samples);
    search.final_samples = samples;
  }
  return settings;
}

/// Tunes one problem. An error goes into the result.
/// \returns whether to go on with the next one
bool tune_one(tuner::Tuner& tuner, const tuner::Hooks& hooks, SweptProblem& swept) {
  try {
    swept.report = tuner.tune(swept.problem, hooks);
    swept.report->ceiling_gbs = tuner.ceiling(swept.problem, hooks);
    return true;
  } catch (const Error& error) {
    swept.failure = describe(error);
    return concerns_one_problem(error.kind());
  }
}

void tune_all(runtime::Device& device, cache::Cache& cache, const tuner::Settings& settings,
              const std::vector<generator::Problem>& problems, SweepResult& result) {
  ProgressDisplay display(Screen::standard_error());
  const LogThroughDisplay logging(display);
  const Interruption interruption(
      [&display] { display.note("ce-tune: stopping after this config; interrupt again to stop at once"); });
  const tuner::Hooks hooks{
      .progress = [&display](const tuner::Progress& progress) { display.update(progress); },
      .stop = interruption.token()};
  tuner::Tuner tuner(device, cache, settings);
  for (const generator::Problem& problem : problems) {
    SweptProblem& swept = result.problems.emplace_back(SweptProblem{problem, tuner.key(problem)});
    display.begin(result.problems.size(), problems.size(), generator::title(problem));
    const bool go_on = tune_one(tuner, hooks, swept);
    display.finish(finished_line(swept));
    if (swept.failure && (!result.run.failure || !go_on)) result.run.failure = swept.failure;
    if (!go_on) return;
  }
}

ExitCode sweep(const SweepOptions& options) {
  const std::vector<generator::Problem> problems = problems_of(options.problems);
  const std::filesystem::path path = database_path(options.common);
  const std::unique_ptr<runtime::Device> device = open_device(options.common);
  const tuner::Settings settings = settings_of(options, device->model());
  require_compiler(*device);
  cache::Cache cache = cache::Cache::open(path);

  SweepResult result{.asked = problems.size(), .run = begin_run(*device)};
  tune_all(*device, cache, settings, problems, result);
  end_run(result.run, cache);
  if (options.common.json)
    print(json_of(result));
  else
    fmt::print("{}", text_of(result));
  return verdict(result.run);
}

}  // namespace

void add_sweep(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand("sweep", "Find the fastest kernels for problems, and remember them");
  command->footer(examples);
  add_problem_options(*command, options->problems);
  for (const char* required : {"--op", "--dtype", "--rows", "--cols"})
    command->get_option(required)->required();
  command->add_option("--samples", options->samples, "Samples of each finalist (default: 15; 5 on the host)")
      ->type_name("N");
  add_tuning_options(*command, options->tuning);
  add_device_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return sweep(*options); }; });
}

}  // namespace ce::cli
