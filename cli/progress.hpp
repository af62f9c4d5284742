#pragma once
/// \file
/// How far a sweep is, on a terminal as one line that is redrawn, elsewhere as plain lines.

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

/// Everything that a progress line tells.
struct SweepProgress {
  std::size_t problem = 1;  ///< 0 for what is none of the problems
  std::size_t problems = 1;
  std::string title;  ///< of the problem
  tuner::Progress tuning;
  std::optional<double> seconds_left{};  ///< of the whole sweep
  std::optional<double> share{};         ///< of the whole sweep that is done, where others are at it, too

  /// Of the whole sweep, 0 to 1.
  [[nodiscard]] double fraction() const noexcept;
};

/// One line of at most `width` columns; what matters least is left out first where it does not fit.
[[nodiscard]] std::string progress_line(const SweepProgress& progress, std::size_t width);

/// One of several devices that share a sweep.
struct DeviceProgress {
  std::string device;
  bool running = false;  ///< it has a problem
  SweepProgress sweep{};
};

/// The same of several: how many problems are done with, and what each device is at.
[[nodiscard]] std::string progress_line(const std::vector<DeviceProgress>& devices, std::size_t finished,
                                        std::optional<double> seconds_left, std::size_t width);

/// Foretells the end from the pace of the last minute, so that a resumed sweep, whose first part takes no
/// time, is not taken for a fast one.
class TimeLeft {
 public:
  void add(double seconds, double fraction);
  /// Nothing until there is a pace.
  [[nodiscard]] std::optional<double> seconds() const;

 private:
  std::deque<std::pair<double, double>> recent_;  // seconds and fraction
};

/// How far a sweep is, and how fast.
struct Pace {
  double share = 0;  ///< that is done
  std::optional<double> seconds_left{};
};

/// Where progress is shown.
struct Screen {
  bool notes_only = false;             ///< nothing is told of problems
  bool redraws = false;                ///< a terminal that takes escape sequences
  std::function<std::size_t()> width;  ///< asked at each redraw, as terminals change
  std::function<double()> seconds;     ///< a clock that never goes back
  std::function<void(std::string_view)> write;

  /// Standard error, so that standard output holds results alone.
  [[nodiscard]] static Screen standard_error();
};

/// Thread safe.
class ProgressDisplay {
 public:
  /// \param devices  the names of several; empty for one
  explicit ProgressDisplay(Screen screen, const std::vector<std::string>& devices = {});
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;
  ~ProgressDisplay();

  /// \param problem  its place in the list, from 1; 0 for what is none of them
  /// \param device   its place in the list, as in all that follow
  /// \param stage    that it begins with; empty before there is one
  void begin(std::size_t problem, std::size_t problems, const std::string& title, std::size_t device = 0,
             std::string stage = {});
  void update(const tuner::Progress& tuning, std::size_t device = 0);
  /// Ends the problem with a line that stays.
  /// \param counts  whether it is done with
  void finish(std::string_view line, std::size_t device = 0, bool counts = true);
  [[nodiscard]] Pace pace();
  /// A line that stays, above the one that is redrawn.
  void note(std::string_view line);

 private:
  [[nodiscard]] bool has_several() const noexcept { return devices_.size() > 1; }
  [[nodiscard]] double fraction() const noexcept;
  /// Of one device, for where lines stay.
  [[nodiscard]] std::string own_line(const DeviceProgress& device) const;
  void note_time(double now);
  void draw();
  void erase();
  void write_line(std::string_view line);

  std::mutex mutex_;
  Screen screen_;
  std::vector<DeviceProgress> devices_;
  std::size_t finished_ = 0;  // problems
  TimeLeft time_left_;
  bool drawn_ = false;
  double last_shown_ = 0;             // of the line that is redrawn
  std::vector<double> last_written_;  // of lines that stay, of each device
};

/// While it lives, the library's lines of talk go through the display instead of tearing its line.
class LogThroughDisplay {
 public:
  explicit LogThroughDisplay(ProgressDisplay& display);
  LogThroughDisplay(const LogThroughDisplay&) = delete;
  LogThroughDisplay& operator=(const LogThroughDisplay&) = delete;
  ~LogThroughDisplay() { set_log_sink({}); }
};

}  // namespace ce::cli
