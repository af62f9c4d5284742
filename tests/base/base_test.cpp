#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "base/log.hpp"
#include "ce/dtype.hpp"
#include "ce/error.hpp"

namespace {

using ce::ErrorKind;

constexpr std::array all_dtypes{ce::DType::f32, ce::DType::f16, ce::DType::bf16, ce::DType::i32,
                                ce::DType::i64};

TEST(DType, NamesRoundTripAndDiffer) {
  std::set<std::string_view> names;
  for (const ce::DType dtype : all_dtypes) {
    names.insert(name(dtype));
    EXPECT_EQ(ce::parse_dtype(name(dtype)), dtype) << name(dtype);
  }
  EXPECT_EQ(names.size(), all_dtypes.size());
}

TEST(DType, OnlyExactNamesAreParsed) {
  for (const char* text : {"", "f", "F32", "f32 ", "float", "?", "bf"})
    EXPECT_EQ(ce::parse_dtype(text), std::nullopt) << '"' << text << '"';
}

TEST(DType, SizesAndKinds) {
  const std::array<int, all_dtypes.size()> sizes{4, 2, 2, 4, 8};
  const std::array<bool, all_dtypes.size()> floating{true, true, true, false, false};
  for (std::size_t i = 0; i < all_dtypes.size(); ++i) {
    EXPECT_EQ(ce::size_of(all_dtypes[i]), sizes[i]) << name(all_dtypes[i]);
    EXPECT_EQ(ce::is_floating(all_dtypes[i]), floating[i]) << name(all_dtypes[i]);
  }
}

TEST(Reduction, NamesRoundTrip) {
  for (const auto& [reduction, text] :
       {std::pair{ce::Reduction::none, "none"}, {ce::Reduction::mean, "mean"}, {ce::Reduction::sum, "sum"}}) {
    EXPECT_EQ(name(reduction), text);
    EXPECT_EQ(ce::parse_reduction(text), reduction);
  }
  EXPECT_EQ(ce::parse_reduction("average"), std::nullopt);
}

TEST(Error, KindsHaveDifferentNames) {
  std::set<std::string_view> names;
  const std::array kinds{ErrorKind::invalid_argument,
                         ErrorKind::unsupported,
                         ErrorKind::device,
                         ErrorKind::compile,
                         ErrorKind::database,
                         ErrorKind::not_found,
                         ErrorKind::target_out_of_range,
                         ErrorKind::verification,
                         ErrorKind::interrupted};
  for (const ErrorKind kind : kinds) names.insert(name(kind));
  EXPECT_EQ(names.size(), kinds.size());
  EXPECT_EQ(name(static_cast<ErrorKind>(200)), "error");
}

TEST(Error, KnowsWhereItWasThrown) {
  const int line = __LINE__ + 1;
  const ce::Error error(ErrorKind::interrupted, "stopped");
  EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  EXPECT_STREQ(error.what(), "stopped");
  EXPECT_EQ(error.where().line(), line);
  EXPECT_NE(std::string_view(error.where().file_name()).find("base_test.cpp"), std::string_view::npos);
}

TEST(Error, AValueIsOneLineWhateverItHolds) {
  const ce::InvalidArgument error("--op", std::string_view("\"so\n\tft\0m\033ax\x7f\"", 14), "softmax");
  EXPECT_EQ(error.value(), R"("so\n\tft\x00m\x1bax\x7f")");
  EXPECT_STREQ(error.what(), R"(--op is "so\n\tft\x00m\x1bax\x7f"; expected softmax)");
}

TEST(Error, InvalidArgumentSaysWhatWasExpected) {
  const ce::InvalidArgument error("rows", "-1", "a positive number");
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_STREQ(error.what(), "rows is -1; expected a positive number");
  EXPECT_EQ(error.argument(), "rows");
  EXPECT_EQ(error.value(), "-1");
  EXPECT_EQ(error.expected(), "a positive number");
}

TEST(Error, DeviceErrorCarriesTheCallAndItsCode) {
  const ce::DeviceError failed("cuMemAlloc(&data, 16)", 2, "out of memory");
  EXPECT_EQ(failed.kind(), ErrorKind::device);
  EXPECT_STREQ(failed.what(), "cuMemAlloc(&data, 16) failed with code 2: out of memory");
  EXPECT_EQ(failed.call(), "cuMemAlloc(&data, 16)");
  EXPECT_EQ(failed.code(), 2);
  EXPECT_STREQ(ce::DeviceError("barrier", 0, "one thread left").what(), "barrier: one thread left");
}

TEST(Error, CompileErrorCarriesTheLogAndTheSource) {
  const ce::CompileError error("softmax/warps=4", "line 3: no", "kernels/softmax.cu");
  EXPECT_EQ(error.kind(), ErrorKind::compile);
  EXPECT_STREQ(error.what(),
               "softmax/warps=4 does not compile (source kept at kernels/softmax.cu):\nline 3: no");
  EXPECT_EQ(error.log(), "line 3: no");
  EXPECT_EQ(error.source_path(), "kernels/softmax.cu");
}

TEST(Error, TargetOutOfRangeCounts) {
  const ce::TargetOutOfRange one("CrossEntropy", 1, 7, 50257);
  EXPECT_EQ(one.kind(), ErrorKind::target_out_of_range);
  EXPECT_STREQ(
      one.what(),
      "CrossEntropy: 1 row had a target that is neither a class index nor ignore_index; the first is row 7 "
      "with target 50257");
  EXPECT_EQ(one.operation(), "CrossEntropy");
  EXPECT_EQ(one.first_target(), 50257);
  const ce::TargetOutOfRange many("CrossEntropyBackward", 3, 0, std::nullopt);
  EXPECT_TRUE(std::string_view(many.what()).starts_with("CrossEntropyBackward: 3 rows had ")) << many.what();
  EXPECT_EQ(many.count(), 3);
  EXPECT_EQ(many.first_row(), 0);
  EXPECT_TRUE(std::string_view(many.what()).ends_with("the first is row 0")) << many.what();
  EXPECT_TRUE(std::string_view(ce::TargetOutOfRange("CrossEntropy", 3, -1, std::nullopt).what())
                  .ends_with("the first is not known"));
}

TEST(Error, EveryKindIsCaughtAsError) {
  EXPECT_THROW(throw ce::Unsupported("no"), ce::Error);
  EXPECT_THROW(throw ce::DatabaseError("no"), ce::Error);
  EXPECT_THROW(throw ce::NotFound("no"), ce::Error);
  EXPECT_EQ(ce::Unsupported("no").kind(), ErrorKind::unsupported);
  EXPECT_EQ(ce::DatabaseError("no").kind(), ErrorKind::database);
  EXPECT_EQ(ce::NotFound("no").kind(), ErrorKind::not_found);
}

TEST(Digest, PartsAreNotJoined) {
  EXPECT_NE(ce::digest({"ab", "c"}), ce::digest({"a", "bc"}));
  EXPECT_NE(ce::digest({"abc"}), ce::digest({"abc", ""}));
  EXPECT_NE(ce::digest({}), ce::digest({""}));
  EXPECT_NE(ce::digest({"a", "b"}), ce::digest({"b", "a"}));
  EXPECT_NE(ce::digest({std::string_view("\0", 1)}), ce::digest({""}));
}

// Databases outlive builds: a digest that changes between versions would orphan every binary in them.
TEST(Digest, IsTheSameInEveryBuild) {
  const std::string digest = ce::digest({"softmax", "rows=8"});
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(digest, "ad2425ffc42ce0f650f1dac4c839455d");
}

/// Collects lines while it lives, then restores the default sink.
class Log : public testing::Test {
 protected:
  using Line = std::pair<ce::LogLevel, std::string>;

  Log() {
    ce::set_log_sink([this](ce::LogLevel level, std::string_view line) { lines_.emplace_back(level, line); });
  }
  ~Log() override { ce::set_log_sink({}); }

  std::vector<Line> lines_;
};

TEST_F(Log, SinkReceivesEveryLine) {
  ce::log(ce::LogLevel::debug, "small");
  ce::log(ce::LogLevel::warning, "large");
  ce::log(ce::LogLevel::warning, "large");
  EXPECT_EQ(lines_, (std::vector<Line>{{ce::LogLevel::debug, "small"},
                                       {ce::LogLevel::warning, "large"},
                                       {ce::LogLevel::warning, "large"}}));
}

TEST_F(Log, OnceIsOncePerText) {
  for (int i = 0; i < 3; ++i) ce::log_once(ce::LogLevel::warning, "the database is unreadable");
  ce::log_once(ce::LogLevel::info, "the database is full");
  EXPECT_EQ(lines_, (std::vector<Line>{{ce::LogLevel::warning, "the database is unreadable"},
                                       {ce::LogLevel::info, "the database is full"}}));
}

/// Tests set a sink of their own; the default one comes back.
class OwnSink : public testing::Test {
 protected:
  ~OwnSink() override { ce::set_log_sink({}); }
};

TEST_F(OwnSink, WhatItThrowsGoesNowhereAndTheLineToStandardError) {
  int calls = 0;
  ce::set_log_sink([&](ce::LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("no space left");
  });
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(ce::log(ce::LogLevel::warning, "w"));
  EXPECT_NO_THROW(ce::log_once(ce::LogLevel::info, "said once to who throws"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ce: warning: w\nce: said once to who throws\n");
  EXPECT_EQ(calls, 2) << "it is not given up";
}

TEST_F(OwnSink, WhatItLogsItselfGoesToStandardError) {
  std::vector<std::string> lines;
  ce::set_log_sink([&](ce::LogLevel level, std::string_view line) {
    lines.emplace_back(line);
    ce::log(level, "of the sink");
    ce::log_once(level, "once of the sink");
  });
  testing::internal::CaptureStderr();
  ce::log(ce::LogLevel::info, "first");
  ce::log(ce::LogLevel::info, "second");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ce: of the sink\nce: once of the sink\nce: of the sink\n");
  EXPECT_EQ(lines, (std::vector<std::string>{"first", "second"}));
}

/// A child of fork() does not wait for a thread that only its parent has.
TEST_F(OwnSink, OfAnotherThreadDoesNotHoldUpAChild) {
  std::atomic<bool> is_in = false, may_end = false;
  ce::set_log_sink([&](ce::LogLevel, std::string_view line) {
    is_in = true;
    is_in.notify_all();
    if (line == "of the parent") may_end.wait(false);
  });
  std::thread logging([] { ce::log(ce::LogLevel::info, "of the parent"); });
  is_in.wait(false);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ce::log_once(ce::LogLevel::info, "of the child");
    ce::set_log_sink({});
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it was killed, as it did not end";
  may_end = true;
  may_end.notify_all();
  logging.join();
}

TEST_F(OwnSink, MayReplaceItself) {
  std::vector<std::string> lines;
  const auto first = std::make_shared<std::string>("first: ");
  ce::set_log_sink([&lines, first](ce::LogLevel, std::string_view line) {
    ce::set_log_sink([&lines](ce::LogLevel, std::string_view of_next) {
      lines.emplace_back("next: " + std::string(of_next));
    });
    lines.emplace_back(*first + std::string(line));  // what the function holds is still there
  });
  ce::log(ce::LogLevel::info, "first");
  ce::log(ce::LogLevel::info, "second");
  EXPECT_EQ(lines, (std::vector<std::string>{"first: first", "next: second"}));
  EXPECT_EQ(first.use_count(), 1) << "the first is gone";
}

TEST_F(OwnSink, IsCalledByOneThreadAtATime) {
  std::atomic<int> inside = 0;
  int calls = 0;
  ce::set_log_sink([&](ce::LogLevel, std::string_view) {
    EXPECT_EQ(inside++, 0);
    std::this_thread::yield();
    ++calls;
    --inside;
  });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([] {
        for (int line = 0; line < 100; ++line) ce::log(ce::LogLevel::info, "of a thread");
      });
  }
  EXPECT_EQ(calls, 400);
}

/// What the default sink writes to standard error for one line of each level.
std::string written_with(const char* threshold) {
  if (threshold != nullptr)
    setenv("CE_LOG", threshold, 1);
  else
    unsetenv("CE_LOG");
  testing::internal::CaptureStderr();
  ce::log(ce::LogLevel::debug, "d");
  ce::log(ce::LogLevel::info, "i");
  ce::log(ce::LogLevel::warning, "w");
  unsetenv("CE_LOG");
  return testing::internal::GetCapturedStderr();
}

TEST(DefaultLog, ThresholdComesFromTheEnvironment) {
  ce::set_log_sink({});
  EXPECT_EQ(written_with("debug"), "ce: d\nce: i\nce: warning: w\n");
  EXPECT_EQ(written_with("info"), "ce: i\nce: warning: w\n");
  EXPECT_EQ(written_with(nullptr), "ce: i\nce: warning: w\n");
  EXPECT_EQ(written_with("warning"), "ce: warning: w\n");
  EXPECT_EQ(written_with("off"), "");
}

TEST(DefaultLog, IsJsonWhereThatIsAskedFor) {
  ce::set_log_sink({});
  setenv("CE_LOG_FORMAT", "json", 1);
  testing::internal::CaptureStderr();
  ce::log(ce::LogLevel::warning, "a \"b\"");
  const std::string line = testing::internal::GetCapturedStderr();
  setenv("CE_LOG_FORMAT", "xml", 1);
  testing::internal::CaptureStderr();
  ce::log(ce::LogLevel::info, "i");
  ce::log(ce::LogLevel::info, "i");
  const std::string unknown = testing::internal::GetCapturedStderr();
  unsetenv("CE_LOG_FORMAT");
  EXPECT_TRUE(std::regex_match(
      line,
      std::regex(R"(\{"time":"[0-9T:.-]+Z","level":"warning","process":[0-9]+,"text":"a \\"b\\""\}\n)")))
      << line;
  EXPECT_EQ(unknown,
            "ce: warning: CE_LOG_FORMAT is \"xml\"; expected text or json; ce uses text\nce: i\nce: i\n");
}

TEST(DefaultLog, AnUnknownThresholdIsSaidOnce) {
  ce::set_log_sink({});
  EXPECT_EQ(written_with("loud"),
            "ce: warning: CE_LOG is \"loud\"; expected debug, info, warning or off; ce uses info\n"
            "ce: i\nce: warning: w\n");
  EXPECT_EQ(written_with("loud"), "ce: i\nce: warning: w\n");
}

}  // namespace
