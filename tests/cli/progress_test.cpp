#include "cli/progress.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.hpp"
#include "cli/table.hpp"
#include "tuner/strategy.hpp"

namespace ce::cli {
namespace {

SweepProgress example_progress() {
  return {.problem = 2,
          .problems = 4,
          .title = "softmax bf16 8192 x 4096",
          .tuning = {.stage = "screening",
                     .done = 50,
                     .total = 100,
                     .best = "block/warps=16,vec=8,load=cs,store=cs",
                     .best_us = 43.12,
                     .best_gbs = 3110},
          .seconds_left = 185};
}

/// A terminal, or a pipe, with a clock that the test moves.
struct FakeScreen {
  std::string written;
  double now = 100;
  std::size_t width = 200;

  Screen screen(bool redraws) {
    return {.redraws = redraws,
            .width = [this] { return width; },
            .seconds = [this] { return now; },
            .write = [this](std::string_view text) { written += text; }};
  }
  std::string take() { return std::exchange(written, {}); }
};

TEST(ProgressLine, TellsEverythingWhereItFits) {
  EXPECT_EQ(progress_line(example_progress(), 200),
            "[2/4]  softmax bf16 8192 x 4096  [######..............]  screening 50/100  3 min 05 s left  "
            "best 43.12 us 3110 GB/s  block/warps=16,vec=8,load=cs,store=cs");
}

std::vector<DeviceProgress> two_devices() {
  DeviceProgress first{.device = "cuda:0", .running = true, .sweep = example_progress()};
  DeviceProgress second = first;
  second.device = "cuda:1";
  second.sweep.title = "softmax f32 1 x 7";
  second.sweep.tuning = {};
  return {first, second};
}

TEST(ProgressLine, OfSeveralDevicesTellsWhatEachIsAt) {
  const std::vector<DeviceProgress> devices = two_devices();
  EXPECT_EQ(progress_line(devices, 1, 185, 200),
            "1 of 4  [######..............]  3 min 05 s left  cuda:0 softmax bf16 8192 x 4096 screening "
            "50/100  cuda:1 "
            "softmax f32 1 x 7 starting")
      << "one is done, a quarter of another is";
  EXPECT_EQ(progress_line(devices, 1, 185, 100),
            "1 of 4  [######..............]  3 min 05 s left  cuda:0 screening 50/100  cuda:1 starting");
  EXPECT_EQ(progress_line(devices, 1, 185, 60), "1 of 4  [######..............]  3 min 05 s left");
  EXPECT_EQ(progress_line(devices, 1, {}, 10), "1 of 4");
  for (std::size_t width = 0; width < 200; ++width)
    EXPECT_LE(width_of(progress_line(devices, 1, 185, width)), width);
}

TEST(ProgressDisplay, OfSeveralDevicesNamesThem) {
  FakeScreen fake;
  ProgressDisplay display(fake.screen(false), {"host", "host"});
  display.begin(1, 4, "one");
  display.begin(2, 4, "two", 1);
  EXPECT_EQ(fake.take(),
            "host#1: [1/4]  one  [....................]  starting\nhost#2: [2/4]  two  "
            "[....................]  starting\n");
  display.finish("died", 0, false);
  display.finish("two is done", 1);
  EXPECT_EQ(fake.take(), "host#1: died\nhost#2: two is done\n");
  fake.now += 10;
  display.begin(1, 4, "one", 1);
  EXPECT_EQ(fake.take(), "host#2: [1/4]  one  [#####...............]  starting  30 s left\n")
      << "one of four is done";
}

TEST(ProgressDisplay, ShowsWhatIsNoneOfTheProblemsWithoutANumber) {
  FakeScreen fake;
  ProgressDisplay display(fake.screen(false), {"host", "host"});
  display.begin(0, 2, "a ceiling", 0, "searching");
  EXPECT_EQ(fake.take(), "host#1: a ceiling  [....................]  searching\n");
  display.finish("a ceiling is searched", 0, false);
  fake.take();
  display.begin(1, 2, "one", 1);
  EXPECT_EQ(fake.take(), "host#2: [1/2]  one  [....................]  starting\n") << "nothing is done";
}

TEST(ProgressLine, LeavesOutWhatMattersLeast) {
  EXPECT_EQ(progress_line(example_progress(), 100),
            "[2/4]  softmax bf16 8192 x 4096  screening 50/100  3 min 05 s left  best 43.12 us 3110 GB/s");
  EXPECT_EQ(progress_line(example_progress(), 60), "[2/4]  softmax bf16 8192 x 4096  screening 50/100");
}

TEST(ProgressLine, IsNeverWiderThanTheTerminal) {
  for (std::size_t width = 0; width < 200; ++width)
    EXPECT_LE(width_of(progress_line(example_progress(), width)), width);
}

TEST(ProgressLine, CountsTheWholeSweep) {
  SweepProgress progress = example_progress();
  EXPECT_NEAR(progress.fraction(), (1 + 0.275) / 4, 1e-9);
  progress.tuning.stage = "timing";
  EXPECT_NEAR(progress.fraction(), (1 + 0.95) / 4, 1e-9);
  progress.tuning.stage = "what no search has";
  EXPECT_NEAR(progress.fraction(), (1 + 0.5) / 4, 1e-9);
  progress.tuning = {};
  EXPECT_NEAR(progress.fraction(), 0.25, 1e-9);
}

TEST(ProgressLine, DoesNotGoBackWithinASearch) {
  std::vector<tuner::Entrant> entrants(40);
  for (std::size_t i = 0; i < entrants.size(); ++i) entrants[i].structure = i / 2;
  std::vector<std::string> stages;
  for (int number = 0; const auto round = tuner::next_round({}, number, entrants); ++number) {
    stages.emplace_back(round->name);
    for (const std::size_t i : round->entrants)
      entrants[i] = {.structure = i / 2, .median_us = 100, .error = 0.01, .in_turns = round->in_turns};
  }
  EXPECT_EQ(stages.size(), 6U) << "all rounds there are";
  stages.emplace_back("timing");
  SweepProgress progress;
  double last = 0;
  for (const std::string& stage : stages)
    for (const int done : {1, 2}) {
      progress.tuning = {.stage = stage, .done = done, .total = 2};
      EXPECT_GT(progress.fraction(), last) << stage;
      last = progress.fraction();
    }
  EXPECT_EQ(last, 1);
}

TEST(TimeLeft, NeedsAPace) {
  TimeLeft left;
  EXPECT_FALSE(left.seconds());
  left.add(10, 0.1);
  EXPECT_FALSE(left.seconds());
  left.add(20, 0.1);
  EXPECT_FALSE(left.seconds());
  left.add(30, 0.3);
  ASSERT_TRUE(left.seconds());
  EXPECT_NEAR(*left.seconds(), 70, 1e-9);
}

TEST(TimeLeft, ForgetsAJumpAtTheStart) {
  TimeLeft left;
  left.add(0, 0);
  left.add(1, 0.5);  // what an earlier sweep had measured
  for (int second = 2; second <= 200; ++second) left.add(second, 0.5 + 0.001 * (second - 1));
  EXPECT_NEAR(*left.seconds(), (1 - 0.699) / 0.001, 1);
}

TEST(ProgressDisplay, RedrawsAtMostTenTimesASecond) {
  FakeScreen fake;
  ProgressDisplay display(fake.screen(true));
  display.begin(1, 1, "softmax");
  static_cast<void>(fake.take());
  int redraws = 0;
  for (int step = 1; step <= 1000; ++step) {
    fake.now = 100 + 0.001 * step;
    display.update({.stage = "screening", .done = step, .total = 1000});
    if (!fake.take().empty()) ++redraws;
  }
  EXPECT_GE(redraws, 9);
  EXPECT_LE(redraws, 10);
}

TEST(ProgressDisplay, LeavesOneColumnFree) {
  FakeScreen fake;
  fake.width = 24;
  ProgressDisplay display(fake.screen(true));
  display.begin(1, 1, "softmax bf16 8192 x 4096");
  EXPECT_EQ(fake.take(), "\rsoftmax bf16 8192 x 4..\x1b[K");
}

TEST(ProgressDisplay, LinesThatStayGoAboveTheOneThatIsRedrawn) {
  FakeScreen fake;
  ProgressDisplay display(fake.screen(true));
  display.begin(1, 1, "softmax");
  static_cast<void>(fake.take());
  display.note("a word");
  EXPECT_EQ(fake.take(), "\r\x1b[Ka word\n\rsoftmax  [....................]  starting\x1b[K");
  display.finish("done");
  EXPECT_EQ(fake.take(), "\r\x1b[Kdone\n");
  display.note("later");
  EXPECT_EQ(fake.take(), "later\n");
}

TEST(ProgressDisplay, WritesPlainLinesWhereNothingRedraws) {
  FakeScreen fake;
  ProgressDisplay display(fake.screen(false));
  display.begin(1, 1, "softmax");
  EXPECT_EQ(fake.take(), "softmax  [....................]  starting\n");
  fake.now += 1;
  display.update({.stage = "screening", .done = 1, .total = 10});
  EXPECT_EQ(fake.take(), "");
  fake.now += 10;
  display.update({.stage = "screening", .done = 2, .total = 10});
  EXPECT_NE(fake.take().find("screening 2/10"), std::string::npos);
  display.update({.stage = "screening", .done = 10, .total = 10});
  const std::string last = fake.take();
  EXPECT_NE(last.find("screening 10/10"), std::string::npos);
  EXPECT_EQ(last.find('\x1b'), std::string::npos);
}

TEST(ProgressDisplay, SaysThatItWaits) {
  FakeScreen fake;
  ProgressDisplay display(fake.screen(true));
  display.begin(1, 1, "softmax");
  static_cast<void>(fake.take());
  fake.now += 1;
  display.update({.stage = "waiting for another process"});
  EXPECT_EQ(fake.take(), "\rsoftmax  [....................]  waiting for another process\x1b[K");
}

TEST(ProgressDisplay, TakesTheLibrarysLines) {
  FakeScreen fake;
  ProgressDisplay display(fake.screen(true));
  {
    const LogThroughDisplay logging(display);
    log(LogLevel::warning, "mind the gap");
    EXPECT_EQ(fake.take(), "ce: warning: mind the gap\n");
    log(LogLevel::debug, "of no interest");
    EXPECT_EQ(fake.take(), "");
  }
  testing::internal::CaptureStderr();
  log(LogLevel::warning, "afterwards");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ce: warning: afterwards\n");
  EXPECT_EQ(fake.take(), "");
}

}  // namespace
}  // namespace ce::cli
