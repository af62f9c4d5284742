#pragma once
/// \file
/// Common parts of the commands that measure: their settings, circumstances and results.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cache/cache.hpp"
#include "cli/failure.hpp"
#include "cli/json.hpp"
#include "runtime/device.hpp"
#include "tuner/tuner.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace ce::cli {

/// Options as the user wrote them; empty if not given.
struct TuningOptions {
  std::string configs, scratch, strategy;
  std::string samples;      ///< samples of a finalist; an option of sweep only
  bool unrecorded = false;  ///< go on if results cannot be stored
};

void add_tuning_options(CLI::App& command, TuningOptions& options);
/// The options for commands that do not search: --unrecorded and --scratch.
void add_timing_options(CLI::App& command, TuningOptions& options);

/// Called before anything is measured.
/// \param what  what would be lost, such as "nothing that is compiled"
/// \throws DatabaseError if the database cannot be written, unless the options allow it
void require_record(const cache::Cache& cache, const TuningOptions& options,
                    std::string_view what = "no measurement");

/// The device's defaults, changed by the options.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] tuner::Settings settings_of(const TuningOptions& options, const runtime::Model& model);

/// The scratch memory of one kernel.
inline constexpr std::int64_t most_samples = 1'000'000;

struct TuningRun {
  std::string device;  ///< "cuda:0"
  runtime::Model model;
  std::string date;                  ///< time of its start: UTC, ISO 8601
  runtime::Environment environment;  ///< at its start: driver, clocks, ...
  cache::Status database;
  double seconds = 0;
  std::optional<Failure> failure;  ///< the failure that determines the exit status
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

[[nodiscard]] TuningRun begin_run(const runtime::Device& device);
/// For devices that other processes have open; they report the rest.
[[nodiscard]] TuningRun begin_run(std::string devices);
/// Limit of the wait at the end for a locked database: a large import takes that long.
inline constexpr std::chrono::seconds patience_at_end{60};

/// Writes what the database has refused, which may take a minute if it is locked. Notes the duration of the run and
/// where its results are; results that are not stored are a failure.
void end_run(TuningRun& run, const cache::Cache& cache);

/// Runs the work of one problem. A ce::Error, or short memory, ends it and becomes the failure.
/// \returns whether other problems are worth trying
[[nodiscard]] bool attempt(std::optional<Failure>& failure, const std::function<void()>& work);

/// Writes version, date, device, environment, database.
[[nodiscard]] Json json_of(const TuningRun& run);

/// Reports the failure on standard error, after all output. \returns the exit status
/// \param kept, then  for an interrupted run: what the database has of it, and further notes
[[nodiscard]] ExitCode verdict(const TuningRun& run, std::string_view kept, std::string_view then);

}  // namespace ce::cli
