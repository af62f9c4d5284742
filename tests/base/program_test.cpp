#include "base/program.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "ce/error.hpp"
#include "tests/until.hpp"

namespace ce {
namespace {

using namespace std::chrono_literals;

ProgramEnd shell(const std::string& script, std::string_view input = "",
                 ProgramBounds bounds = {.time = 60s}) {
  return run_program({"sh", "-c", script}, input, bounds);
}

TEST(Program, TakesItsInputAndGivesItsOutputAndStatus) {
  const ProgramEnd end = shell("cat; echo problem >&2; exit 3", "some text");
  EXPECT_EQ(end.output, "some text");
  EXPECT_EQ(end.errors, "problem\n");
  EXPECT_EQ(end.status, 3);
  EXPECT_EQ(end.failure, "");
  EXPECT_FALSE(end.succeeded());
  EXPECT_TRUE(shell("exit 0").succeeded());
  EXPECT_EQ(shell("kill -9 $$").status, -1);
  const std::string large(1 << 20, 'x');
  EXPECT_EQ(shell("cat", large, {.time = 60s, .most_output = 1 << 20}).output, large);
  EXPECT_TRUE(shell("exit 0", large).succeeded()) << "one that reads nothing";
}

TEST(Program, OneThatHangsIsCutOffWithAllThatItStarted) {
  // The child that hangs tells its number, and would live on where only the shell was killed.
  const ProgramEnd end = shell("sleep 600 & echo $!; wait", "", {.time = 300ms});
  EXPECT_EQ(end.failure, "stopped because it ran for more than 300 ms");
  EXPECT_FALSE(end.succeeded());
  const pid_t left = std::stoi(end.output);
  EXPECT_TRUE(test::until([&] { return ::kill(left, 0) != 0; }));
}

TEST(Program, OneThatWritesTooMuchIsCutOff) {
  const ProgramEnd end = shell("yes", "", {.time = 60s, .most_output = 1000});
  EXPECT_EQ(end.failure, "stopped because it wrote more than 1000 bytes");
}

TEST(Program, WhatItLeavesBehindIsNotWaitedFor) {
  const ProgramEnd end = shell("sleep 5 & echo $!");
  EXPECT_TRUE(end.succeeded());
  EXPECT_EQ(::kill(std::stoi(end.output), SIGKILL), 0) << "it runs still";
}

TEST(Program, OneThatIsNotThereIsAnError) {
  EXPECT_THROW(static_cast<void>(run_program({"ce-no-such-program"}, "", {.time = 1s})), Unsupported);
}

}  // namespace
}  // namespace ce
