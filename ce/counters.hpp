#pragma once
/// \file
/// Counts calls of the process. Not installed.

#include <atomic>
#include <cstdint>

namespace ce {

/// A thread's own counters, so that counting takes no cache line from another thread. Other threads read them.
struct ThreadCounters {
  std::atomic<std::uint64_t> calls = 0, known = 0, errors = 0;
};

/// Null before this thread's first count_call(), and at the end of the thread.
extern constinit thread_local ThreadCounters* thread_counters;

/// Adds 1; called only by the thread that owns the counter.
inline void add_one(std::atomic<std::uint64_t>& own) noexcept {
  own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/// Counts a call that looks up its kernel. Creates the thread's counters.
void count_call() noexcept;
/// Counts a call with a known kernel: a few instructions.
inline void count_known_call() noexcept {
  ThreadCounters* own = thread_counters;
  if (own == nullptr) [[unlikely]] {
    count_call();
    own = thread_counters;
    if (own == nullptr) return;
    add_one(own->known);
    return;
  }
  add_one(own->calls);
  add_one(own->known);
}
/// Counts a call that throws.
void count_error() noexcept;

/// Runs a call, and counts an error if it throws.
template <class Call>
decltype(auto) counting_errors(const Call& call) {
  try {
    return call();
  } catch (...) {
    count_error();
    throw;
  }
}

/// The counters of all threads.
struct SharedCounters {
  std::atomic<std::uint64_t> tuned = 0, fallback = 0, compiled = 0, waited = 0;
};
[[nodiscard]] SharedCounters& shared_counters() noexcept;

/// The number of kernels that its owner compiled; also counts them for the process.
class Compiled {
 public:
  void operator+=(int more) noexcept {
    own_.fetch_add(more, std::memory_order_relaxed);
    if (more > 0)
      shared_counters().compiled.fetch_add(static_cast<std::uint64_t>(more), std::memory_order_relaxed);
  }
  [[nodiscard]] operator int() const noexcept { return own_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> own_ = 0;
};

}  // namespace ce
