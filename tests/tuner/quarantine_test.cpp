// Configs that are wrong, do not compile or fault: never win, and are not tried again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/printable.hpp"
#include "cache/possible.hpp"
#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/tuner/device_decorator.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/decide.hpp"
#include "tuner/quarantine_reason.hpp"

namespace ce::test {
namespace {

using cache::Measurement;
using cache::Outcome;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using tuner::Report;
using tuner::Tuner;

struct Kind {
  const char* name;
  Fault fault;
  const char* start;  ///< of the reason
  const char* part;   ///< of the reason
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

class Quarantine : public TunerTest, public testing::WithParamInterface<Kind> {};

TEST_P(Quarantine, NeverWinsAndIsNotTriedAgain) {
  const Kind kind = GetParam();
  cache::Cache database = open();
  FaultyDevice device([&](int nth) { return nth == 0 || nth == 2 ? kind.fault : Fault::none; });
  const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
  const std::set<std::string> planted = device.with(kind.fault);
  ASSERT_EQ(planted.size(), 2);
  EXPECT_THAT(planted, Not(Contains(generator::to_text(report.winner))));
  int told = 0;
  for (const auto& [reason, count] : report.quarantined) {
    EXPECT_THAT(reason, StartsWith(kind.start));
    told += count;
  }
  EXPECT_EQ(told, 2);
  EXPECT_EQ(device.allocations(), 0);

  std::set<std::string> written;
  for (const Measurement& measurement : database.measurements(report.key)) {
    EXPECT_EQ(measurement.outcome == Outcome::quarantined, planted.contains(measurement.config));
    if (measurement.outcome != Outcome::quarantined) continue;
    written.insert(measurement.config);
    EXPECT_THAT(measurement.reason, StartsWith(kind.start));
    EXPECT_THAT(measurement.reason, HasSubstr(kind.part));
    EXPECT_TRUE(measurement.samples_us.empty());
    EXPECT_NE(measurement.template_digest, "");
  }
  EXPECT_EQ(written, planted);

  const std::size_t before = database.measurements(report.key).size();
  FaultyDevice healthy;
  const Report again = Tuner(healthy, database, quick_settings()).tune(small_problem());
  EXPECT_EQ(again.winner, report.winner);
  EXPECT_EQ(again.known, again.tried);
  EXPECT_EQ(again.quarantined, report.quarantined);
  EXPECT_EQ(healthy.compiled(), 0);
  EXPECT_EQ(database.measurements(report.key).size(), before);
}

/// Its compiler may be another one than that of the search which screened.
TEST_P(Quarantine, OfWhatAnotherSearchScreened) {
  const Kind kind = GetParam();
  cache::Cache database = open();
  {
    FaultyDevice device;
    std::stop_source stop;
    const tuner::Hooks hooks{.progress =
                                 [&](const tuner::Progress& progress) {
                                   if (progress.done == progress.total) stop.request_stop();
                                 },
                             .stop = stop.get_token()};
    EXPECT_THROW(static_cast<void>(Tuner(device, database, quick_settings()).tune(small_problem(), hooks)),
                 Error);
  }
  FaultyDevice device([&](int nth) { return nth == 0 ? kind.fault : Fault::none; });
  const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
  EXPECT_EQ(report.known, 4) << "all were screened";
  const std::set<std::string> planted = device.with(kind.fault);
  ASSERT_EQ(planted.size(), 1);
  EXPECT_NE(generator::to_text(report.winner), *planted.begin());
  ASSERT_EQ(report.quarantined.size(), 1);
  EXPECT_THAT(report.quarantined.begin()->first, StartsWith(kind.start));
  for (const Measurement& measurement : database.measurements(report.key)) {
    EXPECT_FALSE(measurement.config == *planted.begin() && measurement.stage > 0);
  }
}

TEST_P(Quarantine, OfAllConfigsIsAnError) {
  const Kind kind = GetParam();
  cache::Cache database = open();
  FaultyDevice device([&](int) { return kind.fault; });
  Tuner tuner(device, database, quick_settings());
  const bool is_compiler = kind.fault == Fault::no_compile;
  // The next search looks at others, unless it may be the compiler that does not work.
  for (int turn = 1; turn <= 2; ++turn) try {
      static_cast<void>(tuner.tune(small_problem()));
      ADD_FAILURE() << "nothing was right, and something won";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), is_compiler ? ErrorKind::compile : ErrorKind::verification) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(is_compiler ? kind.part : kind.start));
      EXPECT_THAT(error.what(), HasSubstr(is_compiler ? "softmax f32" : "softmax f32 40 x 100"));
      EXPECT_EQ(device.compiled(), quick_settings().search.most_configs * (is_compiler ? 1 : turn));
    }
  EXPECT_FALSE(tuner.known_winner(small_problem()));
  EXPECT_EQ(database.measurements(tuner.key(small_problem())).empty(), is_compiler);
  FaultyDevice healthy;
  EXPECT_NE(Tuner(healthy, database, quick_settings()).tune(small_problem()).winner.variant, "");
}

/// Where no other kernel is served, it is the next of the most promising that is.
TEST_F(TunerTest, AQuarantineOfAllFinalsIsNotTheEnd) {
  cache::Cache database = open();
  FaultyDevice device;
  Tuner tuner(device, database, quick_settings());
  static_cast<void>(tuner.tune(small_problem()));
  while (const auto known = tuner.known_winner(small_problem())) {
    if (!tuner::has_final(known)) break;
    const Measurement& winner = known->winner.measurement;
    database.add({.key = winner.key,
                  .config = winner.config,
                  .template_digest = winner.template_digest,
                  .outcome = Outcome::quarantined,
                  .reason = "planted by the test"});
  }
  static_cast<void>(tuner.tune(small_problem()));
  EXPECT_TRUE(tuner::has_final(tuner.known_winner(small_problem())));
}

/// Of the compiler that was killed, say.
TEST_F(TunerTest, WhatTheCompilerDidNotGetToIsNoFaultOfAConfig) {
  class Killed : public FaultyDevice {
   public:
    explicit Killed(int first, int last) : first_(first), last_(last) {}
    runtime::Binary compile(const runtime::CompileRequest& request) override {
      const int number = number_++;
      if (number >= first_ && number < last_) throw Error(ErrorKind::compile, "planted by the test");
      return FaultyDevice::compile(request);
    }

   private:
    int first_, last_, number_ = 0;
  };
  cache::Cache database = open();
  {
    Killed always(0, 1000);
    EXPECT_THROW(static_cast<void>(Tuner(always, database, quick_settings()).tune(small_problem())), Error);
  }
  Killed device(1, 2);
  const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
  EXPECT_EQ(report.tried, 3);
  EXPECT_TRUE(report.quarantined.empty());
}

/// The first of small_problem() that it loads has that much local memory, and there may be no room for its blocks.
class Cramped : public FaultyDevice {
 public:
  Cramped(int local_bytes, bool fits) : local_bytes_(local_bytes), fits_(fits) {}

  std::unique_ptr<runtime::Module> load(std::span<const std::byte> image) override {
    auto module = FaultyDevice::load(image);
    return loaded_++ == 0 ? std::make_unique<First>(*this, std::move(module)) : std::move(module);
  }
  bool fits(runtime::Function function, const runtime::Launch& launch) const override {
    return (fits_ || function.handle != first_) && FaultyDevice::fits(function, launch);
  }
  void launch(std::span<const runtime::KernelLaunch> kernels, const void* arguments,
              std::size_t argument_bytes, Stream stream) override {
    launched_first |= kernels.front().function.handle == first_;
    FaultyDevice::launch(kernels, arguments, argument_bytes, stream);
  }

  bool launched_first = false;

 private:
  class First : public runtime::Module {
   public:
    First(Cramped& device, std::unique_ptr<runtime::Module> inner)
        : device_(device), inner_(std::move(inner)) {}
    ~First() override { device_.first_ = nullptr; }  // where another one may come to lie
    runtime::Function function(std::string_view entry) const override {
      const runtime::Function found = inner_->function(entry);
      device_.first_ = found.handle;
      return found;
    }
    runtime::Resources resources(runtime::Function function) const override {
      runtime::Resources found = inner_->resources(function);
      found.local_bytes = device_.local_bytes_;
      return found;
    }

   private:
    Cramped& device_;
    std::unique_ptr<runtime::Module> inner_;
  };

  int local_bytes_, loaded_ = 0;
  bool fits_;
  const void* first_ = nullptr;
};

TEST_F(TunerTest, WhatNeedsTooMuchOfTheDeviceIsNotLaunched) {
  struct Case {
    int local_bytes;
    bool fits;
    const char* reason;
  };
  for (const auto& [local_bytes, fits, reason] :
       {Case{256, true, nullptr}, Case{257, true, "it needs 257 bytes of local memory per thread"},
        Case{0, false, "does not fit the device"}}) {
    cache::Cache database = cache::Cache::in_memory();
    Cramped device(local_bytes, fits);
    const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
    EXPECT_EQ(device.launched_first, reason == nullptr) << local_bytes;
    std::map<std::string, int> expected;
    if (reason != nullptr) expected[reason] = 1;
    EXPECT_EQ(report.quarantined, expected);
  }
}

/// Who watches from another process must not take what is over for what hangs.
TEST_F(TunerTest, EachFirstLaunchBeginsAndEnds) {
  cache::Cache database = open();
  FaultyDevice device([](int nth) { return nth == 0 ? Fault::fault : Fault::none; });
  std::vector<std::string> begun, ended;
  const tuner::Hooks hooks{.first_launch = [&](std::string_view config, bool begins) {
    (begins ? begun : ended).emplace_back(config);
    EXPECT_EQ(begun.size(), ended.size() + (begins ? 1 : 0));
  }};
  static_cast<void>(Tuner(device, database, quick_settings()).tune(small_problem(), hooks));
  EXPECT_EQ(begun.size(), 4);
  EXPECT_EQ(ended, begun);
}

/// Its compiler has much to say about the second config.
class Talkative : public DeviceDecorator {
 public:
  Talkative() : DeviceDecorator(runtime::open_host_device()) {}
  int parallel_compiles() const override { return 1; }
  runtime::Binary compile(const runtime::CompileRequest& request) override {
    if (++requests_ != 2) return DeviceDecorator::compile(request);
    throw CompileError(request.name,
                       "first: error\n" + std::string(std::size_t{9} << 20, 'x') + "\nlast: error",
                       "/tmp/source");
  }

 private:
  int requests_ = 0;
};

TEST_F(TunerTest, ALongReasonKeepsItsBeginningAndItsEnd) {
  cache::Cache database = open();
  Talkative device;
  Tuner tuner(device, database, quick_settings());
  static_cast<void>(tuner.tune(small_problem()));
  std::vector<cache::Measurement> rejected = database.measurements(tuner.key(small_problem()));
  std::erase_if(rejected, [](const auto& m) { return m.outcome != cache::Outcome::quarantined; });
  ASSERT_EQ(rejected.size(), 1U);
  const std::string& reason = rejected[0].reason;
  EXPECT_LE(reason.size(), std::size_t{64} << 10);
  EXPECT_TRUE(reason.starts_with("does not compile: first: error\nxxx")) << reason.substr(0, 80);
  EXPECT_TRUE(reason.ends_with("xxx\nlast: error"));
  EXPECT_NE(reason.find("x\n[... 937"), std::string::npos) << "how much is left out";
  EXPECT_EQ(cache::why_impossible(rejected[0]), "");
}

TEST_F(TunerTest, AReasonIsCutBetweenCharacters) {
  std::string euros;
  for (int i = 0; i < 30'000; ++i) euros += "\xE2\x82\xAC";
  for (const std::string start : {"", "a", "ab"}) {
    const std::string kept = tuner::kept_reason(start + euros);
    EXPECT_LT(kept.size(), euros.size());
    EXPECT_EQ(printable(kept, Lines::many), kept) << start;
  }
  EXPECT_EQ(tuner::kept_reason("short"), "short");
}

/// Mounted without the right to execute, say.
class NothingLoads : public DeviceDecorator {
 public:
  NothingLoads() : DeviceDecorator(runtime::open_host_device()) {}
  std::unique_ptr<runtime::Module> load(std::span<const std::byte>) override {
    throw Error(ErrorKind::device, "planted by the test");
  }
};

TEST_F(TunerTest, WhereNoImageCanBeLoadedNoConfigIsToBlame) {
  cache::Cache database = open();
  NothingLoads device;
  Tuner tuner(device, database, quick_settings());
  EXPECT_THROW(static_cast<void>(tuner.tune(small_problem())), Error);
  EXPECT_TRUE(database.measurements(tuner.key(small_problem())).empty());
}

class Short : public DeviceDecorator {
 public:
  explicit Short(int most) : DeviceDecorator(runtime::open_host_device()), left_(most) {}
  std::unique_ptr<runtime::Module> load(std::span<const std::byte> image) override {
    if (left_-- <= 0) throw OutOfMemory("cuModuleLoadDataEx", 2, "planted by the test");
    return DeviceDecorator::load(image);
  }

 private:
  int left_;
};

using ShortOfMemory = TunerTest;

TEST_F(ShortOfMemory, IsNoFaultOfAConfig) {
  cache::Cache database = open();
  {
    Short device(0);
    try {
      static_cast<void>(Tuner(device, database, quick_settings()).tune(small_problem()));
      ADD_FAILURE() << "nothing was loaded, and something won";
    } catch (const OutOfMemory&) {
    }
  }
  {
    Short device(2);
    const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
    EXPECT_EQ(report.tried, 2);
    EXPECT_TRUE(report.quarantined.empty());
  }
}

/// What another kernel of the process did to the context.
TEST_F(ShortOfMemory, NorIsWhatWasBrokenBefore) {
  class Broken : public DeviceDecorator {
   public:
    Broken() : DeviceDecorator(runtime::open_host_device()) {}
    void synchronize(Stream) override {
      throw DeviceError("cuStreamSynchronize", 700, "planted by the test");
    }
  };
  cache::Cache database = open();
  Broken device;
  Tuner tuner(device, database, quick_settings());
  EXPECT_THROW(static_cast<void>(tuner.tune(small_problem())), DeviceError);
  EXPECT_TRUE(database.measurements(tuner.key(small_problem())).empty());
}

INSTANTIATE_TEST_SUITE_P(Faults, Quarantine,
                         testing::Values(Kind{"wrong", Fault::wrong, "wrong answer: ", "output[0, 0] is "},
                                         Kind{"no_compile", Fault::no_compile, "does not compile",
                                              "planted by the test"},
                                         Kind{"fault", Fault::fault, "fault: ", "planted by the test"}),
                         [](const auto& about) { return about.param.name; });

}  // namespace
}  // namespace ce::test
