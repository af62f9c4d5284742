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
#include "tuner/ranking.hpp"
#include "tuner/serving.hpp"

namespace ce {
namespace {

using generator::Problem;
using namespace std::chrono_literals;

/// Between two looks at a tuning lock that another process holds: the first, and the longest.
constexpr std::chrono::milliseconds first_pause = 2ms, longest_pause = 100ms;

/// Between two looks of calls that have waited in vain before.
constexpr std::chrono::milliseconds look_again_after = 250ms;

/// Before a problem is tuned that memory was too short for.
constexpr std::chrono::seconds memory_again_after = 60s;

/// Processes that begin within that time of each other may be ranks of one job.
constexpr std::chrono::minutes ranks_begin_within = 10min;

std::string recently() {
  const auto since = std::chrono::system_clock::now() - ranks_begin_within;
  return utc_text({.tv_sec = std::chrono::system_clock::to_time_t(since), .tv_nsec = 0});
}

/// Of a call that knows of none: no stream of its thread is captured.
constexpr Stream no_stream = nullptr;

/// A kernel of a database that this machine found wrong.
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
    case Origin::told: return "told";
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
        fmt::format("a log sink cannot choose a kernel for {}: a thread that chooses may wait for the sink",
                    generator::title(problem)));
  }
  if (is_told_)
    if (const PlanTable::Entry* of_ranks = told(problem, stream)) return *of_ranks;
  switch (policy_) {
    case Policy::frozen: return frozen(problem, stream);
    case Policy::lookup: return fallback(problem, stream, "the policy is lookup", false);
    case Policy::background:
      if (background_.has_stopped())
        return fallback(problem, stream, "tuning in the background has ended", false);
      if (chosen == nullptr)
        chosen = &fallback(problem, stream, "it is not tuned yet: the policy is background", true);
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
  told_[key] = config;
  is_told_ = true;
  plans_.forget(key, config);
}

void Chooser::stop_background() {
  background_.stop();
  // Who tunes at this moment, at the end of the program perhaps the very thread that ends it, is not waited for.
  if (const auto turn = turns_.take_until({}, Clock::now())) tuner_.finish();
}

// ---- tuning --------------------------------------------------------------------------------------------

/// Where waiting for the search of another was in vain, or memory too short, later calls do not wait, and do not look at
/// each call.
const PlanTable::Entry& Chooser::tuned(const Problem& problem, Stream stream) {
  const std::string key = tuner_.key(problem).id();
  // Who tunes takes up to twice the budget, and ends what has begun.
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
    if (const auto turn = is_elsewhere ? turns_.take_until(key, deadline) : turns_.take(key, deadline)) {
      try {
        bool is_mine = true;
        if (const PlanTable::Entry* chosen = try_to_tune(problem, stream, {}, &is_mine)) {
          if (!is_mine || is_elsewhere) count_wait();
          return *chosen;
        }
      } catch (const OutOfMemory& error) {
        log_once(LogLevel::warning, fmt::format("{} is not tuned for want of memory ({})",
                                                generator::title(problem), error.what()));
        put_off(key, memory_again_after);
        return fallback(problem, stream, "memory is too short to tune it", true);
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

/// \returns whether nothing is left to do for the problem
bool Chooser::tune_in_background(const Problem& problem, const std::stop_token& stop) {
  try {
    const auto turn = turns_.take(tuner_.key(problem).id(), Clock::time_point::max());
    return try_to_tune(problem, no_stream, stop) != nullptr;
  } catch (const std::exception& error) {
    if (stop.stop_requested()) return false;
    give_up(problem, error.what());
    return true;
  }
}

/// The problem stays with what it has.
void Chooser::give_up(const Problem& problem, const std::string& reason) {
  const std::string title = generator::title(problem);
  log_once(
      LogLevel::warning,
      fmt::format("{} could not be tuned in the background and stays with its default ({})", title, reason));
  try {
    fallback(problem, no_stream, "its tuning has failed: " + reason, false);
  } catch (const std::exception& error) {
    log_once(LogLevel::warning, fmt::format("{} has no other kernel either ({})", title, error.what()));
  }
}

/// For the thread that has the turn.
/// \param is_mine  receives whether this call did what there was to do, and not another before it
/// \returns nothing while another process holds the tuning lock
const PlanTable::Entry* Chooser::try_to_tune(const Problem& problem, Stream stream,
                                             const std::stop_token& stop, bool* is_mine) {
  const PlanTable::Entry* chosen = plans_.find(problem);
  if (is_mine != nullptr) *is_mine = false;
  if (chosen != nullptr && !chosen->choice.provisional) return chosen;
  const auto lock = cache_.try_tuning_lock(tuner_.key(problem));
  if (!lock) return nullptr;
  chosen = finished(problem, stream);  // by its holder before
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

/// What the table or the database has, if its search came to an end.
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
    throw Unsupported(fmt::format("the winner for {} is not used before this machine has verified it: {}",
                                  generator::title(problem), found.unverified));
  const std::string missing = fmt::format("{} (key {})", generator::title(problem), tuner_.key(problem).id());
  if (std::find(missing_.begin(), missing_.end(), missing) == missing_.end()) missing_.push_back(missing);
  throw NotTuned(
      fmt::format("the policy is frozen, and the database has no winner for {}: tune ahead of time with {}",
                  fmt::join(missing_, ", "), generator::sweep_command(problem)),
      missing_);
}

/// The best that there is without tuning; what was put for another reason is replaced, so that Choice::reason
/// tells the truth.
const PlanTable::Entry& Chooser::fallback(const Problem& problem, Stream stream, const std::string& why,
                                          bool provisional) {
  const std::lock_guard lock(looking_);
  const PlanTable::Entry* before = plans_.find(problem);
  if (before != nullptr && (!before->choice.provisional || before->choice.reason.ends_with(why)))
    return *before;
  Known best = known(problem, stream, Wanted::anything);
  if (!best.unverified.empty()) {
    const std::string unverified = "what is known is not verified on this machine: " + best.unverified;
    if (before != nullptr && before->choice.reason.ends_with(unverified)) return *before;
    best = best_known(problem, unverified);
    best.choice.provisional = true;
  } else if (!best.is_winner) {
    if (best.kernel)
      best.choice.reason += "; its tuning did not come to an end, and " + why;
    else
      best = best_known(problem, why);
    best.choice.provisional = provisional;
  }
  return put(problem, *std::move(best.kernel), std::move(best.choice));
}

Chooser::Known Chooser::best_known(const Problem& problem, const std::string& why) {
  const auto [ranked, from_neighbours] = tuner_.untried(problem);
  Choice choice{.origin = Origin::fallback, .reason = "the safe default: nothing is known and " + why};
  if (from_neighbours)
    choice = {.origin = Origin::nearest,
              .reason = "the most promising, by what is known of near problems; " + why};
  tuner::Fallback found = tuner::fallback(device_, cache_, problem, ranked);
  compiled_ += found.compiled;
  shared_counters().fallback.fetch_add(1, std::memory_order_relaxed);
  return {.kernel = std::move(found.kernel), .choice = std::move(choice)};
}

/// What the databases say is best, compiles here and is right here: what is not is quarantined, where the compiler is not
/// at fault, and they are asked again.
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
      if (config == broken) throw;  // its quarantine could not be kept
      if (!compiles_another(problem, config)) throw;
      quarantine(problem, *decision, "does not compile: " + error.log(),
                 fmt::format("does not compile here and is left out; its source is {}", error.source_path()));
    } catch (const WrongAnswer& error) {
      if (config == broken) throw;
      quarantine(problem, *decision, "wrong answer: " + error.mismatch,
                 "gives a wrong answer here and is left out: " + error.mismatch);
    }
    broken = config;
  }
  return {};
}

/// Whether a search of this process may find a better one: that of what is known was cut short, or had too little memory.
/// One that was cut short lately may be of a rank of the same job, which runs what it found: all ranks are to run the same.
bool Chooser::is_to_go_on(const Problem& problem, const tuner::Decision& decision) const {
  if (!decision.pinned.empty()) return false;
  const cache::Measurement& winner = decision.winner.measurement;
  return (!tuner::cut_short_by(winner).empty() && winner.created_at < recent_) ||
         tuner_.is_of_short_memory(problem, decision);
}

/// Whether the compiler works at all.
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

/// In the user's database, also where the winner is of one below it.
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
              .created_at = std::max(utc_now(), winner.created_at)});  // clocks differ; it comes after
  log_once(LogLevel::warning, fmt::format("the winner that is known for {}, {}, {}",
                                          generator::title(problem), winner.config, said));
}

/// What another machine measured, or an import says, serves once this one has seen that its answer is right.
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
    // That takes memory and other streams, which would end the capture.
    if (device_.capturing(stream)) return {.kernel = {}, .unverified = "the stream is being captured"};
    try {
      const std::uint64_t seed = tuner_.settings().seed;
      if (const auto wrong = tuner::verify_once(device_, cache_, problem, kernel, seed))
        throw WrongAnswer(problem, kernel.config(), *wrong);
    } catch (const OutOfMemory& error) {
      return {.kernel = {}, .unverified = error.what()};
    } catch (const DeviceError& error) {
      device_.synchronize(device_.trial_stream());  // throws where the fault has taken the context with it
      throw WrongAnswer(problem, kernel.config(), std::string("fault: ") + error.what());
    }
  }
  return {.kernel = std::move(kernel), .choice = std::move(choice)};
}

/// What use() was told, if it can run: else this rank chooses for itself, and the log says why.
const PlanTable::Entry* Chooser::told(const Problem& problem, Stream stream) {
  const std::lock_guard lock(looking_);
  const PlanTable::Entry* before = plans_.find(problem);
  if (before != nullptr && !before->choice.provisional) return before;
  const auto known = told_.find(tuner_.key(problem).id());
  if (known == told_.end()) return nullptr;
  std::string why;
  try {
    const generator::Config config = generator::parse_config(known->second);
    if (const auto refusal = tuner_.why_not(problem, config)) {
      why = *refusal;
    } else {
      Known found = verified(problem, stream, build(problem, config),
                             {.origin = Origin::told, .reason = "the rank that decides for all runs it"});
      if (found.kernel) return &put(problem, *std::move(found.kernel), std::move(found.choice));
      if (device_.capturing(stream)) return nullptr;  // a later call looks again
      why = found.unverified;
    }
  } catch (const Error& error) {
    why = error.what();
  }
  log_once(LogLevel::warning, fmt::format("{}, which another rank runs for {}, does not serve here: {}",
                                          known->second, generator::title(problem), why));
  told_.erase(known);
  return nullptr;
}

generator::Program Chooser::build(const Problem& problem, const generator::Config& config) {
  generator::Program program = tuner::build(device_, cache_, problem, config);
  compiled_ += program.compiled;
  if (program.compiled > 0) tuner::keep(cache_, program.sources);
  return program;
}

/// With what the Choice says of any kernel: its config and key. It gives way to what use() was told during the search that
/// found it, or of which nothing could be loaded yet. What the table has already it gets no second time: it forgets nothing.
const PlanTable::Entry& Chooser::put(const Problem& problem, tuner::Kernel kernel, Choice choice) {
  choice.config = generator::to_text(kernel.config());
  choice.key = tuner_.key(problem).id();
  if (const auto known = told_.find(choice.key); known != told_.end() && choice.origin != Origin::told)
    choice.provisional |= known->second != choice.config;
  if (const PlanTable::Entry* before = plans_.find(problem); before != nullptr && before->choice == choice)
    return *before;
  return plans_.put(problem, std::move(kernel), std::move(choice));
}

}  // namespace ce
