#include "cli/tuning_run.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "ce/base/error.hpp"
#include "ce/version.hpp"
#include "cli/units.hpp"

namespace ce::cli {

void add_tuning_options(CLI::App& command, TuningOptions& options) {
  command
      .add_option("--configs", options.configs,
                  "Try at most that many configs, spread over the space\n(default: all; 12 on the host)")
      ->type_name("N");
  command
      .add_option("--scratch", options.scratch,
                  "Device memory to use, such as 4GiB; with less, fewer rows are timed\n"
                  "(default: a quarter of what is free; 256MiB on the host)")
      ->type_name("SIZE");
}

tuner::Settings settings_of(const TuningOptions& options, const runtime::Model& model) {
  constexpr std::int64_t most_configs = 1'000'000;
  tuner::Settings settings = tuner::Settings::for_device(model);
  if (!options.configs.empty())
    settings.search.most_configs =
        static_cast<int>(parse_count("--configs", options.configs, 1, most_configs));
  if (!options.scratch.empty()) settings.scratch_bytes = parse_size("--scratch", options.scratch);
  return settings;
}

TuningRun begin_run(const runtime::Device& device) {
  return {.device = device.name(),
          .model = device.model(),
          .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          .evidence = device.evidence()};
}

void end_run(TuningRun& run, const cache::Cache& cache) {
  run.database = cache.status();
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - run.start).count();
  if (!run.failure && !run.database.persistent)
    run.failure = describe(DatabaseError("the results above are not kept: " + run.database.problem));
}

bool concerns_one_problem(ErrorKind kind) {
  return kind == ErrorKind::verification || kind == ErrorKind::unsupported || kind == ErrorKind::compile;
}

Json json_of(const TuningRun& run) {
  return {{"version", version()},
          {"date", run.date},
          {"device", {{"device", run.device}, {"model", json_of(run.model)}}},
          {"evidence", run.evidence},
          {"database", {{"path", run.database.path.string()}, {"persistent", run.database.persistent}}}};
}

ExitCode verdict(const TuningRun& run) {
  std::fflush(stdout);
  if (!run.failure) return ExitCode::success;
  fmt::print(stderr, "{}\n", run.failure->line());
  if (run.failure->code == ExitCode::interrupted && run.database.persistent)
    fmt::print(stderr, "ce-tune: what was measured is kept in {}; the same command resumes\n",
               run.database.path.string());
  return run.failure->code;
}

}  // namespace ce::cli
