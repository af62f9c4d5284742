#pragma once
/// \file
/// What the commands that measure have in common: how they tune, under which circumstances, how it ended.

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

/// As the user wrote them; empty where not at all.
struct TuningOptions {
  std::string configs, scratch, strategy;
  std::string samples;      ///< of a finalist; an option of sweep alone
  bool unrecorded = false;  ///< go on where nothing is kept
};

void add_tuning_options(CLI::App& command, TuningOptions& options);
/// Those of them that commands take which search nothing: --unrecorded and --scratch.
void add_timing_options(CLI::App& command, TuningOptions& options);

/// To be called before anything is measured.
/// \param what  would be lost, as "nothing that is compiled"
/// \throws DatabaseError where the database cannot be written, unless that was asked for
void require_record(const cache::Cache& cache, const TuningOptions& options,
                    std::string_view what = "nothing that is measured");

/// What suits the device, but for what was asked.
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] tuner::Settings settings_of(const TuningOptions& options, const runtime::Model& model);

/// Of one kernel.
inline constexpr std::int64_t most_samples = 1'000'000;

struct TuningRun {
  std::string device;  ///< "cuda:0"
  runtime::Model model;
  std::string date;                  ///< of its start: UTC, ISO 8601
  runtime::Environment environment;  ///< of its start: driver, clocks, ...
  cache::Status database;
  double seconds = 0;
  std::optional<Failure> failure;  ///< the one that decides the exit status
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

[[nodiscard]] TuningRun begin_run(const runtime::Device& device);
/// Of devices that other processes have open, which say the rest.
[[nodiscard]] TuningRun begin_run(std::string devices);
/// How long to wait at the end for a database that another process has locked: a large import takes that long.
inline constexpr std::chrono::seconds patience_at_end{60};

/// Writes what the database has refused, which may take a minute where it is locked. Notes how long the run took and
/// where the results are; that they are not kept is a failure.
void end_run(TuningRun& run, const cache::Cache& cache);

/// Does what concerns one problem. A ce::Error, or that memory is short, ends it and is the failure.
/// \returns whether other problems are worth trying
[[nodiscard]] bool attempt(std::optional<Failure>& failure, const std::function<void()>& work);

/// version, date, device, environment, database.
[[nodiscard]] Json json_of(const TuningRun& run);

/// Tells of the failure on standard error, after what was printed. \returns the exit status
/// \param kept, then  of an interrupted run: what the database keeps of it, and what else is to be said of that
[[nodiscard]] ExitCode verdict(const TuningRun& run, std::string_view kept, std::string_view then);

}  // namespace ce::cli
