#pragma once
/// \file
/// Shows the progress of a sweep: on a terminal as one line that is redrawn, elsewhere as plain lines.

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ce/log.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// The contents of a progress line.
struct SweepProgress {
  std::size_t problem = 1;  ///< 0 for work that is not one of the problems
  std::size_t problems = 1;
  std::string title;  ///< title of the problem
  tuner::Progress tuning;
  std::optional<double> seconds_left{};  ///< for the whole sweep
  std::optional<double> share{};         ///< finished share of the whole sweep, if other devices take part

  /// Finished share of the whole sweep, 0 to 1.
  [[nodiscard]] double fraction() const noexcept;
};

/// One line of at most `width` columns; the least important parts are left out if it does not fit.
[[nodiscard]] std::string progress_line(const SweepProgress& progress, std::size_t width);

/// One of several devices that share a sweep.
struct DeviceProgress {
  std::string device;
  bool running = false;  ///< it works on a problem
  SweepProgress sweep{};
};

/// The line for several devices: the number of finished problems, and each device's work.
[[nodiscard]] std::string progress_line(const std::vector<DeviceProgress>& devices, std::size_t finished,
                                        std::optional<double> seconds_left, std::size_t width);

/// Predicts the end from the pace of the last minute, so that the fast beginning of a resumed sweep does not distort
/// it.
class TimeLeft {
 public:
  void add(double seconds, double fraction);
  /// Nothing until the pace is known.
  [[nodiscard]] std::optional<double> seconds() const;

 private:
  std::deque<std::pair<double, double>> recent_;  // seconds and fraction
};

/// Progress and remaining time of a sweep.
struct Pace {
  double share = 0;  ///< finished share
  std::optional<double> seconds_left{};
};

/// The output of progress.
struct Screen {
  bool notes_only = false;             ///< problems are not shown
  bool redraws = false;                ///< for a terminal that supports escape sequences
  std::function<std::size_t()> width;  ///< called at each redraw, as a terminal's width may change
  std::function<double()> seconds;     ///< a monotonic clock
  std::function<void(std::string_view)> write;

  /// Standard error, so that standard output only has results.
  [[nodiscard]] static Screen standard_error();
};

/// Thread safe.
class ProgressDisplay {
 public:
  /// \param devices  names of several devices; empty for one
  explicit ProgressDisplay(Screen screen, const std::vector<std::string>& devices = {});
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;
  ~ProgressDisplay();

  /// \param problem  its index in the list, from 1; 0 for work that is not one of them
  /// \param device   its index in the list, as for all members below
  /// \param stage    name of its first stage; empty if not known
  void begin(std::size_t problem, std::size_t problems, const std::string& title, std::size_t device = 0,
             std::string stage = {});
  void update(const tuner::Progress& tuning, std::size_t device = 0);
  /// Ends the problem with a permanent line.
  /// \param counts  whether the problem is finished
  void finish(std::string_view line, std::size_t device = 0, bool counts = true);
  [[nodiscard]] Pace pace();
  /// Prints a permanent line, above the one that is redrawn.
  void note(std::string_view line);

 private:
  [[nodiscard]] bool has_several() const noexcept { return devices_.size() > 1; }
  [[nodiscard]] double fraction() const noexcept;
  /// One device's line, for output that is not redrawn.
  [[nodiscard]] std::string own_line(const DeviceProgress& device) const;
  void note_time(double now);
  void draw();
  void erase();
  void write_line(std::string_view line);

  std::mutex mutex_;
  Screen screen_;
  std::vector<DeviceProgress> devices_;
  std::size_t finished_ = 0;  // number of finished problems
  TimeLeft time_left_;
  bool drawn_ = false;
  double last_shown_ = 0;             // seconds of the last redraw
  std::vector<double> last_written_;  // seconds of the last permanent line of each device
};

/// While it lives, the library's log goes through the display, so that it does not break the line.
class LogThroughDisplay {
 public:
  explicit LogThroughDisplay(ProgressDisplay& display);
  LogThroughDisplay(const LogThroughDisplay&) = delete;
  LogThroughDisplay& operator=(const LogThroughDisplay&) = delete;
  ~LogThroughDisplay() { set_log_sink({}); }
};

}  // namespace ce::cli
