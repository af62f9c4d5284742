#include "ce/counters.hpp"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "ce/stats.hpp"

namespace ce {

constinit thread_local ThreadCounters* thread_counters = nullptr;

namespace {

/// Never destroyed: threads may end after the last static is destroyed.
struct CountedThreads {
  std::mutex mutex;
  std::vector<ThreadCounters*> alive;
  ThreadCounters ended;  ///< sums of ended threads
  SharedCounters shared;
};

CountedThreads& counted_threads() {
  static CountedThreads& instance = *new CountedThreads;
  return instance;
}

void add_to(std::atomic<std::uint64_t>& sum, const std::atomic<std::uint64_t>& more) noexcept {
  sum.store(sum.load(std::memory_order_relaxed) + more.load(std::memory_order_relaxed),
            std::memory_order_relaxed);
}

/// A thread's counters from its first call to its end.
class ThreadOwner {
 public:
  ThreadOwner() {
    const std::lock_guard lock(counted_threads().mutex);
    counted_threads().alive.push_back(&own_);
    thread_counters = &own_;
  }
  ThreadOwner(const ThreadOwner&) = delete;
  ThreadOwner& operator=(const ThreadOwner&) = delete;
  ~ThreadOwner() {
    thread_counters = nullptr;
    CountedThreads& threads = counted_threads();
    const std::lock_guard lock(threads.mutex);
    std::erase(threads.alive, &own_);
    add_to(threads.ended.calls, own_.calls);
    add_to(threads.ended.known, own_.known);
    add_to(threads.ended.errors, own_.errors);
  }

 private:
  ThreadCounters own_;
};

/// For a thread whose counters have ended already: destructors of other thread-local objects may make calls.
void count_for_ended(std::atomic<std::uint64_t> ThreadCounters::*counter) noexcept {
  CountedThreads& threads = counted_threads();
  const std::lock_guard lock(threads.mutex);
  add_one(threads.ended.*counter);
}

void reset(ThreadCounters& counters) noexcept { counters.calls = counters.known = counters.errors = 0; }

/// A child of fork() has none of the other threads, and starts counting anew.
void begin_in_child() {
  CountedThreads& threads = counted_threads();
  threads.alive.clear();
  reset(threads.ended);
  SharedCounters& shared = threads.shared;
  shared.tuned = shared.fallback = shared.compiled = shared.waited = 0;
  if (thread_counters != nullptr) {
    reset(*thread_counters);
    threads.alive.push_back(thread_counters);
  }
  threads.mutex.unlock();
}

[[maybe_unused]] const int watching_forks_of_counters = ::pthread_atfork(
    [] { counted_threads().mutex.lock(); }, [] { counted_threads().mutex.unlock(); }, begin_in_child);

}  // namespace

void count_call() noexcept {
  try {
    thread_local const ThreadOwner owner;
  } catch (const std::exception&) {  // memory is short
  }
  if (thread_counters != nullptr)
    add_one(thread_counters->calls);
  else
    count_for_ended(&ThreadCounters::calls);
}

void count_error() noexcept {
  if (thread_counters != nullptr)
    add_one(thread_counters->errors);
  else
    count_for_ended(&ThreadCounters::errors);
}

SharedCounters& shared_counters() noexcept { return counted_threads().shared; }

Stats stats() {
  CountedThreads& threads = counted_threads();
  const std::lock_guard lock(threads.mutex);
  const SharedCounters& shared = threads.shared;
  Stats sum{.calls = threads.ended.calls,
            .known = threads.ended.known,
            .tuned = shared.tuned,
            .fallback = shared.fallback,
            .compiled = shared.compiled,
            .waited = shared.waited,
            .errors = threads.ended.errors};
  for (const ThreadCounters* thread : threads.alive) {
    sum.calls += thread->calls.load(std::memory_order_relaxed);
    sum.known += thread->known.load(std::memory_order_relaxed);
    sum.errors += thread->errors.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace ce
