#include "ce/chooser.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/time.hpp"
#include "cache/store.hpp"
#include "ce/error.hpp"
#include "generator/source.hpp"
#include "tuner/bench.hpp"
#include "tuner/doubt.hpp"
#include "tuner/quarantine_reason.hpp"
#include "tuner/ranking.hpp"
#include "tuner/serving.hpp"

namespace ce {
namespace {

using generator::Problem;
using namespace std::chrono_literals;

/// Pause between two attempts at a tuning lock of another process: the first and the longest.
constexpr std::chrono::milliseconds first_pause = 2ms, longest_pause = 100ms;

/// Pause between two attempts of calls that have waited in vain before.
constexpr std::chrono::milliseconds look_again_after = 250ms;

/// Pause before a problem is tuned again for which memory was too short.
constexpr std::chrono::seconds memory_again_after = 60s;

/// Processes that begin within this time of each other may be ranks of one job.
constexpr std::chrono::minutes ranks_begin_within = 10min;

std::string recently() {
  const auto since = std::chrono::system_clock::now() - ranks_begin_within;
  return utc_text({.tv_sec = std::chrono::system_clock::to_time_t(since), .tv_nsec = 0});
}

/// For callers without a stream: no stream of the thread is captured.
constexpr Stream no_stream = nullptr;

/// A kernel from a database that this machine found wrong.
class WrongAnswer : public Error {
 public:
  WrongAnswer(const Problem& problem, const generator::Config& config, std::string words)
      : Error(ErrorKind::verification,
              fmt::format("{} gives a wrong answer for {}: {}", generator::to_text(config),
                          generator::title(problem), words)),
        mismatch(std::move(words)) {}

  std::string mismatch;
};

constexpr const char* elsewhere = "another thread or process is tuning the problem";

void count_wait() noexcept { shared_counters().waited.fetch_add(1, std::memory_order_relaxed); }

std::string sentence(const tuner::Report& report, const runtime::Device& device) {
  int wrong = 0;
  for (const auto& [reason, count] : report.quarantined) wrong += count;
  return fmt::format(
      "tuned {} on {}: {} of {} configs ({} quarantined), winner {}, {:.4g} GB/s, took {:.1f} s",
      generator::title(report.problem), device.model().name, report.tried, report.configs, wrong,
      generator::to_text(report.winner), report.gbs, report.seconds);
}

}  // namespace

std::string_view name(Origin origin) noexcept {
  switch (origin) {
    case Origin::tuned: return "tuned";
    case Origin::database: return "database";
    case Origin::nearest: return "nearest";
    case Origin::fallback: return "fallback";
    case Origin::assigned: return "assigned";
  }
  return "?";
}

Chooser::Chooser(runtime::Device& device, cache::Cache& cache, const tuner::Settings& settings, Policy policy)
    : device_(device),
      cache_(cache),
      policy_(policy),
      recent_(recently()),
      tuner_(device, cache, settings),
      background_([this](const Problem& problem, const std::stop_token& stop) {
        return tune_in_background(problem, stop);
      }) {}

const PlanTable::Entry& Chooser::choose(const Problem& problem, Stream stream) {
  const PlanTable::Entry* chosen = plans_.find(problem);
  if (chosen != nullptr && !chosen->choice.provisional) return *chosen;
  generator::validate(problem);
  if (in_log_sink()) {
    if (chosen != nullptr) return *chosen;
    throw Unsupported(
        fmt::format("a log sink must not make a call that chooses a kernel, here for {}: another thread that "
                    "chooses may wait for the sink",
                    generator::title(problem)));
  }
  if (has_assigned_)
    if (const PlanTable::Entry* of_ranks = assigned(problem, stream)) return *of_ranks;
  switch (policy_) {
    case Policy::frozen: return frozen(problem, stream);
    case Policy::lookup: return fallback(problem, stream, "the policy is lookup", false);
    case Policy::background:
      if (background_.has_stopped())
        return fallback(problem, stream, "tuning in the background has stopped", false);
      if (chosen == nullptr)
        chosen = &fallback(problem, stream, "the problem is not tuned yet, because the policy is background",
                           true);
      if (chosen->choice.provisional && !device_.capturing(stream))
        background_.add(generator::bucketed(problem), problem);
      return *chosen;
    case Policy::tune: break;
  }
  if (!device_.capturing(stream)) return tuned(problem, stream);
  return chosen != nullptr ? *chosen : fallback(problem, stream, "the stream is being captured", true);
}

void Chooser::use(const std::string& key, const std::string& config) {
  const std::lock_guard lock(looking_);
  assigned_[key] = config;
  has_assigned_ = true;
  plans_.forget(key, config);
}

void Chooser::stop_background() {
  background_.stop();
  // Does not wait for a thread that is tuning now; at the end of the program it may be the very thread that ends it.
  if (const auto lock = tuning_.take_until({}, Clock::now())) tuner_.finish();
}

// ---- tuning --------------------------------------------------------------------------------------------

/// If waiting for another search was in vain, or memory was too short, later calls do not wait, and only retry after a
/// pause.
const PlanTable::Entry& Chooser::tuned(const Problem& problem, Stream stream) {
  const std::string key = tuner_.key(problem).id();
  // A search takes up to twice the budget, and finishes work that has begun.
  const double patience_s = 3 * tuner_.settings().budget_s;
  auto deadline = patience_s > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                      std::chrono::duration<double>(patience_s))
                                 : Clock::time_point::max();
  bool is_elsewhere = false;
  {
    const std::lock_guard lock(looking_);
    if (const auto waited = look_again_.find(key); waited != look_again_.end()) {
      const Clock::time_point now = Clock::now();
      const PlanTable::Entry* chosen = plans_.find(problem);
      if (chosen != nullptr && now < waited->second) return *chosen;
      deadline = now;
      is_elsewhere = true;
      waited->second = now + look_again_after;
    }
  }
  if (const PlanTable::Entry* chosen = finished(problem, stream)) return *chosen;
  for (auto pause = first_pause;; pause = std::min(pause * 3 / 2, longest_pause)) {
    if (const auto lock = is_elsewhere ? tuning_.take_until(key, deadline) : tuning_.take(key, deadline)) {
      try {
        bool is_mine = true;
        if (const PlanTable::Entry* chosen = try_to_tune(problem, stream, {}, &is_mine)) {
          if (!is_mine || is_elsewhere) count_wait();
          return *chosen;
        }
      } catch (const OutOfMemory& error) {
        log_once(LogLevel::warning, fmt::format("{} is not tuned, because memory is short ({})",
                                                generator::title(problem), error.what()));
        put_off(key, memory_again_after);
        return fallback(problem, stream, "there is not enough memory to tune the problem", true);
      }
      is_elsewhere = true;
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) break;
    std::this_thread::sleep_until(std::min(now + pause, deadline));
  }
  put_off(key, look_again_after);
  count_wait();
  return fallback(problem, stream, elsewhere, true);
}

void Chooser::put_off(const std::string& key, Clock::duration pause) {
  const std::lock_guard lock(looking_);
  look_again_[key] = Clock::now() + pause;
}

/// \returns whether the problem is done
bool Chooser::tune_in_background(const Problem& problem, const std::stop_token& stop) {
  try {
    const auto lock = tuning_.take(tuner_.key(problem).id(), Clock::time_point::max());
    return try_to_tune(problem, no_stream, stop) != nullptr;
  } catch (const std::exception& error) {
    if (stop.stop_requested()) return false;
    give_up(problem, error.what());
    return true;
  }
}

/// The problem keeps its current kernel.
void Chooser::give_up(const Problem& problem, const std::string& reason) {
  const std::string title = generator::title(problem);
  log_once(LogLevel::warning,
           fmt::format("{} could not be tuned in the background and keeps its untuned kernel ({})", title,
                       reason));
  try {
    fallback(problem, no_stream, "tuning of the problem has failed: " + reason, false);
  } catch (const std::exception& error) {
    log_once(LogLevel::warning, fmt::format("{} has no untuned kernel either ({})", title, error.what()));
  }
}

/// Must be called with the tuning mutex.
/// \param is_mine  receives whether this call did the work, and not an earlier one
/// \returns nothing while another process holds the tuning lock
const PlanTable::Entry* Chooser::try_to_tune(const Problem& problem, Stream stream,
                                             const std::stop_token& stop, bool* is_mine) {
  const PlanTable::Entry* chosen = plans_.find(problem);
  if (is_mine != nullptr) *is_mine = false;
  if (chosen != nullptr && !chosen->choice.provisional) return chosen;
  const auto lock = cache_.try_tuning_lock(tuner_.key(problem));
  if (!lock) return nullptr;
  chosen = finished(problem, stream);  // by the previous holder
  if (chosen == nullptr && tuner_.ask_remote(problem)) chosen = finished(problem, stream);
  if (chosen != nullptr) return chosen;
  if (is_mine != nullptr) *is_mine = true;
  return &from_tuning(problem, stop);
}

const PlanTable::Entry& Chooser::from_tuning(const Problem& problem, const std::stop_token& stop) {
  const tuner::Report report = tuner_.tune(problem, {.progress = {}, .stop = stop});
  compiled_ += report.compiled;
  shared_counters().tuned.fetch_add(1, std::memory_order_relaxed);
  log(LogLevel::info, sentence(report, device_));
  const std::lock_guard lock(looking_);
  return put(problem, tuner::Kernel(device_, build(problem, report.winner)),
             {.origin = Origin::tuned,
              .reason = report.reason,
              .row_us = report.median_us / static_cast<double>(report.timed_rows)});
}

// ---- looking up ----------------------------------------------------------------------------------------

/// The kernel in the table, or the database's winner, if its search is finished.
const PlanTable::Entry* Chooser::finished(const Problem& problem, Stream stream) {
  const std::lock_guard lock(looking_);
  const PlanTable::Entry* chosen = plans_.find(problem);
  if (chosen != nullptr && !chosen->choice.provisional) return chosen;
  Known winner = known(problem, stream, Wanted::winner);
  return winner.kernel ? &put(problem, *std::move(winner.kernel), std::move(winner.choice)) : nullptr;
}

const PlanTable::Entry& Chooser::frozen(const Problem& problem, Stream stream) {
  if (const PlanTable::Entry* chosen = finished(problem, stream)) return *chosen;
  const std::lock_guard lock(looking_);
  if (const Known found = known(problem, stream, Wanted::winner); !found.unverified.empty())
    throw Unsupported(
        fmt::format("the winner for {} cannot be used, because this machine has not verified it: {}",
                    generator::title(problem), found.unverified));
  const std::string missing = fmt::format("{} (key {})", generator::title(problem), tuner_.key(problem).id());
  if (std::find(missing_.begin(), missing_.end(), missing) == missing_.end()) missing_.push_back(missing);
  throw NotTuned(
      fmt::format("the policy is frozen, and the database has no winner for {}: tune ahead of time with {}",
                  fmt::join(missing_, ", "), generator::sweep_command(problem)),
      missing_);
}

/// The best kernel without tuning. An entry with another reason is replaced, so that Choice::reason is true.
const PlanTable::Entry& Chooser::fallback(const Problem& problem, Stream stream, const std::string& why,
                                          bool provisional) {
  const std::lock_guard lock(looking_);
  const PlanTable::Entry* before = plans_.find(problem);
  if (before != nullptr && (!before->choice.provisional || before->choice.reason.ends_with(why)))
    return *before;
  Known best = known(problem, stream, Wanted::anything);
  if (!best.unverified.empty()) {
    const std::string unverified = "this machine has not verified the known winner: " + best.unverified;
    if (before != nullptr && before->choice.reason.ends_with(unverified)) return *before;
    best = best_known(problem, unverified);
    best.choice.provisional = true;
  } else if (!best.is_winner) {
    if (best.kernel)
      best.choice.reason += "; its search is unfinished, and " + why;
    else
      best = best_known(problem, why);
    best.choice.provisional = provisional;
  }
  return put(problem, *std::move(best.kernel), std::move(best.choice));
}

Chooser::Known Chooser::best_known(const Problem& problem, const std::string& why) {
  const auto [ranked, from_neighbours] = tuner_.untried(problem);
  Choice choice{.origin = Origin::fallback,
                .reason = "the safe default: nothing similar was tuned, and " + why};
  if (from_neighbours)
    choice = {.origin = Origin::nearest,
              .reason = "the most promising config by measurements of similar problems; " + why};
  tuner::Fallback found = tuner::fallback(device_, cache_, problem, ranked);
  compiled_ += found.compiled;
  shared_counters().fallback.fetch_add(1, std::memory_order_relaxed);
  return {.kernel = std::move(found.kernel), .choice = std::move(choice)};
}

/// The databases' best config that compiles and is right here. A config that does not or is not is quarantined, unless
/// the compiler is at fault, and the databases are asked again.
Chooser::Known Chooser::known(const Problem& problem, Stream stream, Wanted wanted) {
  std::optional<generator::Config> broken;
  while (const auto decision = tuner_.known_winner(problem)) {
    const bool serves = tuner::has_final(decision);
    if (wanted == Wanted::winner && !serves) break;
    if (wanted == Wanted::winner && policy_ != Policy::frozen && is_to_go_on(problem, *decision)) break;
    const generator::Config& config = decision->winner.config;
    try {
      Known found = from_database(problem, stream, *decision);
      found.is_winner = serves && found.kernel;
      return found;
    } catch (const CompileError& error) {
      if (config == broken) throw;  // its quarantine could not be stored
      if (!compiles_another(problem, config)) throw;
      quarantine(problem, *decision, "does not compile: " + error.log(),
                 fmt::format("does not compile on this machine and is not used; its source is {}",
                             error.source_path()));
    } catch (const WrongAnswer& error) {
      if (config == broken) throw;
      quarantine(problem, *decision, "wrong answer: " + error.mismatch,
                 "gives a wrong answer on this machine and is not used: " + error.mismatch);
    }
    broken = config;
  }
  return {};
}

/// Whether a search of this process may find a better winner: the known one's was cut short, or had too little memory.
/// A search that was cut short recently may belong to a rank of the same job, which runs its winner: all ranks must run
/// the same.
bool Chooser::is_to_go_on(const Problem& problem, const tuner::Decision& decision) const {
  if (!decision.pinned.empty()) return false;
  const cache::Measurement& winner = decision.winner.measurement;
  return (!tuner::cut_short_by(winner).empty() && winner.created_at < recent_) ||
         tuner_.is_of_short_memory(problem, decision);
}

/// Whether the compiler works at all, tried with another config.
bool Chooser::compiles_another(const Problem& problem, const generator::Config& config) {
  for (const generator::Config& other : tuner::safe_defaults(problem, device_.model())) {
    if (other == config) continue;
    cache::Cache empty = cache::Cache::in_memory();
    try {
      compiled_ += tuner::build(device_, empty, problem, other).compiled;
      return true;
    } catch (const CompileError&) {
      return false;
    }
  }
  return false;
}

/// Adds the quarantine to the user's database, even if the winner comes from a layer below.
void Chooser::quarantine(const Problem& problem, const tuner::Decision& decision, const std::string& reason,
                         const std::string& said) {
  const cache::Measurement& winner = decision.winner.measurement;
  cache_.add({.key = winner.key,
              .config = winner.config,
              .template_digest = winner.template_digest,
              .compile_key = winner.compile_key,
              .outcome = cache::Outcome::quarantined,
              .reason = tuner::kept_reason(reason),
              .environment = tuner::environment_now(device_),
              .created_at = std::max(utc_now(), winner.created_at)});  // clocks may differ
  log_once(LogLevel::warning,
           fmt::format("the known winner for {}, {}, {}", generator::title(problem), winner.config, said));
}

/// A winner from another machine or an import serves once this machine has found its answer right.
/// \throws CompileError, WrongAnswer
Chooser::Known Chooser::from_database(const Problem& problem, Stream stream,
                                      const tuner::Decision& decision) {
  const generator::Config& config = decision.winner.config;
  auto program = tuner::find_built(cache_, problem, config, decision.winner.measurement.compile_key);
  if (!program) program = build(problem, config);
  const cache::Measurement& measured = decision.winner.measurement;
  const double row_us = measured.rows > 0 ? measured.median_us / static_cast<double>(measured.rows) : 0;
  return verified(problem, stream, *program,
                  {.origin = Origin::database, .reason = decision.reason, .row_us = row_us});
}

/// \throws CompileError, WrongAnswer
Chooser::Known Chooser::verified(const Problem& problem, Stream stream, const generator::Program& program,
                                 Choice choice) {
  tuner::Kernel kernel(device_, program);
  if (!tuner::is_verified(device_, cache_, kernel)) {
    // Verification takes memory and other streams, which would end the capture.
    if (device_.capturing(stream)) return {.kernel = {}, .unverified = "the stream is being captured"};
    try {
      const std::uint64_t seed = tuner_.settings().seed;
      if (const auto wrong = tuner::verify_once(device_, cache_, problem, kernel, seed))
        throw WrongAnswer(problem, kernel.config(), *wrong);
    } catch (const OutOfMemory& error) {
      return {.kernel = {}, .unverified = error.what()};
    } catch (const DeviceError& error) {
      device_.synchronize(device_.trial_stream());  // throws if the fault has destroyed the context
      throw WrongAnswer(problem, kernel.config(), std::string("fault: ") + error.what());
    }
  }
  return {.kernel = std::move(kernel), .choice = std::move(choice)};
}

/// The config of use(), if it can run: otherwise this rank chooses for itself, and the log says why.
const PlanTable::Entry* Chooser::assigned(const Problem& problem, Stream stream) {
  const std::lock_guard lock(looking_);
  const PlanTable::Entry* before = plans_.find(problem);
  if (before != nullptr && !before->choice.provisional) return before;
  const auto known = assigned_.find(tuner_.key(problem).id());
  if (known == assigned_.end()) return nullptr;
  std::string why;
  try {
    const generator::Config config = generator::parse_config(known->second);
    if (const auto refusal = tuner_.why_not(problem, config)) {
      why = *refusal;
    } else {
      Known found =
          verified(problem, stream, build(problem, config),
                   {.origin = Origin::assigned, .reason = "the rank that decides for all ranks uses it"});
      if (found.kernel) return &put(problem, *std::move(found.kernel), std::move(found.choice));
      if (device_.capturing(stream)) return nullptr;  // a later call tries again
      why = found.unverified;
    }
  } catch (const Error& error) {
    why = error.what();
  }
  log_once(LogLevel::warning,
           fmt::format("{}, which another rank uses for {}, cannot be used on this rank: {}", known->second,
                       generator::title(problem), why));
  assigned_.erase(known);
  return nullptr;
}

generator::Program Chooser::build(const Problem& problem, const generator::Config& config) {
  generator::Program program = tuner::build(device_, cache_, problem, config);
  compiled_ += program.compiled;
  if (program.compiled > 0) tuner::keep(cache_, program.sources);
  return program;
}

/// Adds a kernel to the table, and completes its Choice by config and key. The entry is provisional if use() named
/// another config meanwhile, or one that could not be loaded yet. An equal entry is not added again: the table never
/// removes entries.
const PlanTable::Entry& Chooser::put(const Problem& problem, tuner::Kernel kernel, Choice choice) {
  choice.config = generator::to_text(kernel.config());
  choice.key = tuner_.key(problem).id();
  if (const auto known = assigned_.find(choice.key);
      known != assigned_.end() && choice.origin != Origin::assigned)
    choice.provisional |= known->second != choice.config;
  if (const PlanTable::Entry* before = plans_.find(problem); before != nullptr && before->choice == choice)
    return *before;
  return plans_.put(problem, std::move(kernel), std::move(choice));
}

}  // namespace ce
