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
class TuningTurns {
 public:
  using Clock = std::chrono::steady_clock;

  /// Releases the mutex at its end. The mutex must outlive it.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->end();
    }

   private:
    friend class TuningTurns;
    explicit Turn(TuningTurns& turns) : turns_(&turns) {}
    TuningTurns* turns_;
  };

  /// Waits without limit while other problems are tuned; while the same problem is tuned, until the deadline.
  /// \returns nothing if the deadline has passed
  [[nodiscard]] std::optional<Turn> take(const std::string& key, Clock::time_point deadline) {
    return wait(key, deadline, false);
  }

  /// Waits until the deadline, whichever problem is tuned; does not wait if the deadline has passed.
  [[nodiscard]] std::optional<Turn> take_until(const std::string& key, Clock::time_point deadline) {
    return wait(key, deadline, true);
  }

 private:
  std::optional<Turn> wait(const std::string& key, Clock::time_point deadline, bool for_any) {
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
    return Turn(*this);
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
