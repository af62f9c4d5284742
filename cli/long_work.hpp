#pragma once
/// \file
/// What a command is at, where that takes long.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "cli/progress.hpp"

namespace ce::cli {

/// While it lives, a line tells what is done, how much of it and for how long: on a terminal from two seconds on, redrawn
/// each second; elsewhere each ten seconds. One at a time: of work that is part of another, the other one tells.
class LongWork {
 public:
  /// \param what  "comparing problems"
  explicit LongWork(std::string what, Screen screen = Screen::standard_error());
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;
  /// Erases what is drawn: results follow.
  ~LongWork();

  /// Of the work that there is; nothing where there is none.
  static void tell(std::size_t done, std::size_t total) noexcept;

 private:
  void run();
  void show(double seconds);

  const std::string what_;
  const Screen screen_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false, drawn_ = false;
  bool is_first_ = false;  ///< it is not part of another
  std::thread clock_;
};

/// One line of at most `width` columns.
[[nodiscard]] std::string work_line(std::string_view what, double seconds, std::size_t done,
                                    std::size_t total, std::size_t width);

}  // namespace ce::cli
