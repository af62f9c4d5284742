#include "tuner/build_ahead.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>

#include "ce/error.hpp"

namespace ce::tuner {

BuildAhead::BuildAhead(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
                       std::span<const generator::Config> configs)
    : device_(device),
      cache_(cache),
      problem_(problem),
      most_threads_(static_cast<std::size_t>(device.parallel_compiles())) {
  for (const generator::Config& config : configs) add(config);
}

// Asks all threads to stop before joining any.
BuildAhead::~BuildAhead() { stop(); }

std::size_t BuildAhead::add(const generator::Config& config) {
  std::size_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    index = jobs_.size();
    jobs_.push_back({config, {}});
  }
  work_.notify_one();
  if (threads_.size() < most_threads_) start_thread();
  return index;
}

bool BuildAhead::is_building() const {
  const std::lock_guard lock(mutex_);
  return building_ > 0;
}

std::size_t BuildAhead::idle() const {
  const std::size_t most = std::min(most_threads_, static_cast<std::size_t>(device_.parallel_compiles()));
  const std::lock_guard lock(mutex_);
  return begun_ < jobs_.size() || building_ == 0 || building_ >= most ? 0 : most - building_;
}

std::optional<BuildAhead::Ready> BuildAhead::next(Clock::time_point deadline) {
  if (Clock::now() >= deadline) return std::nullopt;
  std::size_t index = 0;
  {
    std::unique_lock lock(mutex_);
    if (!arrival_.wait_until(lock, deadline, [&] { return !ready_.empty(); })) return std::nullopt;
    index = ready_.front();
    ready_.pop_front();
  }
  return Ready{index, future_of(index)};
}

void BuildAhead::stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

std::optional<BuildAhead::Ready> BuildAhead::next_begun() {
  std::size_t index = 0;
  {
    std::unique_lock lock(mutex_);
    arrival_.wait(lock, [&] { return !ready_.empty() || building_ == 0; });
    if (ready_.empty()) return std::nullopt;
    index = ready_.front();
    ready_.pop_front();
  }
  return Ready{index, future_of(index)};
}

std::future<generator::Program> BuildAhead::future_of(std::size_t index) {
  const std::lock_guard lock(mutex_);
  return jobs_[index].built.get_future();
}

void BuildAhead::start_thread() {
  try {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    if (threads_.empty())  // else the other threads go on
      throw Error(ErrorKind::compile,
                  fmt::format("no thread for compiling can be started ({})", error.what()));
  }
}

void BuildAhead::run(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!work_.wait(lock, stop, [&] { return begun_ < jobs_.size(); }) || stop.stop_requested()) return;
    const std::size_t index = begun_++;
    Job& job = jobs_[index];  // a reference: entries of a deque do not move
    ++building_;
    lock.unlock();
    try {
      job.built.set_value(build(device_, cache_, problem_, job.config));
    } catch (...) {
      job.built.set_exception(std::current_exception());
    }
    lock.lock();
    --building_;
    ready_.push_back(index);
    arrival_.notify_one();
  }
}

}  // namespace ce::tuner
