#pragma once
/// \file
/// Lets one thread of a Context tune at a time. Not installed.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace ce {

/// A mutex that also knows which problem its holder tunes. Thread-safe.
class TuningMutex {
 public:
  using Clock = std::chrono::steady_clock;

  /// Releases the mutex at its end. The mutex must outlive it.
  class Lock {
   public:
    Lock(Lock&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock() {
      if (mutex_ != nullptr) mutex_->end();
    }

   private:
    friend class TuningMutex;
    explicit Lock(TuningMutex& mutex) : mutex_(&mutex) {}
    TuningMutex* mutex_;
  };

  /// Waits without limit while other problems are tuned; while the same problem is tuned, until the deadline.
  /// \returns nothing if the deadline has passed
  [[nodiscard]] std::optional<Lock> take(const std::string& key, Clock::time_point deadline) {
    return wait(key, deadline, false);
  }

  /// Waits until the deadline, whichever problem is tuned; does not wait if the deadline has passed.
  [[nodiscard]] std::optional<Lock> take_until(const std::string& key, Clock::time_point deadline) {
    return wait(key, deadline, true);
  }

 private:
  std::optional<Lock> wait(const std::string& key, Clock::time_point deadline, bool for_any) {
    std::unique_lock lock(mutex_);
    while (taken_) {
      if (!for_any && key_ != key) {
        ended_.wait(lock);
        continue;
      }
      if (Clock::now() >= deadline) return std::nullopt;
      ended_.wait_until(lock, deadline);
    }
    taken_ = true;
    key_ = key;
    return Lock(*this);
  }

  void end() {
    {
      const std::lock_guard lock(mutex_);
      taken_ = false;
    }
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool taken_ = false;
  std::string key_;  ///< key of the latest holder
};

}  // namespace ce
