#pragma once
/// \file
/// Chooses the kernel for a problem. Not installed.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "ce/background.hpp"
#include "ce/context.hpp"
#include "ce/counters.hpp"
#include "ce/error.hpp"
#include "ce/plan_table.hpp"
#include "ce/tuning_mutex.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/tuner.hpp"

namespace ce {

/// The kernels chosen so far; then the results in the database, then the tuner. Thread-safe.
///
/// One thread at a time tunes, and only that thread may hold a tuning lock; it waits for no other meanwhile. So neither
/// threads nor processes can wait for each other in a circle. Threads that look up kernels do not wait for the thread
/// that tunes. A call waits for the search of its problem by another thread or process, at most three times the budget
/// of a search.
class Chooser {
 public:
  /// Both references must outlive the Chooser.
  Chooser(runtime::Device& device, cache::Cache& cache, const tuner::Settings& settings, Policy policy);

  /// Never tunes for a stream that is being captured. The result is valid as long as the Chooser.
  /// \throws InvalidArgument for an invalid problem, NotTuned, Unsupported, CompileError, DeviceError
  const PlanTable::Entry& choose(const generator::Problem& problem, Stream stream);

  /// Makes problems of the key run the config from now on, if this device supports it and has not quarantined it;
  /// replaces earlier choices. So ranks run the config that one of them chose.
  void use(const std::string& key, const std::string& config);

  [[nodiscard]] Policy policy() const noexcept { return policy_; }

  /// Number of kernels that had to be compiled.
  [[nodiscard]] int compiled() const noexcept { return compiled_; }

  /// Ends tuning in the background for good, and waits for builds of the last search.
  void stop_background();

 private:
  using Clock = TuningMutex::Clock;

  const PlanTable::Entry& tuned(const generator::Problem& problem, Stream stream);
  void put_off(const std::string& key, Clock::duration pause);
  bool tune_in_background(const generator::Problem& problem, const std::stop_token& stop);
  void give_up(const generator::Problem& problem, const std::string& reason);
  const PlanTable::Entry* try_to_tune(const generator::Problem& problem, Stream stream,
                                      const std::stop_token& stop, bool* is_mine = nullptr);
  const PlanTable::Entry& from_tuning(const generator::Problem& problem, const std::stop_token& stop);

  const PlanTable::Entry* finished(const generator::Problem& problem, Stream stream);
  const PlanTable::Entry& frozen(const generator::Problem& problem, Stream stream);
  const PlanTable::Entry& fallback(const generator::Problem& problem, Stream stream, const std::string& why,
                                   bool provisional);
  struct Known {
    std::optional<tuner::Kernel> kernel;  ///< none if no kernel is known, or if it may not serve
    Choice choice{};                      ///< put() adds config and key
    bool is_winner = false;               ///< its search is finished
    std::string unverified{};  ///< why the known kernel could not be verified now, and may not serve
  };
  Known best_known(const generator::Problem& problem, const std::string& why);
  enum class Wanted : std::uint8_t { anything, winner };
  Known known(const generator::Problem& problem, Stream stream, Wanted wanted);
  Known from_database(const generator::Problem& problem, Stream stream, const tuner::Decision& decision);
  Known verified(const generator::Problem& problem, Stream stream, const generator::Program& program,
                 Choice choice);
  const PlanTable::Entry* assigned(const generator::Problem& problem, Stream stream);
  [[nodiscard]] bool is_to_go_on(const generator::Problem& problem, const tuner::Decision& decision) const;
  bool compiles_another(const generator::Problem& problem, const generator::Config& config);
  void quarantine(const generator::Problem& problem, const tuner::Decision& decision,
                  const std::string& reason, const std::string& said);
  generator::Program build(const generator::Problem& problem, const generator::Config& config);
  const PlanTable::Entry& put(const generator::Problem& problem, tuner::Kernel kernel, Choice choice);

  runtime::Device& device_;
  cache::Cache& cache_;
  const Policy policy_;
  const std::string recent_;  ///< a time: searches that were cut short since then are not continued
  PlanTable plans_;
  Compiled compiled_;

  /// Guards lookups, loading and additions to the table; no thread waits for the tuning mutex while holding it.
  std::mutex looking_;
  std::map<std::string, Clock::time_point> look_again_;  ///< by key: time of the next attempt to tune
  std::vector<std::string> missing_;                     ///< problems that Policy::frozen did not find
  std::map<std::string, std::string> assigned_;          ///< by key: configs of use()
  std::atomic<bool> has_assigned_ = false;               ///< whether assigned_ has entries

  TuningMutex tuning_;  ///< held with the tuner, and with the only tuning lock
  tuner::Tuner tuner_;

  Background background_;  ///< last: ends before the members that it uses
};

}  // namespace ce
