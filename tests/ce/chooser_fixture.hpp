#pragma once
/// \file
/// A Chooser on a device that captures, fails and takes its time when it is told to.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ce/chooser.hpp"
#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/tuner/fixture.hpp"
#include "tests/until.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::test {

/// Who comes while it is closed waits until it opens.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++came_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    came_ = 0;
  }
  /// For a thread to come.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return came_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int came_ = 0;
};

/// One whose kernels keep values in local memory.
class SpillingModule : public runtime::Module {
 public:
  explicit SpillingModule(std::unique_ptr<Module> inner) : inner_(std::move(inner)) {}
  runtime::Function function(std::string_view entry) const override { return inner_->function(entry); }
  runtime::Resources resources(runtime::Function function) const override {
    runtime::Resources found = inner_->resources(function);
    found.local_bytes = 32;
    return found;
  }

 private:
  std::unique_ptr<Module> inner_;
};

class ObedientDevice : public DeviceDecorator {
 public:
  /// \param suffix  of the model's name
  explicit ObedientDevice(const std::string& suffix = "")
      : DeviceDecorator(runtime::open_host_device()), model_(DeviceDecorator::model()) {
    model_.name += suffix;
  }

  const runtime::Model& model() const override { return model_; }
  bool capturing(Stream) const override { return captures; }
  int parallel_compiles() const override { return 1; }
  runtime::Binary compile(const runtime::CompileRequest& request) override {
    compilers.pass();
    ++compiled;
    if (!refused.empty() && request.text.find(refused) != std::string::npos)
      throw CompileError(request.name, "planted by the test", "nowhere.cu");
    return DeviceDecorator::compile(request);
  }
  std::unique_ptr<runtime::Module> load(std::span<const std::byte> image) override {
    auto module = DeviceDecorator::load(image);
    if (spilling-- > 0) return std::make_unique<SpillingModule>(std::move(module));
    return module;
  }
  bool fits(runtime::Function function, const runtime::Launch& launch) const override {
    return misfits-- <= 0 && DeviceDecorator::fits(function, launch);
  }
  void* allocate(std::size_t bytes) override {
    if (full) throw OutOfMemory("allocate", 0, "planted by the test");
    return DeviceDecorator::allocate(bytes);
  }
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    if (fails) throw DeviceError("time", 700, "planted by the test");
    timers.pass();
    return DeviceDecorator::time(samples, before, timed);
  }

  Gate compilers;
  Gate timers;  ///< while it is closed searches come to no end; what is not timed goes on
  std::atomic<bool> captures = false;
  std::atomic<int> compiled = 0;
  std::atomic<bool> fails = false;       ///< whatever is timed
  std::atomic<int> spilling = 0;         ///< of the modules that are loaded next
  std::atomic<bool> full = false;        ///< nothing more is allocated
  mutable std::atomic<int> misfits = 0;  ///< of the launches that are asked about next
  std::string refused;                   ///< a part of a text that does not compile

 private:
  runtime::Model model_;
};

class ChooserTest : public TunerTest {
 protected:
  [[nodiscard]] static generator::Problem wider(std::int64_t columns) {
    generator::Problem problem = small_problem();
    problem.columns = columns;
    return problem;
  }

  /// What a chooser says of the problem, whose kernel must be right.
  Choice choose(Chooser& chooser, const generator::Problem& problem = small_problem()) {
    const PlanTable::Entry& chosen = chooser.choose(problem, nullptr);
    EXPECT_EQ(tuner::Verifier(device, problem, 1).mismatch(chosen.kernel), std::nullopt);
    return chosen.choice;
  }

  Choice settled(Chooser& chooser, const generator::Problem& problem = small_problem()) {
    static_cast<void>(
        until([&] { return !chooser.choose(problem, nullptr).choice.provisional; }, std::chrono::minutes(3)));
    return choose(chooser, problem);
  }

  ObedientDevice device;
  cache::Cache database = open();
};

}  // namespace ce::test
