#include "cli/long_work.hpp"

#include <fmt/format.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr std::chrono::seconds until_shown{2}, redrawn_each{1}, line_each{10};

std::atomic<bool> at_work{false};
std::atomic<std::size_t> work_done{0}, work_total{0};

}  // namespace

std::string work_line(std::string_view what, double seconds, std::size_t done, std::size_t total,
                      std::size_t width) {
  const std::string share = total > 0 ? fmt::format(", {} of {}", done, total) : "";
  return cut(fmt::format("ce-tune: {}{}, {}", what, share, duration_text(seconds)), width);
}

LongWork::LongWork(std::string what, Screen screen) : what_(std::move(what)), screen_(std::move(screen)) {
  is_first_ = !at_work.exchange(true);
  if (!is_first_) return;
  work_done = work_total = 0;
  try {
    clock_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // the system has no more threads: the work goes on unreported
  }
}

LongWork::~LongWork() {
  if (!is_first_) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_one();
  if (clock_.joinable()) clock_.join();
  if (drawn_) screen_.write("\r\x1b[K");
  at_work = false;
}

void LongWork::report(std::size_t done, std::size_t total) noexcept {
  work_done = done;
  work_total = total;
}

void LongWork::run() {
  const double begun = screen_.seconds();
  const auto pause = screen_.redraws ? redrawn_each : line_each;
  std::unique_lock lock(mutex_);
  for (auto wait = screen_.redraws ? until_shown : line_each;
       !ended_.wait_for(lock, wait, [this] { return is_over_; }); wait = pause)
    show(screen_.seconds() - begun);
}

void LongWork::show(double seconds) {
  const std::size_t width = screen_.width();
  const std::string line = work_line(what_, seconds, work_done, work_total, width > 1 ? width - 1 : width);
  screen_.write(screen_.redraws ? "\r\x1b[K" + line : line + "\n");
  drawn_ = screen_.redraws;
}

}  // namespace ce::cli
