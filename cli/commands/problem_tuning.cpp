#include "cli/commands/problem_tuning.hpp"

#include <algorithm>
#include <utility>

#include "cli/commands/tuning_lock_wait.hpp"
#include "cli/options.hpp"
#include "tuner/decide.hpp"

namespace ce::cli {
namespace {

tuner::Settings settings_for(const SearchOptions& options, const runtime::Device& device) {
  tuner::Settings settings = settings_of(options.tuning, device.model());
  settings.again = options.retune;
  settings.end = options.end;
  return settings;
}

}  // namespace

ProblemTuning::ProblemTuning(runtime::Device& device, cache::Cache& cache, const SearchOptions& options,
                             Processes processes)
    : cache_(cache),
      tuner_(device, cache, settings_for(options, device)),
      processes_(processes),
      most_s_(tuner_.settings().budget_s),
      end_(options.end) {
  if (options.launch_limit) isolated_.emplace(device, cache, options.tuning, *options.launch_limit);
}

std::optional<double> ProblemTuning::share() const {
  if (end_ == std::chrono::steady_clock::time_point::max()) return most_s_;
  const double left = std::chrono::duration<double>(end_ - std::chrono::steady_clock::now()).count();
  if (left <= 0) return std::nullopt;
  return most_s_ > 0 ? std::min(most_s_, left) : left;
}

std::optional<cache::TuningLock> ProblemTuning::tuning_lock(const cache::Key& key, bool waits,
                                                            const tuner::Hooks& hooks) const {
  if (!waits) return cache_.try_tuning_lock(key);
  return wait_for_tuning_lock(cache_, key, hooks.stop, end_, [&] {
    if (hooks.progress) hooks.progress({.stage = "waiting for another process"});
  });
}

bool ProblemTuning::tune(SweptProblem& swept, bool waits, const tuner::Hooks& hooks) {
  if (!share()) {
    report_known(swept, hooks);
    return true;
  }
  std::optional<cache::TuningLock> lock;
  const bool go_on = attempt(swept.failure, [&] {
    lock = tuning_lock(swept.key, waits, hooks);
    swept.is_tuned_elsewhere = !lock;
    if (lock) search(swept, hooks);
  });
  write_for_others();
  return go_on;
}

void ProblemTuning::search(SweptProblem& swept, const tuner::Hooks& hooks) {
  const std::optional<double> seconds = share();
  if (!seconds) return;
  tuner_.set_budget(*seconds);
  const tuner::Effort effort = isolated_ ? isolated_->tune(swept.problem, tuner_.settings(), hooks)
                                         : tuner_.search(swept.problem, hooks);
  if (!share() && !tuner_.known_winner(swept.problem)) return;
  report(swept, tuner_.report(swept.problem, effort), hooks);
}

bool ProblemTuning::search_ceiling(SweptCeiling& swept, bool waits, const tuner::Hooks& hooks) {
  std::optional<cache::TuningLock> lock;
  const bool go_on = attempt(swept.failure, [&] {
    lock = tuning_lock(tuner_.key(tuner_.ceiling_problem(swept.kind)), waits, hooks);
    swept.is_tuned_elsewhere = !lock;
    if (lock) swept.is_searched = tuner_.search_ceiling(swept.kind, hooks);
  });
  write_for_others();
  return go_on;
}

bool ProblemTuning::time_ceiling(SweptCeiling& swept) {
  return attempt(swept.failure, [&] { swept.gbs = tuner_.time_ceiling(swept.kind); });
}

/// Called while holding the tuning lock: otherwise the next holder would repeat measurements that the file does not
/// have.
void ProblemTuning::write_for_others() const {
  if (processes_ == Processes::several) cache_.flush(patience_at_end);
}

void ProblemTuning::report(SweptProblem& swept, tuner::Report report, const tuner::Hooks& hooks) {
  swept.report = std::move(report);
  if (processes_ == Processes::one) swept.report->ceiling_gbs = tuner_.ceiling(swept.problem, hooks);
}

void ProblemTuning::report_known(SweptProblem& swept, const tuner::Hooks& hooks) {
  std::optional<Failure> none;  // a problem that cannot be reported was not reached
  static_cast<void>(attempt(none, [&] {
    if (auto known = tuner_.known_report(swept.problem)) report(swept, *std::move(known), hooks);
  }));
}

std::vector<tuner::Candidate> best_of(const cache::Cache& cache, const SweptProblem& swept,
                                      std::size_t most) {
  if (most == 0 || !swept.report) return {};
  auto decision = tuner::decide(cache.measurements(swept.key), swept.problem.operation);
  if (!decision) return {};
  std::vector<tuner::Candidate> best = std::move(decision->ranking);
  best.resize(std::min(best.size(), most));
  return best;
}

}  // namespace ce::cli
