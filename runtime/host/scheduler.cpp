#include "runtime/host/scheduler.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

namespace ce::runtime::host {
namespace {

// Each thread touches a page or two of its stack: about a gigabyte in all.
constexpr std::uint64_t most_fibers = 1 << 17;

}  // namespace

Scheduler::Scheduler(std::uint64_t seed, int workers) : seed_(seed), workers_(std::max(workers, 1)) {}
Scheduler::~Scheduler() = default;

std::unique_ptr<GroupScheduler> Scheduler::borrow() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<GroupScheduler>(seed_);
  std::unique_ptr<GroupScheduler> group = std::move(idle_.back());
  idle_.pop_back();
  return group;
}

void Scheduler::give_back(std::unique_ptr<GroupScheduler> group) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(group));
}

void Scheduler::run(const Kernel& kernel, const Launch& launch, const void* arguments) {
  const std::uint64_t groups = launch.blocks / launch.cluster;
  std::atomic<std::uint64_t> next = 0;
  std::atomic<std::uint64_t> first_failed = std::numeric_limits<std::uint64_t>::max();
  std::mutex mutex;
  std::exception_ptr failure;

  // Groups are handed out in order, so all groups before a failed one run, and the first failure is always the same
  // one.
  const auto work = [&] {
    std::unique_ptr<GroupScheduler> scheduler;
    for (std::uint64_t group = next++; group < groups && group < first_failed; group = next++) {
      try {
        if (scheduler == nullptr) scheduler = borrow();
        scheduler->run(kernel, launch, arguments, group);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (group < first_failed) {
          first_failed = group;
          failure = std::current_exception();
        }
      }
    }
    if (scheduler != nullptr) give_back(std::move(scheduler));
  };

  // An OS thread costs about as much to start as some thousand fibers.
  const std::uint64_t worthwhile = std::uint64_t{launch.blocks} * launch.threads / 2048;
  const std::uint64_t affordable = most_fibers / (std::uint64_t{launch.cluster} * launch.threads);
  const std::uint64_t helpers =
      std::min({static_cast<std::uint64_t>(workers_) - 1, groups - 1, worthwhile, affordable});
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() < helpers) threads.emplace_back(work);
    } catch (const std::system_error&) {  // the system has no more threads: the running ones do all the work
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ce::runtime::host
