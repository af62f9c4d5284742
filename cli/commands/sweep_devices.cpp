#include "cli/commands/sweep_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "cli/commands/sweep_worker.hpp"
#include "cli/units.hpp"
#include "runtime/workers/settings.hpp"
#include "tuner/bench.hpp"
#include "tuner/key.hpp"

namespace ce::cli {
namespace {

/// Divides the processors among the processes' compilers.
void share_compilers(std::size_t devices) {
  constexpr const char* variable = "CE_COMPILE_WORKERS";
  if (environment_variable(variable)) return;
  const int each = runtime::cuda::workers_for(runtime::cuda::processors(), static_cast<int>(devices));
  ::setenv(variable, fmt::to_string(each).c_str(), 0);
}

/// Calls work(0) to work(count - 1) on a thread each; throws the first error once all have ended.
void for_each_thread(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        try {
          work(i);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void require_one_model(const std::vector<std::unique_ptr<SweepWorker>>& workers) {
  const SweepWorker& first = *workers.front();
  for (const auto& worker : workers)
    if (worker->model().key() != first.model().key())
      throw InvalidArgument(
          "--device", in_quotes(worker->device()),
          fmt::format("a device of the same model as {}, {}, not {}, because a winner belongs to one model",
                      first.device(), first.model().name, worker->model().name));
}

/// The kinds of ceilings that the problems are compared with.
std::vector<generator::Operation> ceilings_of(const std::vector<SweptProblem>& problems) {
  std::set<generator::Operation> kinds;
  for (const SweptProblem& swept : problems) kinds.insert(tuner::ceiling_kind(swept.problem));
  return {kinds.begin(), kinds.end()};
}

/// Indices of the problems. The longest ones must not start last, when other devices have nothing left to do.
std::vector<std::size_t> most_bytes_first(const std::vector<SweptProblem>& problems) {
  std::vector<std::size_t> order(problems.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t problem) {
    return generator::traffic(problems[problem].problem).total();
  });
  return order;
}

/// State shared by the threads. The queue's jobs are the searches of ceilings, then the problems.
struct Shared {
  std::vector<generator::Operation> ceilings;
  std::vector<std::size_t> problems;  ///< indices in the list
  WorkQueue queue;
  std::mutex mutex;  ///< guards the run's failure and `searched`
  std::set<generator::Operation> searched;
  SweepObserver& observer;
  SweepResult& result;
  std::stop_token stop;
};

void note_failure(Shared& shared, const Failure& failure, bool decides) {
  const std::lock_guard lock(shared.mutex);
  if (decides || !shared.result.run.failure) shared.result.run.failure = failure;
}

/// One device of the sweep, on its own thread.
class Lane {
 public:
  Lane(std::size_t lane, SweepWorker& worker, Shared& shared)
      : lane_(lane), worker_(worker), shared_(shared) {}

  /// Takes jobs until there are none, or its process dies; then times its ceilings.
  void run() {
    while (const auto job = shared_.queue.take()) {
      const std::size_t ceilings = shared_.ceilings.size();
      const bool lives = job->index < ceilings ? search_ceiling(*job, shared_.ceilings[job->index])
                                               : tune(*job, shared_.problems[job->index - ceilings]);
      if (!lives) return;
    }
    time_ceilings();
  }

 private:
  bool tune(const WorkQueue::Job& job, std::size_t problem) {
    SweptProblem& swept = shared_.result.problems[problem];
    swept.device = worker_.device();
    shared_.observer.begin(problem, shared_.result.problems.size(), swept, lane_);
    const SweepWorker::End end = worker_.tune(swept, job.waits, hooks());
    if (end == SweepWorker::End::died) {
      const bool again = shared_.queue.give_back(job.index);
      const Failure death =
          die(again ? "its problem goes to another device"
                    : "its problem is given up, because a process of another device died of it, too",
              !again);
      if (!again) swept.failure = death;
      return false;
    }
    if (swept.report) {
      ++device().problems;
      tuned_.push_back(problem);
    }
    conclude(job, swept, end);
    return true;
  }

  bool search_ceiling(const WorkQueue::Job& job, generator::Operation kind) {
    SweptCeiling swept{.kind = kind};
    shared_.observer.begin(swept, shared_.result.problems.size(), lane_);
    const SweepWorker::End end = worker_.search_ceiling(swept, job.waits, hooks());
    if (end == SweepWorker::End::died) {
      const bool again = shared_.queue.give_back(job.index);
      die(fmt::format("the {} {}", title_of(swept),
                      again ? "goes to another device"
                            : "is given up, because a process of another device died of it, too"),
          false);
      return false;
    }
    if (swept.is_searched) {
      const std::lock_guard lock(shared_.mutex);
      shared_.searched.insert(kind);
    }
    conclude(job, swept, end);
    return true;
  }

  /// Times the searched ceilings, for the reports of its problems.
  void time_ceilings() {
    std::map<generator::Operation, double> gbs;
    for (const generator::Operation kind : searched_of_its_problems()) {
      if (shared_.stop.stop_requested()) break;
      SweptCeiling swept{.kind = kind};
      const SweepWorker::End end = worker_.time_ceiling(swept, shared_.stop);
      if (end == SweepWorker::End::died) {
        die("its problems are shown without a ceiling", false);
        return;
      }
      gbs[kind] = swept.gbs;
      if (!swept.failure) continue;
      shared_.observer.finish(swept, lane_);
      note_failure(shared_, *swept.failure, end == SweepWorker::End::stop);
      if (end == SweepWorker::End::stop) break;
    }
    for (const std::size_t problem : tuned_) {
      SweptProblem& swept = shared_.result.problems[problem];
      if (const auto timed = gbs.find(tuner::ceiling_kind(swept.problem)); timed != gbs.end())
        swept.report->ceiling_gbs = timed->second;
    }
  }

  [[nodiscard]] std::set<generator::Operation> searched_of_its_problems() const {
    const std::lock_guard lock(shared_.mutex);
    std::set<generator::Operation> kinds;
    for (const std::size_t problem : tuned_) {
      const generator::Operation kind = tuner::ceiling_kind(shared_.result.problems[problem].problem);
      if (shared_.searched.contains(kind)) kinds.insert(kind);
    }
    return kinds;
  }

  /// \param then    what happens to its job
  /// \param counts  whether a problem is finished by it
  /// \returns the failure
  Failure die(std::string_view then, bool counts) {
    Failure death =
        describe(Error(ErrorKind::device, fmt::format("{}: {}", worker_.device(), worker_.died_of())));
    device().failure = death;
    note_failure(shared_, death, false);
    shared_.observer.died(death, then, counts, lane_);
    return death;
  }

  template <class Swept>
  void conclude(const WorkQueue::Job& job, const Swept& swept, SweepWorker::End end) {
    shared_.observer.finish(swept, lane_);
    const bool stops = end == SweepWorker::End::stop;
    if (swept.failure) note_failure(shared_, *swept.failure, stops);
    if (stops) shared_.queue.stop();
    if (!stops && swept.is_tuned_elsewhere && !job.waits)
      shared_.queue.skip(job.index);
    else
      shared_.queue.finish(job.index);
  }

  [[nodiscard]] SweptDevice& device() const { return shared_.result.devices[lane_]; }
  [[nodiscard]] tuner::Hooks hooks() const {
    return {.progress = [this](const tuner::Progress& progress) { shared_.observer.update(progress, lane_); },
            .stop = shared_.stop};
  }

  std::size_t lane_;
  SweepWorker& worker_;
  Shared& shared_;
  std::vector<std::size_t> tuned_;  ///< problems that it has a report of
};

}  // namespace

std::vector<std::string> device_list(const std::string& text, int gpus) {
  constexpr const char* argument = "--device";
  std::vector<std::string> devices;
  if (text == "cuda:all") {
    if (gpus == 0) throw DeviceError("opening cuda:all", 0, "this machine has no GPU");
    for (int i = 0; i < gpus; ++i) devices.push_back(fmt::format("cuda:{}", i));
    return devices;
  }
  if (text.find(',') == std::string::npos) return {text};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (name == "cuda") name = "cuda:0";
    try {
      check_device_name(argument, name);
    } catch (const InvalidArgument&) {
      throw InvalidArgument(argument, in_quotes(text),
                            "cuda:all, or cuda, cuda:N or host, separated by commas");
    }
    if (name != "host" && std::find(devices.begin(), devices.end(), name) != devices.end())
      throw InvalidArgument(argument, in_quotes(text), fmt::format("{} once", name));
    devices.push_back(std::move(name));
    begin = end + 1;
  }
  return devices;
}

WorkQueue::WorkQueue(std::size_t jobs) {
  for (std::size_t i = 0; i < jobs; ++i) open_.push_back(i);
}

std::optional<WorkQueue::Job> WorkQueue::take() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopped_) return std::nullopt;
    for (std::deque<std::size_t>* const list : {&open_, &skipped_}) {
      if (list->empty()) continue;
      const Job job{list->front(), list == &skipped_};
      list->pop_front();
      ++taken_;
      return job;
    }
    if (taken_ == 0) return std::nullopt;
    changed_.wait(lock);
  }
}

void WorkQueue::finish(std::size_t) {
  const std::lock_guard lock(mutex_);
  --taken_;
  changed_.notify_all();
}

void WorkQueue::skip(std::size_t job) {
  const std::lock_guard lock(mutex_);
  --taken_;
  skipped_.push_back(job);
  changed_.notify_all();
}

bool WorkQueue::give_back(std::size_t job) {
  const std::lock_guard lock(mutex_);
  --taken_;
  changed_.notify_all();
  if (!given_back_.insert(job).second) return false;
  open_.push_front(job);
  return true;
}

void WorkQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void tune_on_devices(const std::vector<std::string>& devices, const std::filesystem::path& database,
                     const SearchOptions& options, SweepObserver& observer, const std::stop_token& stop,
                     SweepResult& result) {
  share_compilers(devices.size());
  std::vector<std::unique_ptr<SweepWorker>> workers(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) workers[i] = std::make_unique<SweepWorker>(devices[i]);
  for_each_thread(workers.size(), [&](std::size_t i) { workers[i]->open(database, options, stop); });
  require_one_model(workers);
  result.run.model = workers.front()->model();
  result.run.environment = workers.front()->environment();
  for (const auto& worker : workers)
    result.devices.push_back({.device = worker->device(), .environment = worker->environment()});
  for (SweptProblem& swept : result.problems)
    swept.key = tuner::key_of(swept.problem, workers.front()->model());
  std::vector<generator::Operation> ceilings = ceilings_of(result.problems);
  const std::size_t jobs = ceilings.size() + result.problems.size();
  Shared shared{.ceilings = std::move(ceilings),
                .problems = most_bytes_first(result.problems),
                .queue = WorkQueue(jobs),
                .mutex = {},
                .searched = {},
                .observer = observer,
                .result = result,
                .stop = stop};
  for_each_thread(workers.size(), [&](std::size_t i) {
    try {
      Lane(i, *workers[i], shared).run();
      workers[i].reset();  // all at the same time: a process that was stopped takes a second
    } catch (...) {
      shared.queue.stop();
      throw;
    }
  });
}

}  // namespace ce::cli
