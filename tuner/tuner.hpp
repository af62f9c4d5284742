#pragma once
/// \file
/// Finds the fastest correct kernel for a problem on a device, and stores all measurements.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "generator/variant.hpp"
#include "runtime/device.hpp"
#include "tuner/decide.hpp"
#include "tuner/kernel.hpp"
#include "tuner/strategy.hpp"

namespace ce::tuner {

struct Settings {
  Breadth search;
  double budget_s = 0;  ///< seconds that a search may take; see Breadth::least_configs; 0: no bound
  /// No config and no turn begins after this time: a search may then end with a winner that was in no final, or without
  /// one.
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
  /// 0: a quarter of the device's free memory, of which a search uses at most 2 GiB; never more than needed.
  std::int64_t scratch_bytes = 0;
  std::uint64_t seed = 1;  ///< seed of the trial inputs
  bool again = false;      ///< search even if a search was finished before

  /// Defaults for the device: 2 seconds on a GPU. The host device compiles slowly, so it tries few configs.
  [[nodiscard]] static Settings for_device(const runtime::Model& model);
};

/// The progress of a tuning, passed to Hooks::progress after every config and turn.
struct Progress {
  std::string stage;        ///< name of the Round or of another step
  int done = 0, total = 0;  ///< configs, turns or samples of this stage
  std::string best;         ///< config text; empty at the beginning
  double best_us = 0;
  double best_gbs = 0;
  double seconds = 0;  ///< since the start
};

struct Hooks {
  std::function<void(const Progress&)> progress;
  std::stop_token stop;  ///< checked between configs; measurements so far are kept
  /// Called when the first launch of a config is about to begin (true), and when it is over (false). A fault in between
  /// may kill the process.
  std::function<void(std::string_view config, bool begins)> first_launch;
};

/// The effort of a search.
struct Effort {
  int configs = 0;   ///< configs in the space
  int known = 0;     ///< known before the search
  int compiled = 0;  ///< compiler runs
  double seconds = 0;
};

/// The result of a tuning, or what the database knows.
struct Report {
  generator::Problem problem;
  cache::Key key;
  generator::Config winner;
  std::string reason;  ///< why it won
  double median_us = 0;
  double spread = 0;            ///< interquartile range over median
  double gbs = 0;               ///< throughput in 1e9 bytes a second, of the fewest bytes that must move
  double ceiling_gbs = 0;       ///< Tuner::ceiling(), if it was asked for; else 0
  std::int64_t timed_rows = 0;  ///< less than the problem's if scratch memory was short
  int configs = 0;              ///< configs in the space
  int tried = 0;                ///< measured or quarantined, by this call or before
  int known = 0;                ///< measured or quarantined before this call
  int compiled = 0;             ///< compiler runs of this call
  std::string unfinished;       ///< why the search should continue; empty if it is finished
  bool is_cut_short = false;    ///< that is because time was short
  std::map<std::string, int>
      quarantined;  ///< reason (first line) and number of configs, by this call or before
  double seconds = 0;

  [[nodiscard]] double share() const noexcept { return ceiling_gbs > 0 ? gbs / ceiling_gbs : 0; }
};

class BuildAhead;
class Search;

/// Not thread-safe: use one for each thread, or a mutex.
class Tuner {
 public:
  /// Both references must outlive the Tuner.
  Tuner(runtime::Device& device, cache::Cache& cache, const Settings& settings);
  ~Tuner();

  [[nodiscard]] cache::Key key(const generator::Problem& problem) const;

  /// The winner for the problem's key in the database, or in the nearest layer below with a finished search. A pin, in
  /// the database or in a layer, takes precedence. Configs that the database has quarantined are not taken from layers.
  /// Nothing if there is no winner. See decide() of a Cache.
  [[nodiscard]] std::optional<Decision> known_winner(const generator::Problem& problem) const;

  /// Whether it was found with so little memory that a search would now time twice as many rows.
  [[nodiscard]] bool is_of_short_memory(const generator::Problem& problem, const Decision& decision) const;

  /// The configs that rank first, given the measurements of the nearest problems on this device whose kernels move
  /// memory alike; none if there are no such problems. They need not have won anywhere.
  [[nodiscard]] std::vector<generator::Config> likely_configs(const generator::Problem& problem,
                                                              std::size_t most) const;

  /// Why a config that a text named cannot serve the problem: this device does not support it, or it is quarantined.
  /// Nothing if it can.
  [[nodiscard]] std::optional<std::string> why_not(const generator::Problem& problem,
                                                   const generator::Config& config) const;

  /// The configs for fallback(), if nothing may be tried: the likely configs, or the safe defaults, without those that
  /// the database has quarantined for the problem.
  struct Untried {
    std::vector<generator::Config> ranked;  ///< at least one
    bool from_neighbours = false;           ///< near problems were measured
  };
  /// \throws Unsupported if no config fits, Error(verification) if all are quarantined
  [[nodiscard]] Untried untried(const generator::Problem& problem) const;

  /// Asks the shared cache (remote.hpp) about a problem that this Tuner has not asked about yet.
  /// \returns whether the database has new measurements
  bool ask_remote(const generator::Problem& problem);

  /// Searches the problem's space, unless the database or the shared cache has a winner, and decides. The caller's
  /// memory is never touched. \throws Error(verification) if no config is right, Error(interrupted) when asked to stop,
  /// Unsupported without a compiler, DeviceError
  Report tune(const generator::Problem& problem, const Hooks& hooks = {});

  /// Like tune(), without a report, for callers that set Settings::end. \throws as tune(), but not if no config is
  /// right
  Effort search(const generator::Problem& problem, const Hooks& hooks = {});

  /// The report of a tune() that has nothing to do; nothing if it would search.
  [[nodiscard]] std::optional<Report> known_report(const generator::Problem& problem) const;

  /// The report after a search of the problem has ended, here or in another process.
  /// \throws Error(verification) if no config is right
  [[nodiscard]] Report report(const generator::Problem& problem, const Effort& effort) const;

  /// GB/s of memory traffic of the problem's kind on this device; measured once by this Tuner. 0 if Settings::end comes
  /// first.
  double ceiling(const generator::Problem& problem, const Hooks& hooks = {});
  /// The problem for measuring a ceiling: 1 GiB; 8 MiB on the host.
  /// \param kind  see ceiling_kind()
  [[nodiscard]] generator::Problem ceiling_problem(generator::Operation kind) const;
  /// The first half of ceiling(), for callers that share the search with other processes. Tries every config of
  /// ceiling_problem(), unless the database knows them all.
  /// \returns whether it finished before Settings::end
  /// \throws Error(verification) if no config is right, Error(interrupted) when asked to stop, DeviceError
  bool search_ceiling(generator::Operation kind, const Hooks& hooks = {});
  /// The second half: times the winner of a kind whose search is over, here or in another process. That is this
  /// device's current ceiling.
  /// \returns GB/s; 0 if Settings::end has passed
  /// \throws Error(verification) if the database has no winner, DeviceError
  [[nodiscard]] double time_ceiling(generator::Operation kind);

  /// Waits for builds that still ran when searches ended: those that a budget left no time for, or configs that were
  /// built speculatively. The next search does not wait: it uses the idle compilers.
  void finish();

  /// Sets Settings::budget_s of later tunings.
  void set_budget(double seconds) noexcept { settings_.budget_s = seconds; }
  /// Sets Settings::end of later measurements.
  void set_end(std::chrono::steady_clock::time_point end) noexcept { settings_.end = end; }

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

 private:
  [[nodiscard]] bool is_past_end() const { return std::chrono::steady_clock::now() >= settings_.end; }
  runtime::Device& device_;
  cache::Cache& cache_;
  Settings settings_;
  std::set<std::string> asked_;  ///< names of keys that the shared cache was asked for
  std::map<generator::Operation, double> ceilings_;
  std::vector<std::unique_ptr<BuildAhead>> unfinished_;  ///< builds that still ran when searches ended
};

}  // namespace ce::tuner
