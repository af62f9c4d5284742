#pragma once
/// \file
/// Progress of commands that take long.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "cli/progress.hpp"

namespace ce::cli {

/// While it lives, a line shows how much is done and for how long: on a terminal after two seconds, redrawn each
/// second; elsewhere every ten seconds. Only the outer one of nested objects is shown.
class LongWork {
 public:
  /// \param what  such as "comparing problems"
  explicit LongWork(std::string what, Screen screen = Screen::standard_error());
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;
  /// Erases the line before results are printed.
  ~LongWork();

  /// The current work; nothing if there is none.
  static void report(std::size_t done, std::size_t total) noexcept;

 private:
  void run();
  void show(double seconds);

  const std::string what_;
  const Screen screen_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false, drawn_ = false;
  bool is_first_ = false;  ///< it is not nested
  std::thread clock_;
};

/// One line of at most `width` columns.
[[nodiscard]] std::string work_line(std::string_view what, double seconds, std::size_t done,
                                    std::size_t total, std::size_t width);

}  // namespace ce::cli
