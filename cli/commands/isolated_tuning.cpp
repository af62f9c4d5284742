#include "cli/commands/isolated_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "cli/commands/conversation.hpp"
#include "generator/config.hpp"
#include "generator/source.hpp"
#include "runtime/workers/channel.hpp"
#include "runtime/workers/process.hpp"
#include "tuner/bench.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"
#include "tuner/quarantine_reason.hpp"

namespace ce::cli {
namespace {

using runtime::cuda::Channel;
using runtime::cuda::Deadline;
using runtime::cuda::no_deadline;
using runtime::cuda::ProcessEnd;
using runtime::cuda::Transfer;
using runtime::cuda::WorkerProcess;

// The conversation: the parent sends a job; the worker sends any number of "launching" (a config), "launched" and
// "progress", and finally "effort" or "error".

/// \throws DatabaseError if one process does not find what the other wrote
void require_shared(const cache::Cache& cache) {
  const cache::Status status = cache.status();
  if (!status.persistent)
    throw DatabaseError("--isolate needs a database that both processes can write to: " + status.problem);
}

/// A worker's device and database, kept from job to job.
struct Bench {
  std::unique_ptr<runtime::Device> device;
  cache::Cache cache;
};

/// \throws what Tuner::search() throws
tuner::Effort tune(const Json& job, std::optional<Bench>& bench, Channel& channel) {
  if (!bench)
    bench = Bench{ce::open_device(job.at("device").get<std::string>()),
                  cache::Cache::open(path_in(job.at("database")))};
  require_shared(bench->cache);
  generator::Problem problem = generator::parse_key_text(job.at("problem").get<std::string>());
  problem.rows = job.at("rows");
  const TuningOptions options{.configs = job.at("configs"),
                              .scratch = job.at("scratch"),
                              .strategy = job.at("strategy"),
                              .samples = job.at("samples")};
  tuner::Settings settings = settings_of(options, bench->device->model());
  settings.budget_s = job.at("budget_s");
  settings.end = deadline_in(job.at("left_s"));
  settings.again = job.at("again");
  const tuner::Hooks hooks{.progress =
                               [&](const tuner::Progress& progress) {
                                 send(channel, {{"progress", words_of(progress)}});
                               },
                           .first_launch =
                               [&](std::string_view config, bool begins) {
                                 send(channel, {{begins ? "launching" : "launched", config}});
                               }};
  return tuner::Tuner(*bench->device, bench->cache, settings).search(problem, hooks);
}

/// Whether the process died by its own fault. Otherwise the user or the system ended it, for example when memory was
/// short.
bool is_own_end(const ProcessEnd& end) {
  constexpr std::array faults{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
  return end.exited || end.by_owner ||  // it had closed the connection and did not end
         std::find(faults.begin(), faults.end(), end.signal) != faults.end();
}

}  // namespace

// ---- the parent ----------------------------------------------------------------------------------------

class IsolatedTuning::Worker {
 public:
  Worker() : process_("/proc/self/exe", tuning_worker_argument) {}

  /// The end of a search.
  struct Ending {
    std::optional<tuner::Effort> effort{};  ///< set if the search ended normally
    std::optional<Error> error{};           ///< the error that it threw
    std::string killer{};    ///< the config whose first launch killed the process; empty for none
    std::string how{};       ///< how the process ended, in words
    bool by_others = false;  ///< the user or system ended it, and no config is to blame
  };

  Ending tune(const Json& job, std::chrono::milliseconds launch_limit, const tuner::Hooks& hooks) {
    Channel& channel = process_.channel();
    const std::stop_callback stop(hooks.stop, [&] { channel.shut_down(); });
    std::string launching;
    Deadline deadline = no_deadline;
    Transfer transfer = send(channel, job);
    while (transfer == Transfer::done) {
      const auto words = receive(channel, transfer, deadline);
      if (!words) break;
      if (words->contains("progress")) {
        if (hooks.progress) hooks.progress(progress_in(words->at("progress")));
      } else if (words->contains("launching")) {
        launching = words->at("launching");
        deadline = std::chrono::steady_clock::now() + launch_limit;
      } else if (words->contains("launched")) {
        launching.clear();
        deadline = no_deadline;
      } else if (words->contains("effort")) {
        const Json& effort = words->at("effort");
        return {.effort = tuner::Effort{.configs = effort.at("configs"),
                                        .known = effort.at("known"),
                                        .compiled = effort.at("compiled"),
                                        .seconds = effort.at("seconds")}};
      } else {
        return {.error = error_in(*words)};
      }
    }
    if (hooks.stop.stop_requested())
      return {.error = Error(ErrorKind::interrupted, "stopped on request; what was measured is kept")};
    if (transfer == Transfer::late)
      return {.killer = launching,
              .how = fmt::format("did not end within {:g} s",
                                 std::chrono::duration<double>(launch_limit).count())};
    const ProcessEnd end = process_.end(patience);
    const bool by_others = !is_own_end(end);
    return {.killer = by_others ? "" : launching,
            .how = fmt::format("the process that launched it {}", end.words),
            .by_others = by_others};
  }

 private:
  static constexpr std::chrono::milliseconds patience{1000};

  WorkerProcess process_;
};

IsolatedTuning::IsolatedTuning(const runtime::Device& device, cache::Cache& cache, TuningOptions options,
                               std::chrono::milliseconds launch_limit)
    : device_(device), cache_(cache), options_(std::move(options)), launch_limit_(launch_limit) {}

IsolatedTuning::~IsolatedTuning() = default;

Json IsolatedTuning::job(const generator::Problem& problem, const tuner::Settings& settings) const {
  return {{"device", device_.name()},
          {"database", path_words(cache_.status().path)},
          {"problem", generator::key_text(problem)},
          {"rows", problem.rows},
          {"budget_s", settings.budget_s},
          {"left_s", deadline_words(settings.end)},
          {"again", settings.again},
          {"configs", options_.configs},
          {"scratch", options_.scratch},
          {"strategy", options_.strategy},
          {"samples", options_.samples}};
}

void IsolatedTuning::quarantine(const generator::Problem& problem, const std::string& config,
                                const std::string& reason) {
  cache_.add(cache::Measurement{
      .key = tuner::key_of(problem, device_.model()),
      .config = config,
      .template_digest = generator::template_digest(problem.operation, tuner::variant_of(config)),
      .outcome = cache::Outcome::quarantined,
      .reason = tuner::kept_reason(reason),
      .environment = tuner::environment_now(device_)});
}

tuner::Effort IsolatedTuning::tune(const generator::Problem& problem, const tuner::Settings& settings,
                                   const tuner::Hooks& hooks) {
  require_shared(cache_);
  tuner::Effort all;
  bool may_be_ended = true;  // others may end the process once
  for (bool first = true;; first = false) {
    if (!worker_) worker_ = std::make_unique<Worker>();
    const auto rejected = [&] {
      const auto known = cache_.measurements(tuner::key_of(problem, device_.model()));
      return std::count_if(known.begin(), known.end(), [](const cache::Measurement& measurement) {
        return measurement.outcome == cache::Outcome::quarantined;
      });
    };
    const auto before = rejected();
    const Worker::Ending ending = worker_->tune(job(problem, settings), launch_limit_, hooks);
    if (ending.effort) {
      if (first) return *ending.effort;
      all.configs = ending.effort->configs;
      all.compiled += ending.effort->compiled;
      all.seconds += ending.effort->seconds;
      return all;
    }
    worker_.reset();
    if (ending.by_others && std::exchange(may_be_ended, false)) continue;
    if (!ending.killer.empty()) {
      quarantine(problem, ending.killer, ending.how);
      // A process that did not find the quarantine would launch the config again, and so would all after it.
      cache_.flush(patience_at_end);
      require_shared(cache_);
      continue;
    }
    if (!ending.error)
      throw Error(
          ErrorKind::device,
          fmt::format("tuning {}: {}, {}", generator::title(problem), ending.how,
                      ending.by_others ? "as the one before was; no config does that" : "between launches"));
    // After a fault that destroyed the context, the config is quarantined, and a new process continues.
    if (ending.error->kind() == ErrorKind::device && rejected() > before) continue;
    throw Error(*ending.error);
  }
}

// ---- the worker ----------------------------------------------------------------------------------------

int tuning_worker_main(int in, int out) {
  std::optional<Bench> bench;
  return answer_jobs(in, out, tuning_worker_argument, [&](const Json& job, Channel& channel) -> Json {
    const tuner::Effort effort = tune(job, bench, channel);
    bench->cache.flush(patience_at_end);
    return {{"effort",
             {{"configs", effort.configs},
              {"known", effort.known},
              {"compiled", effort.compiled},
              {"seconds", effort.seconds}}}};
  });
}

}  // namespace ce::cli
