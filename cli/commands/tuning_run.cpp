#include "cli/commands/tuning_run.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/tags.hpp"
#include "ce/error.hpp"
#include "ce/version.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

tuner::Strategy strategy_of(const std::string& text) {
  const auto strategy = tuner::parse_strategy(text);
  if (!strategy)
    throw InvalidArgument("--strategy", fmt::format("\"{}\"", text), "halving, exhaustive or random");
  return *strategy;
}

}  // namespace

void add_tuning_options(CLI::App& command, TuningOptions& options) {
  command
      .add_option("--strategy", options.strategy,
                  "halving: the most promising configs, then fewer and fewer, for about 2 seconds on a "
                  "GPU\n(default); "
                  "exhaustive: all of them; random: 40 of them, 12 on the host")
      ->type_name("NAME");
  command
      .add_option("--configs", options.configs,
                  "Try at most N configs (default: as many as the strategy tries; on the host 12,\nexcept "
                  "for exhaustive)")
      ->type_name("N");
  add_timing_options(command, options);
}

void require_record(const cache::Cache& cache, const TuningOptions& options, std::string_view what) {
  const cache::Status status = cache.status();
  if (!status.persistent && !options.unrecorded)
    throw DatabaseError(fmt::format("{} would be kept: {} (--unrecorded continues without keeping them)",
                                    what, status.problem));
}

void add_timing_options(CLI::App& command, TuningOptions& options) {
  command.add_flag(
      "--unrecorded", options.unrecorded,
      "Continue even if the database cannot be written; otherwise that is an error at the start");
  command
      .add_option("--scratch", options.scratch,
                  "Device memory to use, such as 4GiB; with too little, fewer rows are timed\n(default: a "
                  "quarter of the free memory, of which a search takes 2GiB; 256MiB on the host)")
      ->type_name("SIZE");
}

tuner::Settings settings_of(const TuningOptions& options, const runtime::Model& model) {
  constexpr std::int64_t most_configs = 1'000'000;
  tuner::Settings settings = tuner::Settings::for_device(model);
  if (!options.strategy.empty()) {
    settings.search.strategy = strategy_of(options.strategy);
    if (settings.search.strategy != tuner::Strategy::halving) settings.budget_s = 0;
    if (settings.search.strategy == tuner::Strategy::exhaustive) settings.search.most_configs = 0;
  }
  if (!options.configs.empty())
    settings.search.most_configs =
        static_cast<int>(parse_count("--configs", options.configs, 1, most_configs));
  if (!options.scratch.empty()) settings.scratch_bytes = parse_size("--scratch", options.scratch);
  if (!options.samples.empty()) {
    // The other rounds keep their usual share of the samples.
    const int samples = static_cast<int>(parse_count("--samples", options.samples, 1, most_samples));
    tuner::Breadth& search = settings.search;
    for (int* part : {&search.screening_samples, &search.semifinal_samples, &search.play_off.samples,
                      &search.decider.samples})
      *part = std::max(1, samples * *part / search.final_samples);
    search.final_samples = samples;
  }
  return settings;
}

TuningRun begin_run(std::string devices) {
  static_cast<void>(tags_of_environment());  // throws for invalid tags
  return {.device = std::move(devices),
          .model = {},
          .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          .environment = {}};
}

TuningRun begin_run(const runtime::Device& device) {
  TuningRun run = begin_run(device.name());
  run.model = device.model();
  run.environment = device.environment();
  return run;
}

void end_run(TuningRun& run, const cache::Cache& cache) {
  cache.flush(patience_at_end);
  run.database = cache.status();
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - run.start).count();
  if (!run.failure && !run.database.persistent)
    run.failure = describe(DatabaseError("the results above are not kept: " + run.database.problem));
}

bool attempt(std::optional<Failure>& failure, const std::function<void()>& work) {
  using enum ErrorKind;
  try {
    work();
    return true;
  } catch (const Error& error) {
    failure = describe(error);
    return error.kind() == verification || error.kind() == unsupported || error.kind() == compile ||
           dynamic_cast<const OutOfMemory*>(&error) != nullptr;
  } catch (const std::bad_alloc& error) {
    failure = describe(error);
    return true;
  }
}

Json json_of(const TuningRun& run) {
  return {{"version", version()},
          {"date", run.date},
          {"device", {{"device", run.device}, {"model", json_of(run.model)}}},
          {"environment", run.environment},
          {"database", {{"path", run.database.path.string()}, {"persistent", run.database.persistent}}}};
}

ExitCode verdict(const TuningRun& run, std::string_view kept, std::string_view then) {
  std::fflush(stdout);
  if (!run.failure) return ExitCode::success;
  say("{}\n", run.failure->line());
  if (run.failure->code == ExitCode::interrupted && run.database.persistent)
    say("ce-tune: {} is kept in {}{}\n", kept, run.database.path.string(), then);
  return run.failure->code;
}

}  // namespace ce::cli
