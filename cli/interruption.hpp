#pragma once
/// \file
/// Handles Ctrl-C.

#include <array>
#include <functional>
#include <stop_token>
#include <thread>

namespace ce::cli {

/// While it lives, SIGINT and SIGTERM request a stop instead of ending the process; the second signal ends it at once
/// with status 130. At most one object at a time.
class Interruption {
 public:
  /// \param on_request  called once, on its own thread, after the stop was requested
  explicit Interruption(std::function<void()> on_request);
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  [[nodiscard]] std::stop_token token() const noexcept { return source_.get_token(); }

 private:
  void watch();

  std::stop_source source_;
  std::function<void()> on_request_;
  std::array<int, 2> pipe_{-1, -1};
  std::thread watcher_;
};

}  // namespace ce::cli
