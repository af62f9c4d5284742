#pragma once
/// \file
/// Finds the fastest right kernel for a problem on a device, and writes down everything that it measured.

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
  double budget_s = 0;  ///< seconds that a search may take; see Breadth::least_configs; 0 for no bound
  /// The time from which on nothing begins, neither a config nor a turn: a search may end with a winner that no final has seen,
  /// or without one.
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
  /// 0: a quarter of the device's free memory, of which a search takes 2 GiB; never more than needed.
  std::int64_t scratch_bytes = 0;
  std::uint64_t seed = 1;  ///< of the trial inputs
  bool again = false;      ///< search also where a search has come to its end

  /// What suits the device: 2 seconds on a GPU; the host device compiles slowly, so it tries few configs.
  [[nodiscard]] static Settings for_device(const runtime::Model& model);
};

/// How far a tuning is; handed to Hooks::progress after every config and turn.
struct Progress {
  std::string stage;        ///< name of a Round, or what else goes on
  int done = 0, total = 0;  ///< of this stage: configs, or turns, or samples
  std::string best;         ///< config text; empty before the first
  double best_us = 0;
  double best_gbs = 0;
  double seconds = 0;  ///< since the start
};

struct Hooks {
  std::function<void(const Progress&)> progress;
  std::stop_token stop;  ///< asked between configs; what is measured stays measured
  /// Called as the first launch of a config is about to begin (true), and when it is over (false). What happens
  /// between may take the process with it.
  std::function<void(std::string_view config, bool begins)> first_launch;
};

/// What a search has found and taken.
struct Effort {
  int configs = 0;   ///< in the space
  int known = 0;     ///< of these, known before
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
  double gbs = 0;               ///< 1e9 bytes a second of the fewest bytes that must move
  double ceiling_gbs = 0;       ///< Tuner::ceiling(), for those who asked for it; else 0
  std::int64_t timed_rows = 0;  ///< fewer than the problem's where scratch memory was short
  int configs = 0;              ///< in the space
  int tried = 0;                ///< of these, measured or quarantined, by this call or before
  int known = 0;                ///< of these, before this call
  int compiled = 0;             ///< compiler runs of this call
  std::string unfinished;       ///< why the search is to go on; empty where it came to its end
  bool is_cut_short = false;    ///< that is because time was short
  std::map<std::string, int>
      quarantined;  ///< reason (first line) and how many configs, of this call or before
  double seconds = 0;

  [[nodiscard]] double share() const noexcept { return ceiling_gbs > 0 ? gbs / ceiling_gbs : 0; }
};

class BuildAhead;
class Search;

/// Not thread-safe; one per thread, or guarded.
class Tuner {
 public:
  /// Both must outlive the Tuner.
  Tuner(runtime::Device& device, cache::Cache& cache, const Settings& settings);
  ~Tuner();

  [[nodiscard]] cache::Key key(const generator::Problem& problem) const;

  /// The winner that the database knows for the problem's key, or the nearest of the layers below it whose search came
  /// to its end. What a person pinned, in the database or in a layer, goes before that. What the database has in
  /// quarantine is taken from no layer. Nothing when none knows one. See decide() of a Cache.
  [[nodiscard]] std::optional<Decision> known_winner(const generator::Problem& problem) const;

  /// Whether it was found with so much less memory than there is now that a search would time twice as many rows.
  [[nodiscard]] bool is_of_short_memory(const generator::Problem& problem, const Decision& decision) const;

  /// The configs that are ranked first in the light of what was measured of the nearest problems on this device whose
  /// kernels move memory alike; none when there are no such problems. They need not have won anywhere.
  [[nodiscard]] std::vector<generator::Config> likely_configs(const generator::Problem& problem,
                                                              std::size_t most) const;

  /// Why a config that a text named cannot serve the problem: this device has none such, or has it in quarantine. Nothing
  /// where it can.
  [[nodiscard]] std::optional<std::string> why_not(const generator::Problem& problem,
                                                   const generator::Config& config) const;

  /// What may run where nothing is tried, for fallback(): the likely configs, or the safe defaults, less those that
  /// the database has in quarantine for the problem.
  struct Untried {
    std::vector<generator::Config> ranked;  ///< at least one
    bool from_neighbours = false;           ///< near problems were measured
  };
  /// \throws Unsupported where no config fits, Error(verification) where all are in quarantine
  [[nodiscard]] Untried untried(const generator::Problem& problem) const;

  /// Asks the shared cache (remote.hpp) about a problem that this Tuner has not asked about yet.
  /// \returns whether the database knows more than before
  bool ask_remote(const generator::Problem& problem);

  /// Searches the problem's space, unless the database or the shared cache knows a winner, and decides. The caller's memory is
  /// never touched. \throws Error(verification) when no config is right, Error(interrupted) when asked to stop,
  /// Unsupported without a compiler, DeviceError
  Report tune(const generator::Problem& problem, const Hooks& hooks = {});

  /// tune() without the report, for those who set Settings::end. \throws as tune(), but where no config is right
  Effort search(const generator::Problem& problem, const Hooks& hooks = {});

  /// The report of a tune() that has nothing to do; nothing where it would search.
  [[nodiscard]] std::optional<Report> known_report(const generator::Problem& problem) const;

  /// The report of a search over the problem that has come to an end, here or in another process.
  /// \throws Error(verification) when no config is right
  [[nodiscard]] Report report(const generator::Problem& problem, const Effort& effort) const;

  /// GB/s that nothing but memory traffic of the problem's kind reaches on this device; measured once by this
  /// Tuner. 0 where Settings::end comes before it is known.
  double ceiling(const generator::Problem& problem, const Hooks& hooks = {});
  /// What a ceiling is measured with: 1 GiB; 8 MiB on the host.
  /// \param kind  see ceiling_kind()
  [[nodiscard]] generator::Problem ceiling_problem(generator::Operation kind) const;
  /// The two halves of ceiling(), for those who share its search with other processes. The first looks at every config
  /// of ceiling_problem(), unless the database knows them all.
  /// \returns whether it came to its end before Settings::end
  /// \throws Error(verification) when no config is right, Error(interrupted) when asked to stop, DeviceError
  bool search_ceiling(generator::Operation kind, const Hooks& hooks = {});
  /// Times the winner of a kind whose search is over, here or in another process: the ceiling of this device, now.
  /// \returns GB/s; 0 where Settings::end has come
  /// \throws Error(verification) when the database knows no winner, DeviceError
  [[nodiscard]] double time_ceiling(generator::Operation kind);

  /// Waits for what searches were still compiling at their end: with a budget what they had no time for, else perhaps what
  /// they had guessed that they would look at. The next search does not: it compiles on what is free.
  void finish();

  /// Settings::budget_s of the tunings from here on.
  void set_budget(double seconds) noexcept { settings_.budget_s = seconds; }
  /// Settings::end of all that is measured from here on.
  void set_end(std::chrono::steady_clock::time_point end) noexcept { settings_.end = end; }

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

 private:
  [[nodiscard]] bool is_past_end() const { return std::chrono::steady_clock::now() >= settings_.end; }
  runtime::Device& device_;
  cache::Cache& cache_;
  Settings settings_;
  std::set<std::string> asked_;  ///< keys by name: of the shared cache
  std::map<generator::Operation, double> ceilings_;
  std::vector<std::unique_ptr<BuildAhead>> unfinished_;  ///< what searches were still compiling
};

}  // namespace ce::tuner
