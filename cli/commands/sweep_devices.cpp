#include "cli/commands/sweep_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "cli/commands/sweep_worker.hpp"
#include "cli/units.hpp"
#include "runtime/workers/settings.hpp"
#include "tuner/key.hpp"

namespace ce::cli {
namespace {

/// The processes share the processors for their compilers.
void share_compilers(std::size_t devices) {
  constexpr const char* variable = "CE_COMPILE_WORKERS";
  if (environment_variable(variable)) return;
  const int each = std::max(1, runtime::cuda::worker_settings().workers / static_cast<int>(devices));
  ::setenv(variable, fmt::to_string(each).c_str(), 0);
}

/// Does for each of `count` something on a thread of its own; throws the first error, once all have ended.
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
      throw InvalidArgument("--device", in_quotes(worker->device()),
                            fmt::format("a device of the model of {}, {}, not {}: winners are of one model",
                                        first.device(), first.model().name, worker->model().name));
}

/// What the threads share.
struct Shared {
  ProblemQueue queue;
  std::mutex mutex;  ///< of the failure of the run
  SweepObserver& observer;
  SweepResult& result;
  std::stop_token stop;
};

void note_failure(Shared& shared, const Failure& failure, bool decides) {
  const std::lock_guard lock(shared.mutex);
  if (decides || !shared.result.run.failure) shared.result.run.failure = failure;
}

Failure death_of(const SweepWorker& worker) {
  return describe(Error(ErrorKind::device, fmt::format("{}: {}", worker.device(), worker.died_of())));
}

/// Takes problems until there are none, or its process dies.
void tune_on(std::size_t lane, SweepWorker& worker, Shared& shared) {
  SweptDevice& device = shared.result.devices[lane];
  const tuner::Hooks hooks{
      .progress = [&](const tuner::Progress& progress) { shared.observer.update(progress, lane); },
      .stop = shared.stop};
  while (const auto turn = shared.queue.take()) {
    SweptProblem& swept = shared.result.problems[turn->problem];
    swept.device = worker.device();
    shared.observer.begin(turn->problem, shared.result.problems.size(), swept, lane);
    const SweepWorker::End end = worker.tune(swept, turn->waits, hooks);
    if (end == SweepWorker::End::died) {
      device.failure = death_of(worker);
      const bool again = shared.queue.give_back(turn->problem);
      if (!again) swept.failure = device.failure;
      note_failure(shared, *device.failure, false);
      shared.observer.died(*device.failure, again, lane);
      return;
    }
    const bool left = end == SweepWorker::End::next && swept.is_tuned_elsewhere;
    shared.observer.finish(swept, lane);
    if (swept.failure) note_failure(shared, *swept.failure, end == SweepWorker::End::stop);
    if (swept.report) ++device.problems;
    if (end == SweepWorker::End::stop) shared.queue.stop();
    if (left && !turn->waits)
      shared.queue.pass_over(turn->problem);
    else
      shared.queue.finish(turn->problem);
  }
}

}  // namespace

std::vector<std::string> device_list(const std::string& text, int gpus) {
  constexpr const char* argument = "--device";
  std::vector<std::string> devices;
  if (text == "cuda:all") {
    if (gpus == 0) throw DeviceError("opening cuda:all", 0, "there is no GPU here");
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
                            "cuda:all, or cuda, cuda:N or host, with commas between");
    }
    if (name != "host" && std::find(devices.begin(), devices.end(), name) != devices.end())
      throw InvalidArgument(argument, in_quotes(text), fmt::format("{} once", name));
    devices.push_back(std::move(name));
    begin = end + 1;
  }
  return devices;
}

ProblemQueue::ProblemQueue(std::size_t problems) {
  for (std::size_t i = 0; i < problems; ++i) open_.push_back(i);
}

std::optional<ProblemQueue::Turn> ProblemQueue::take() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopped_) return std::nullopt;
    for (std::deque<std::size_t>* const list : {&open_, &passed_over_}) {
      if (list->empty()) continue;
      const Turn turn{list->front(), list == &passed_over_};
      list->pop_front();
      ++taken_;
      return turn;
    }
    if (taken_ == 0) return std::nullopt;
    changed_.wait(lock);
  }
}

void ProblemQueue::finish(std::size_t) {
  const std::lock_guard lock(mutex_);
  --taken_;
  changed_.notify_all();
}

void ProblemQueue::pass_over(std::size_t problem) {
  const std::lock_guard lock(mutex_);
  --taken_;
  passed_over_.push_back(problem);
  changed_.notify_all();
}

bool ProblemQueue::give_back(std::size_t problem) {
  const std::lock_guard lock(mutex_);
  --taken_;
  changed_.notify_all();
  if (!given_back_.insert(problem).second) return false;
  open_.push_front(problem);
  return true;
}

void ProblemQueue::stop() {
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
  Shared shared{.queue = ProblemQueue(result.problems.size()),
                .mutex = {},
                .observer = observer,
                .result = result,
                .stop = stop};
  for_each_thread(workers.size(), [&](std::size_t i) {
    try {
      tune_on(i, *workers[i], shared);
      workers[i].reset();  // all at a time: one that was stopped takes a second
    } catch (...) {
      shared.queue.stop();
      throw;
    }
  });
}

}  // namespace ce::cli
