#pragma once
/// \file
/// Which kernel runs for a problem. Not installed.

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
#include "ce/tuning_turns.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/tuner.hpp"

namespace ce {

/// The kernels chosen so far; behind them what the database knows, and behind that the tuner. Thread-safe.
///
/// One thread at a time tunes, and only that one may hold a tuning lock; it waits for no other while it does. So
/// neither threads nor processes can wait for each other in a circle. Threads that look up do not wait for
/// the one that tunes. A call waits for the search of its problem by another thread or process, at most as
/// long as the budget of a search.
class Chooser {
 public:
  /// Both must outlive the Chooser.
  Chooser(runtime::Device& device, cache::Cache& cache, const tuner::Settings& settings, Policy policy);

  /// Never tunes for a stream that is being captured. What it returns stays good as long as the Chooser.
  /// \throws InvalidArgument for a problem that is none, NotTuned, Unsupported, CompileError, DeviceError
  const PlanTable::Entry& choose(const generator::Problem& problem, Stream stream);

  /// Problems of the key run the config from here on, where this device can and does not have it in quarantine; what was
  /// chosen for them before gives way. So ranks run what one of them decided.
  void use(const std::string& key, const std::string& config);

  [[nodiscard]] Policy policy() const noexcept { return policy_; }

  /// How many kernels had to be compiled.
  [[nodiscard]] int compiled() const noexcept { return compiled_; }

  /// Ends tuning in the background for good, and waits for what the last search was still compiling.
  void stop_background();

 private:
  using Clock = TuningTurns::Clock;

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
    std::optional<tuner::Kernel> kernel;  ///< none where nothing is known, or it may not serve
    Choice choice{};                      ///< put() says of what
    bool is_winner = false;               ///< of a search that came to its end
    std::string unverified{};             ///< why what is known could not be verified now, and may not serve
  };
  Known best_known(const generator::Problem& problem, const std::string& why);
  enum class Wanted : std::uint8_t { anything, winner };
  Known known(const generator::Problem& problem, Stream stream, Wanted wanted);
  Known from_database(const generator::Problem& problem, Stream stream, const tuner::Decision& decision);
  Known verified(const generator::Problem& problem, Stream stream, const generator::Program& program,
                 Choice choice);
  const PlanTable::Entry* told(const generator::Problem& problem, Stream stream);
  [[nodiscard]] bool is_to_go_on(const generator::Problem& problem, const tuner::Decision& decision) const;
  bool compiles_another(const generator::Problem& problem, const generator::Config& config);
  void quarantine(const generator::Problem& problem, const tuner::Decision& decision,
                  const std::string& reason, const std::string& said);
  generator::Program build(const generator::Problem& problem, const generator::Config& config);
  const PlanTable::Entry& put(const generator::Problem& problem, tuner::Kernel kernel, Choice choice);

  runtime::Device& device_;
  cache::Cache& cache_;
  const Policy policy_;
  const std::string recent_;  ///< as the database has times: nothing cut short since then is gone on with
  PlanTable plans_;
  Compiled compiled_;

  /// Guards what looks up, loads and puts into the table; no thread waits for a turn with it.
  std::mutex looking_;
  std::map<std::string, Clock::time_point> look_again_;  ///< by key: problems that cannot be tuned just now
  std::vector<std::string> missing_;                     ///< what Policy::frozen did not find
  std::map<std::string, std::string> told_;              ///< by key: configs of use()
  std::atomic<bool> is_told_ = false;                    ///< of any

  TuningTurns turns_;  ///< with the tuner, and the one tuning lock
  tuner::Tuner tuner_;

  Background background_;  ///< last: ends before what it uses
};

}  // namespace ce
