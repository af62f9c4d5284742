#pragma once
/// \file
/// Parallel work on a list. One thread takes the results in the order of the list.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace ce {

/// Results of make(0), make(1) and so on, made ahead by a few threads. The threads wait if the caller takes results
/// more slowly than they make them, so that few results are in memory at once.
template <class Make>
class MadeAhead {
 public:
  using Result = std::invoke_result_t<const Make&, std::size_t>;

  /// \param make  called on several threads at once; must outlive this object
  MadeAhead(std::size_t count, const Make& make, std::size_t threads)
      : make_(make), count_(count), slots_(2 * threads) {
    threads_.reserve(threads);
    try {
      while (threads_.size() < threads) threads_.emplace_back([this] { work(); });
    } catch (
        const std::system_error&) {  // the system has no more threads: those that run, or take(), do the work
    }
  }
  MadeAhead(const MadeAhead&) = delete;
  MadeAhead& operator=(const MadeAhead&) = delete;
  ~MadeAhead() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// The next result. \throws what make() threw for it
  Result take() {
    if (threads_.empty()) return make_(taken_++);
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[taken_ % slots_.size()];
    changed_.wait(lock, [&] { return slot.result || slot.error; });
    if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
    Result result = *std::exchange(slot.result, std::nullopt);
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    return result;
  }

 private:
  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_over_ || begun_ == count_ || begun_ < taken_ + slots_.size(); });
      if (is_over_ || begun_ == count_) return;
      const std::size_t number = begun_++;
      lock.unlock();
      Slot& slot = slots_[number % slots_.size()];  // empty: its last result has been taken
      try {
        Result result = make_(number);
        lock.lock();
        slot.result.emplace(std::move(result));
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        slot.error = std::current_exception();
        is_over_ = true;  // results behind an error are not taken
      }
      changed_.notify_all();
    }
  }

  const Make& make_;
  const std::size_t count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;  ///< results from `taken_` on
  std::size_t begun_ = 0, taken_ = 0;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

/// Number of helping threads if all of them read one database, one at a time.
inline std::size_t threads_beside_a_reader() {
  constexpr unsigned most = 3;
  const unsigned cores = std::thread::hardware_concurrency();
  return cores < 2 ? 0 : std::min(cores, most);
}

/// Calls make(i) for each i below `count` on a few threads at once, and take(i, its result) on this thread, in order.
/// An exception of either is thrown here, and ends the work.
template <class Make, class Take>
void make_in_order(std::size_t count, const Make& make, const Take& take,
                   std::size_t threads = threads_beside_a_reader()) {
  MadeAhead<Make> ahead(count, make, std::min(threads, count));
  for (std::size_t i = 0; i < count; ++i) take(i, ahead.take());
}

}  // namespace ce
