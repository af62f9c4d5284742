#pragma once
/// \file
/// What the tests of the tuner share: a folder for the database and a device on which chosen configs
/// misbehave.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "tests/tuner/device_decorator.hpp"
#include "tuner/tuner.hpp"

namespace ce::test {

/// Removed with its owner.
class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// How a config misbehaves.
enum class Fault {
  none,
  wrong,       ///< computes nothing, so the output stays as it was
  no_compile,  ///< the compiler is shown a text that it must refuse
  fault,       ///< its launch fails
};

/// A small problem that every variant serves.
[[nodiscard]] generator::Problem small_problem();

/// Few configs and few samples: what is decided matters here, not how well.
[[nodiscard]] tuner::Settings quick_settings();

/// By a search with these settings; not what its turns left behind.
[[nodiscard]] bool is_of_screening(const cache::Measurement& measurement);

/// The host device, with faults planted into configs of small_problem(), in the order in which they come to
/// be compiled.
class FaultyDevice : public DeviceDecorator {
 public:
  /// \param fault_of  of the n-th config, from 0
  explicit FaultyDevice(std::function<Fault(int)> fault_of = [](int) { return Fault::none; });

  runtime::Binary compile(const runtime::CompileRequest& request) override;
  std::unique_ptr<runtime::Module> load(std::span<const std::byte> image) override;
  void launch(std::span<const runtime::KernelLaunch> kernels, const void* arguments,
              std::size_t argument_bytes, Stream stream) override;
  void* allocate(std::size_t bytes) override;
  void release(void* data) noexcept override;
  /// One at a time, so that the order is that of the tuner.
  int parallel_compiles() const override { return 1; }

  /// The configs that came to be compiled, by what was planted.
  [[nodiscard]] std::set<std::string> with(Fault fault) const;
  [[nodiscard]] int compiled() const;
  /// The config that was launched last; empty for what is none of small_problem().
  [[nodiscard]] std::string launched() const;
  /// Allocations that are not released.
  [[nodiscard]] std::size_t allocations() const;

 private:
  class WatchedModule;

  mutable std::mutex mutex_;
  std::function<Fault(int)> fault_of_;
  struct Planted {
    std::string config;
    Fault fault = Fault::none;
  };
  std::map<std::string, Fault> configs_;      ///< by text
  std::map<std::string, Planted> images_;     ///< by digest
  std::map<const void*, Planted> functions_;  ///< by handle
  std::string launched_;
  std::set<void*> live_;
};

/// One on which every sample of a config takes what a function says.
class TimedDevice : public FaultyDevice {
 public:
  /// \param us_of  of a config's text; in microseconds
  explicit TimedDevice(std::function<double(const std::string&)> us_of) : us_of_(std::move(us_of)) {}
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override;

 private:
  std::function<double(const std::string&)> us_of_;
};

/// A database of its own, and a Tuner of a FaultyDevice with it.
class TunerTest : public testing::Test {
 protected:
  [[nodiscard]] std::string file() const { return (folder_.path() / "ce.db").string(); }
  [[nodiscard]] cache::Cache open() const { return cache::Cache::open(file()); }

 private:
  Folder folder_;
};

}  // namespace ce::test
