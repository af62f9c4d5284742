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
#include "base/printable.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr double redraw_seconds = 0.1;
constexpr double plain_seconds = 10;
constexpr double pace_seconds = 60;

/// Where a stage begins and ends in the time of its problem, 0 to 1, roughly. In the order of a search, so that the bar
/// never goes back; the winner may be timed after it.
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
  int rank;  ///< the highest is left out first
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

double SweepProgress::fraction() const noexcept {
  const double done = tuning.total > 0 ? static_cast<double>(tuning.done) / tuning.total : 0;
  const auto* const stage = std::find_if(std::begin(stages), std::end(stages),
                                         [&](const Stage& each) { return each.name == tuning.stage; });
  const double within = stage == std::end(stages) ? done : stage->begin + (stage->end - stage->begin) * done;
  return (static_cast<double>(problem - 1) + within) /
         static_cast<double>(std::max<std::size_t>(1, problems));
}

std::string progress_line(const SweepProgress& progress, std::size_t width) {
  const tuner::Progress& tuning = progress.tuning;
  const bool has_best = !tuning.best.empty();
  const std::vector<Part> parts{
      {1, progress.problems > 1 ? fmt::format("[{}/{}]", progress.problem, progress.problems) : ""},
      {0, progress.title},
      {4, bar(progress.fraction())},
      {1, tuning.total > 0       ? fmt::format("{} {}/{}", tuning.stage, tuning.done, tuning.total)
          : tuning.stage.empty() ? "starting"
                                 : tuning.stage},
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

ProgressDisplay::ProgressDisplay(Screen screen) : screen_(std::move(screen)) {}

ProgressDisplay::~ProgressDisplay() { erase(); }

void ProgressDisplay::begin(std::size_t problem, std::size_t problems, const std::string& title) {
  const std::lock_guard lock(mutex_);
  progress_ = {.problem = problem, .problems = problems, .title = title};
  running_ = true;
  last_shown_ = screen_.seconds();
  time_left_.add(last_shown_, progress_.fraction());
  progress_.seconds_left = time_left_.seconds();
  if (screen_.redraws)
    draw();
  else
    write_line(progress_line(progress_, std::string::npos));
}

void ProgressDisplay::update(const tuner::Progress& tuning) {
  const std::lock_guard lock(mutex_);
  const double now = screen_.seconds();
  const bool waits = tuning.total == 0 && progress_.tuning.stage != tuning.stage;
  progress_.tuning = tuning;
  time_left_.add(now, progress_.fraction());
  progress_.seconds_left = time_left_.seconds();
  const bool ended = tuning.total > 0 && tuning.done == tuning.total;
  const bool due = waits || now - last_shown_ >= (screen_.redraws ? redraw_seconds : plain_seconds);
  if (!due && (screen_.redraws || !ended)) return;
  last_shown_ = now;
  if (screen_.redraws)
    draw();
  else
    write_line(progress_line(progress_, std::string::npos));
}

void ProgressDisplay::finish(std::string_view line) {
  const std::lock_guard lock(mutex_);
  erase();
  running_ = false;
  write_line(line);
}

void ProgressDisplay::note(std::string_view line) {
  const std::lock_guard lock(mutex_);
  erase();
  write_line(line);
  if (running_ && screen_.redraws) draw();
}

void ProgressDisplay::write_line(std::string_view line) {
  screen_.write(printable(line, Lines::many) + "\n");
}

void ProgressDisplay::draw() {
  // One column is left free: a line that fills the last one wraps on some terminals.
  const std::size_t width = std::max<std::size_t>(screen_.width(), 2) - 1;
  screen_.write(fmt::format("\r{}\x1b[K", printable(progress_line(progress_, width))));
  drawn_ = true;
}

void ProgressDisplay::erase() {
  if (drawn_) screen_.write("\r\x1b[K");
  drawn_ = false;
}

LogThroughDisplay::LogThroughDisplay(ProgressDisplay& display) {
  set_log_sink([&display](LogLevel level, std::string_view line) {
    if (is_wanted(level))
      display.note(fmt::format("ce: {}{}", level == LogLevel::warning ? "warning: " : "", line));
  });
}

}  // namespace ce::cli
