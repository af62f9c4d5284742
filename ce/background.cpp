#include "ce/background.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/floating_environment.hpp"
#include "base/log.hpp"

namespace ce {
namespace {

/// Pause before a problem that was not done is tried again.
constexpr std::chrono::milliseconds pause{100};

}  // namespace

void Background::add(const generator::Problem& bucket, const generator::Problem& problem) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || std::find(seen_.begin(), seen_.end(), bucket) != seen_.end() || !start_once()) return;
    seen_.push_back(bucket);
    waiting_.push_back(problem);
  }
  added_.notify_one();
}

/// \returns whether the thread runs now; if it cannot be started, the next caller tries again
bool Background::start_once() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
    id_ = thread_.get_id();
    return true;
  } catch (const std::system_error& error) {
    log_once(LogLevel::warning,
             fmt::format("no thread for tuning in the background can be started ({})", error.what()));
    return false;
  }
}

void Background::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;  // no thread is started any more
    thread_.request_stop();
    if (id_ == std::this_thread::get_id()) return;  // for example, from a log sink; the owner waits
  }
  const std::lock_guard lock(joining_);  // a second caller waits, too
  if (thread_.joinable()) thread_.join();
  has_stopped_ = true;
}

void Background::work(const std::stop_token& stop) {
  const DefaultFloatingEnvironment environment;
  std::unique_lock lock(mutex_);
  while (added_.wait(lock, stop, [&] { return !waiting_.empty(); }) && !stop.stop_requested()) {
    bool progress = false;
    for (std::size_t left = waiting_.size(); left > 0 && !stop.stop_requested(); --left) {
      const generator::Problem problem = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const bool is_done = task_(problem, stop);
      lock.lock();
      if (!is_done) waiting_.push_back(problem);
      progress = progress || is_done;
    }
    if (!progress) added_.wait_for(lock, stop, pause, [] { return false; });
  }
}

}  // namespace ce
