#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "ce/error.hpp"
#include "cli/commands.hpp"
#include "cli/commands/conversation.hpp"
#include "cli/commands/problem_tuning.hpp"
#include "cli/commands/sweep_devices.hpp"
#include "cli/commands/sweep_observer.hpp"
#include "cli/commands/sweep_result.hpp"
#include "cli/commands/tuning_run.hpp"
#include "cli/interruption.hpp"
#include "cli/options.hpp"
#include "cli/presets.hpp"
#include "cli/problem_options.hpp"
#include "cli/progress.hpp"
#include "cli/say.hpp"
#include "cli/shapes_file.hpp"
#include "cli/shard.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "runtime/cuda/device.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {
namespace {

constexpr const char* sweep_examples =
    "\nExamples:\n"
    "  ce-tune sweep --op softmax --dtype bf16 --rows 8192 --cols 4096,32000,50257,128256\n"
    "  ce-tune sweep --op cross_entropy --dtype f32,bf16 --rows 4096,8192 --cols 128256 --reduction mean\n"
    "  ce-tune sweep --preset llama3,qwen3 --budget 10m\n"
    "  ce-tune sweep --from shapes.csv --strategy exhaustive --top 5\n"
    "  ce-tune sweep --op cross_entropy --dtype f32 --rows 64 --cols 1000 --device host --db my.db --json\n"
    "  srun -n 8 ce-tune sweep --from shapes.csv --shard auto\n"
    "\n"
    "sweep tunes every combination. It does not repeat measurements that the database has, so the same "
    "command resumes an\ninterrupted sweep. Ctrl-C stops after the current config, a second Ctrl-C stops at "
    "once; both leave the database\nintact.\n";

struct SweepOptions {
  CommonOptions common;
  ProblemOptions problems;
  TuningOptions tuning;
  std::vector<std::string> presets;
  std::string file, budget, top, isolate, shard, progress_json;
  bool list_presets = false, retune = false;
};

std::vector<generator::Problem> problems_of(const SweepOptions& options) {
  const ProblemOptions& problems = options.problems;
  if (!options.presets.empty()) return problems_of_presets(options.presets, problems);
  if (!options.file.empty()) return problems_of(std::filesystem::path(options.file), problems);
  require_lists(problems, "a list, or --preset or --from");
  return problems_of(problems);
}

/// The problems to tune, and the extent of the search.
struct Agenda {
  std::vector<generator::Problem> problems;
  std::optional<double> budget_s{};
  SearchOptions search{};
  std::size_t top = 0;           ///< number of configs to list for each problem
  std::optional<Shard> shard{};  ///< shard of the problems
  std::size_t listed = 0;        ///< problems of all shards
};

/// \throws InvalidArgument also for a limit so short that a busy machine would reject a right config permanently
std::chrono::milliseconds launch_limit_of(const std::string& text) {
  constexpr std::chrono::duration<double> least{1};
  const std::chrono::duration<double> limit{parse_duration("--isolate", text)};
  if (limit < least) throw InvalidArgument("--isolate", in_quotes(text), "a time of 1s or more");
  return std::chrono::duration_cast<std::chrono::milliseconds>(limit);
}

Agenda agenda_of(const SweepOptions& options) {
  Agenda agenda{.problems = problems_of(options),
                .search = {.tuning = options.tuning, .retune = options.retune}};
  agenda.listed = agenda.problems.size();
  if (!options.shard.empty()) {
    agenda.shard = parse_shard(options.shard, environment_variable);
    std::erase_if(agenda.problems, [&](const generator::Problem& problem) {
      return !agenda.shard->has(generator::key_text(problem));
    });
  }
  if (!options.isolate.empty()) agenda.search.launch_limit = launch_limit_of(options.isolate);
  if (!options.top.empty())
    agenda.top = static_cast<std::size_t>(parse_count("--top", options.top, 1, 1'000'000));
  if (options.budget.empty()) return agenda;
  agenda.budget_s = parse_duration("--budget", options.budget);
  // If time is limited, problems with the most to gain come first.
  std::stable_sort(agenda.problems.begin(), agenda.problems.end(), [](const auto& a, const auto& b) {
    return generator::traffic(a).total() > generator::traffic(b).total();
  });
  return agenda;
}

/// \param left_out   number of problems that were not reached
/// \param cut_short  number of problems whose search was cut short
std::optional<Failure> out_of_budget(const std::string& budget, std::int64_t left_out,
                                     std::int64_t cut_short) {
  std::vector<std::string> what;
  if (left_out > 0) what.push_back(counted(left_out, "problem") + " not reached");
  if (cut_short > 0)
    what.push_back(fmt::format("the {} of {} cut short", cut_short == 1 ? "search" : "searches",
                               counted(cut_short, "problem")));
  if (what.empty()) return std::nullopt;
  return Failure{.code = ExitCode::out_of_budget,
                 .fields = {{"kind", "out of budget"},
                            {"message", fmt::format("{} within --budget {}; the same command continues",
                                                    fmt::join(what, ", "), budget)}}};
}

/// Tunes the problems of the result on one device, in this process.
void tune_all(runtime::Device& device, cache::Cache& cache, const SearchOptions& options,
              SweepObserver& observer, const std::stop_token& stop, SweepResult& result) {
  const tuner::Hooks hooks{
      .progress = [&observer](const tuner::Progress& progress) { observer.update(progress); }, .stop = stop};
  ProblemTuning tuning(device, cache, options);
  for (SweptProblem& swept : result.problems) swept.key = tuning.key(swept.problem);
  // Sweeps with the same list share the work: a problem that another process tunes is skipped, and tried again at the
  // end.
  for (const bool waits : {false, true})
    for (std::size_t i = 0; i < result.problems.size(); ++i) {
      SweptProblem& swept = result.problems[i];
      if (swept.report || swept.failure) continue;
      const bool is_over = tuning.is_over();
      if (!is_over) observer.begin(i, result.problems.size(), swept);
      const bool go_on = tuning.tune(swept, waits, hooks);
      if (!is_over) observer.finish(swept);
      if (swept.failure && (!result.run.failure || !go_on)) result.run.failure = swept.failure;
      if (!go_on) return;
    }
}

/// Ends a sweep, on one device or on several.
void finish(const SweepOptions& options, const Agenda& agenda, const cache::Cache& cache,
            SweepResult& result) {
  for (SweptProblem& swept : result.problems) swept.best = best_of(cache, swept, agenda.top);
  const auto left_out = std::ranges::count_if(
      result.problems, [](const SweptProblem& swept) { return !swept.report && !swept.failure; });
  const auto cut_short = std::ranges::count_if(result.problems, &SweptProblem::is_cut_short);
  if (!result.run.failure && !options.budget.empty())
    result.run.failure = out_of_budget(options.budget, left_out, cut_short);
  end_run(result.run, cache);
}

using Tune = std::function<void(const SearchOptions&, SweepObserver&, const std::stop_token&, SweepResult&)>;

Screen screen_of(const SweepOptions& options, ProgressLog* log) {
  Screen screen = Screen::standard_error();
  if (options.progress_json != "-") return screen;
  screen.redraws = false;
  screen.notes_only = true;
  screen.write = [log](std::string_view text) {
    log->write("note", {{"text", text.substr(0, text.find_last_not_of('\n') + 1)}});
  };
  return screen;
}

/// Tunes and shows progress, until the user or the budget ends it; then sums up.
/// \param devices  names of several devices, or the one
SweepResult tune_in_time(const SweepOptions& options, const Agenda& agenda,
                         const std::vector<std::string>& devices, const cache::Cache& cache,
                         SweepResult result, const Tune& tune) {
  std::optional<ProgressLog> log;
  if (!options.progress_json.empty()) log.emplace(options.progress_json, options.common.json);
  ProgressLog* const lines = log ? &*log : nullptr;
  std::optional<ProgressDisplay> display(std::in_place, screen_of(options, lines), devices);
  SweepObserver observer(*display, lines, devices);
  {
    const LogThroughDisplay logging(*display);
    const Interruption interruption([&display] {
      display->note("ce-tune: stopping after this config; interrupt again to stop at once");
    });
    SearchOptions search = agenda.search;
    if (agenda.budget_s) search.end = deadline_in(*agenda.budget_s);
    tune(search, observer, interruption.token(), result);
  }
  finish(options, agenda, cache, result);
  observer.end(result);
  return result;
}

/// Lists the shard's problems; independent of all other options.
void require_list_presets_alone(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--list-presets" || name == "--json" || name == "--wide") continue;
    const bool takes_nothing = option->get_items_expected_max() == 0;
    throw InvalidArgument(
        name, takes_nothing ? "given" : in_quotes(fmt::format("{}", fmt::join(option->results(), ","))),
        "no option together with --list-presets, except --json and --wide");
  }
}

ExitCode list_presets(bool json) {
  Json documents = Json::array();
  Table table({{"PRESET"},
               {"COLUMNS", Table::Align::right},
               {"DTYPE"},
               {.title = "MODELS", .least = 16},
               {.title = "SOURCE", .rank = 1, .least = 16}});
  for (const Vocabulary& vocabulary : vocabularies()) {
    table.add({std::string(vocabulary.preset), fmt::to_string(vocabulary.columns),
               std::string(name(vocabulary.dtype)), std::string(vocabulary.models),
               std::string(vocabulary.source)});
    documents.push_back({{"preset", vocabulary.preset},
                         {"columns", vocabulary.columns},
                         {"dtype", name(vocabulary.dtype)},
                         {"softcap", vocabulary.softcap},
                         {"models", vocabulary.models},
                         {"source", vocabulary.source}});
  }
  if (json)
    print({{"presets", documents}});
  else
    print_text("{}", table.text());
  return ExitCode::success;
}

SweepResult result_of(const Agenda& agenda, TuningRun run) {
  SweepResult result{
      .asked = agenda.problems.size(), .listed = agenda.listed, .shard = agenda.shard, .run = std::move(run)};
  for (const generator::Problem& problem : agenda.problems) result.problems.push_back({problem, {}});
  return result;
}

/// \param name  name of the device; empty for the default
SweepResult sweep_device(const SweepOptions& options, const Agenda& agenda, const std::filesystem::path& path,
                         const std::string& name) {
  CommonOptions common = options.common;
  common.device = name;
  const std::unique_ptr<runtime::Device> device = open_device(common);
  static_cast<void>(settings_of(options.tuning, device->model()));
  require_compiler(*device);
  cache::Cache cache = cache::Cache::open(path);
  require_record(cache, options.tuning);
  return tune_in_time(options, agenda, {device->name()}, cache, result_of(agenda, begin_run(*device)),
                      [&](const SearchOptions& search, SweepObserver& observer, const std::stop_token& stop,
                          SweepResult& result) { tune_all(*device, cache, search, observer, stop, result); });
}

SweepResult sweep_devices(const SweepOptions& options, const Agenda& agenda,
                          const std::filesystem::path& path, const std::vector<std::string>& devices) {
  static_cast<void>(settings_of(options.tuning, {}));
  cache::Cache cache = cache::Cache::open(path);
  require_record(cache, {}, "with several devices, no measurement");
  return tune_in_time(
      options, agenda, devices, cache,
      result_of(agenda, begin_run(fmt::format("{}", fmt::join(devices, ",")))),
      [&](const SearchOptions& search, SweepObserver& observer, const std::stop_token& stop,
          SweepResult& result) { tune_on_devices(devices, path, search, observer, stop, result); });
}

ExitCode sweep(const SweepOptions& options) {
  const Agenda agenda = agenda_of(options);
  const std::filesystem::path path = database_path(options.common);
  const std::string& names = options.common.device;
  const std::vector<std::string> devices =
      device_list(names, names == "cuda:all" ? runtime::cuda_device_count() : 0);
  const SweepResult result = devices.size() > 1 ? sweep_devices(options, agenda, path, devices)
                                                : sweep_device(options, agenda, path, devices.front());
  if (options.common.json)
    print(json_of(result));
  else
    print_text("{}", text_of(result));
  return verdict(result.run, "what was measured", "; the same command resumes");
}

}  // namespace

void add_sweep(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand("sweep", "Find the fastest kernels for problems, and remember them");
  command->footer(sweep_examples);
  add_problem_options(*command, options->problems);
  CLI::Option* presets = command->add_option("--preset", options->presets,
                                             "The problems of these models in training and serving; --op, "
                                             "--dtype and --rows\noverride those of the models");
  presets->allow_extra_args(false)->type_name("LIST");
  command->add_flag("--list-presets", options->list_presets, "List the models, with their sources");
  command
      ->add_option("--from", options->file,
                   "The problems in a file of comma-separated values, whose first line names\n"
                   "its columns: op,dtype,rows,cols and any other problem option")
      ->type_name("FILE")
      ->excludes(presets);
  command
      ->add_option(
          "--budget", options->budget,
          "Time for the whole sweep, such as 90s, 10m or 1.5h; problems that move the most bytes\ncome first")
      ->type_name("TIME");
  command
      ->add_option("--progress-json", options->progress_json,
                   "Also append the progress as lines of JSON to FILE; - is standard error, which then has "
                   "no\nother progress; lines that cannot be written are lost, with a warning")
      ->type_name("FILE");
  command
      ->add_option("--shard", options->shard,
                   "Only shard I of N of the problems, counted from 0, such as 0/4; auto takes both "
                   "numbers\nfrom Slurm, Kubernetes or torchrun, auto/N only the first")
      ->type_name("I/N");
  command->add_flag("--retune", options->retune,
                    "Also search finished problems again: try configs that were not tried before, and time "
                    "the\nfastest again in turns");
  command->add_option("--top", options->top, "Print the best N configs of each problem")->type_name("N");
  command
      ->add_option("--samples", options->tuning.samples,
                   "Samples of each finalist, rounded up to a multiple of 3 (default: 15; 6 on the host)")
      ->type_name("N");
  command->add_flag(
      "--isolate{60s}", options->isolate,
      "Tune in another process: a config that crashes it, or does not end within 60 s\n(--isolate=TIME for "
      "another limit, 1s or more), is rejected, and the sweep continues");
  add_tuning_options(*command, options->tuning);
  add_device_option(*command, options->common,
                    "cuda, cuda:N, host, or several: cuda:all, or names separated by commas; each\ndevice "
                    "tunes in its own process (default: CE_DEVICE, else the first GPU, else host)");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, command, &chosen] {
    chosen = [options, command] {
      if (!options->list_presets) return sweep(*options);
      require_list_presets_alone(*command);
      return list_presets(options->common.json);
    };
  });
}

}  // namespace ce::cli
