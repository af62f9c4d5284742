#include "cli/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr double redraw_seconds = 0.1;
constexpr double plain_seconds = 10;
constexpr double pace_seconds = 60;

/// The approximate range of a stage in the time of its problem, 0 to 1. In the order of a search, so that the bar never
/// goes back; the winner may be timed after it.
struct Stage {
  std::string_view name;
  double begin, end;
};
constexpr Stage stages[] = {{"screening", 0, 0.55}, {"refining", 0.55, 0.7}, {"semifinal", 0.7, 0.75},
                            {"final", 0.75, 0.8},   {"play-off", 0.8, 0.85}, {"decider", 0.85, 0.9},
                            {"timing", 0.9, 1}};

std::string bar(double fraction) {
  constexpr std::size_t width = 20;
  const auto full = static_cast<std::size_t>(std::lround(std::clamp(fraction, 0.0, 1.0) * width));
  return fmt::format("[{}{}]", std::string(full, '#'), std::string(width - full, '.'));
}

struct Part {
  int rank;  ///< parts with the highest rank are left out first
  std::string text;
};

std::string join(const std::vector<Part>& parts, int most) {
  std::string line;
  for (const Part& part : parts)
    if (part.rank <= most && !part.text.empty()) line += (line.empty() ? "" : "  ") + part.text;
  return line;
}

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int width = std::atoi(environment_variable("COLUMNS").value_or("").c_str());
  return width > 0 ? static_cast<std::size_t>(width) : 80;
}

bool takes_escape_sequences() {
  return ::isatty(STDERR_FILENO) == 1 && environment_variable("TERM").value_or("dumb") != "dumb";
}

}  // namespace

namespace {

/// The progress of one problem, 0 to 1.
double within(const tuner::Progress& tuning) noexcept {
  const double done = tuning.total > 0 ? static_cast<double>(tuning.done) / tuning.total : 0;
  const auto* const stage = std::find_if(std::begin(stages), std::end(stages),
                                         [&](const Stage& each) { return each.name == tuning.stage; });
  return stage == std::end(stages) ? done : stage->begin + (stage->end - stage->begin) * done;
}

std::string stage_text(const tuner::Progress& tuning) {
  if (tuning.total > 0) return fmt::format("{} {}/{}", tuning.stage, tuning.done, tuning.total);
  return tuning.stage.empty() ? "starting" : tuning.stage;
}

}  // namespace

double SweepProgress::fraction() const noexcept {
  if (share) return *share;
  return (static_cast<double>(std::max<std::size_t>(1, problem) - 1) + within(tuning)) /
         static_cast<double>(std::max<std::size_t>(1, problems));
}

std::string progress_line(const SweepProgress& progress, std::size_t width) {
  const tuner::Progress& tuning = progress.tuning;
  const bool has_best = !tuning.best.empty();
  const std::vector<Part> parts{
      {1, progress.problem > 0 && progress.problems > 1
              ? fmt::format("[{}/{}]", progress.problem, progress.problems)
              : ""},
      {0, progress.title},
      {4, bar(progress.fraction())},
      {1, stage_text(tuning)},
      {2, progress.seconds_left ? fmt::format("{} left", duration_text(*progress.seconds_left)) : ""},
      {3, has_best
              ? fmt::format("best {} {} GB/s", time_text(tuning.best_us), throughput_text(tuning.best_gbs))
              : ""},
      {5, tuning.best},
  };
  for (int most = 5; most > 0; --most)
    if (std::string line = join(parts, most); width_of(line) <= width) return line;
  return cut(join(parts, 1), width);
}

std::string progress_line(const std::vector<DeviceProgress>& devices, std::size_t finished,
                          std::optional<double> seconds_left, std::size_t width) {
  std::size_t problems = 1;
  double done = static_cast<double>(finished);
  std::string stages_of_all, titles_of_all;
  for (const DeviceProgress& device : devices) {
    problems = std::max(problems, device.sweep.problems);
    if (!device.running) continue;
    done += within(device.sweep.tuning);
    const std::string stage = stage_text(device.sweep.tuning);
    stages_of_all += fmt::format("{}{} {}", stages_of_all.empty() ? "" : "  ", device.device, stage);
    titles_of_all += fmt::format("{}{} {} {}", titles_of_all.empty() ? "" : "  ", device.device,
                                 device.sweep.title, stage);
  }
  const auto parts = [&](const std::string& of_all) {
    return std::vector<Part>{{0, fmt::format("{} of {}", finished, problems)},
                             {2, bar(done / static_cast<double>(problems))},
                             {1, seconds_left ? fmt::format("{} left", duration_text(*seconds_left)) : ""},
                             {3, of_all}};
  };
  if (std::string line = join(parts(titles_of_all), 3); width_of(line) <= width) return line;
  for (int most = 3; most > 0; --most)
    if (std::string line = join(parts(stages_of_all), most); width_of(line) <= width) return line;
  return cut(join(parts(""), 1), width);
}

void TimeLeft::add(double seconds, double fraction) {
  recent_.emplace_back(seconds, fraction);
  while (recent_.size() > 2 && recent_[1].first <= seconds - pace_seconds) recent_.pop_front();
}

std::optional<double> TimeLeft::seconds() const {
  if (recent_.size() < 2) return std::nullopt;
  const auto [start, done_at_start] = recent_.front();
  const auto [now, done] = recent_.back();
  if (now <= start || done <= done_at_start) return std::nullopt;
  return (1 - done) * (now - start) / (done - done_at_start);
}

Screen Screen::standard_error() {
  return {
      .redraws = takes_escape_sequences(),
      .width = terminal_width,
      .seconds =
          [] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
          },
      .write =
          [](std::string_view text) {
            std::fwrite(text.data(), 1, text.size(), stderr);
            std::fflush(stderr);
          }};
}

ProgressDisplay::ProgressDisplay(Screen screen, const std::vector<std::string>& devices)
    : screen_(std::move(screen)),
      devices_(std::max<std::size_t>(1, devices.size())),
      last_written_(devices_.size(), 0) {
  // Repeated names, such as "host", get numbers.
  for (std::size_t i = 0; i < devices.size(); ++i)
    devices_[i].device = std::count(devices.begin(), devices.end(), devices[i]) > 1
                             ? fmt::format("{}#{}", devices[i], i + 1)
                             : devices[i];
}

ProgressDisplay::~ProgressDisplay() { erase(); }

double ProgressDisplay::fraction() const noexcept {
  if (!has_several()) return devices_.front().sweep.fraction();
  double done = static_cast<double>(finished_);
  std::size_t problems = 1;
  for (const DeviceProgress& device : devices_) {
    if (device.running) done += within(device.sweep.tuning);
    problems = std::max(problems, device.sweep.problems);
  }
  return done / static_cast<double>(problems);
}

void ProgressDisplay::note_time(double now) {
  const double done = fraction();
  time_left_.add(now, done);
  for (DeviceProgress& device : devices_) {
    device.sweep.seconds_left = time_left_.seconds();
    if (has_several()) device.sweep.share = done;
  }
}

std::string ProgressDisplay::own_line(const DeviceProgress& device) const {
  const std::string line = progress_line(device.sweep, std::string::npos);
  return has_several() ? fmt::format("{}: {}", device.device, line) : line;
}

void ProgressDisplay::begin(std::size_t problem, std::size_t problems, const std::string& title,
                            std::size_t device, std::string stage) {
  const std::lock_guard lock(mutex_);
  DeviceProgress& own = devices_.at(device);
  own.sweep = {
      .problem = problem, .problems = problems, .title = title, .tuning = {.stage = std::move(stage)}};
  own.running = true;
  last_shown_ = last_written_[device] = screen_.seconds();
  note_time(last_shown_);
  if (screen_.notes_only) return;
  if (screen_.redraws)
    draw();
  else
    write_line(own_line(own));
}

void ProgressDisplay::update(const tuner::Progress& tuning, std::size_t device) {
  const std::lock_guard lock(mutex_);
  DeviceProgress& own = devices_.at(device);
  const double now = screen_.seconds();
  const bool waits = tuning.total == 0 && own.sweep.tuning.stage != tuning.stage;
  own.sweep.tuning = tuning;
  note_time(now);
  if (screen_.notes_only) return;
  if (screen_.redraws) {
    if (!waits && now - last_shown_ < redraw_seconds) return;
    last_shown_ = now;
    draw();
    return;
  }
  const bool ended = tuning.total > 0 && tuning.done == tuning.total;
  if (!waits && !ended && now - last_written_[device] < plain_seconds) return;
  last_written_[device] = now;
  write_line(own_line(own));
}

void ProgressDisplay::finish(std::string_view line, std::size_t device, bool counts) {
  const std::lock_guard lock(mutex_);
  erase();
  DeviceProgress& own = devices_.at(device);
  own.running = false;
  if (counts) ++finished_;
  if (screen_.notes_only) return;
  write_line(has_several() ? fmt::format("{}: {}", own.device, line) : std::string(line));
  if (has_several() && screen_.redraws) draw();
}

Pace ProgressDisplay::pace() {
  const std::lock_guard lock(mutex_);
  return {fraction(), time_left_.seconds()};
}

void ProgressDisplay::note(std::string_view line) {
  const std::lock_guard lock(mutex_);
  erase();
  write_line(line);
  const bool runs = std::any_of(devices_.begin(), devices_.end(),
                                [](const DeviceProgress& device) { return device.running; });
  if (runs && screen_.redraws) draw();
}

void ProgressDisplay::write_line(std::string_view line) {
  screen_.write(printable(line, Lines::many) + "\n");
}

void ProgressDisplay::draw() {
  // One column stays free: a line that fills the last column wraps on some terminals.
  const std::size_t width = std::max<std::size_t>(screen_.width(), 2) - 1;
  const std::string line = has_several() ? progress_line(devices_, finished_, time_left_.seconds(), width)
                                         : progress_line(devices_.front().sweep, width);
  screen_.write(fmt::format("\r{}\x1b[K", printable(line)));
  drawn_ = true;
}

void ProgressDisplay::erase() {
  if (drawn_) screen_.write("\r\x1b[K");
  drawn_ = false;
}

LogThroughDisplay::LogThroughDisplay(ProgressDisplay& display) {
  set_log_sink([&display](LogLevel level, std::string_view line) {
    if (is_wanted(level)) display.note(shown_line(level, line));
  });
}

}  // namespace ce::cli
