#pragma once
/// \file
/// A Program compiled and loaded, with its launch geometry.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "ce/dtype.hpp"
#include "ce/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce::tuner {

/// The limits of a device for the generator's constraints.
[[nodiscard]] generator::Limits limits_of(const runtime::Model& model);

class Kernel {
 public:
  /// Storage for the launches of every step.
  using Launches = std::array<runtime::KernelLaunch, generator::most_steps>;

  /// \param program  a built program: see build()
  /// \throws DeviceError if a binary cannot be loaded or lacks an entry point
  Kernel(runtime::Device& device, const generator::Program& program);

  /// Launches every step.
  /// \param problem  may differ in its rows from the one that the program was generated for
  /// \param arguments  the single parameter of all steps
  /// \param most_clusters  limits the clusters of a persistent kernel; 0 for as many as the device holds
  template <class Parameter>
  void launch(const generator::Problem& problem, const Parameter& arguments, Stream stream,
              std::int64_t most_clusters = 0) const {
    Launches room;
    device_->launch(launches(problem, room, most_clusters), &arguments, sizeof arguments, stream);
  }
  /// The launches, for callers that repeat them with Device::launch(); valid as long as the Kernel.
  /// \returns the part of `room` that was filled
  std::span<const runtime::KernelLaunch> launches(const generator::Problem& problem, Launches& room,
                                                  std::int64_t most_clusters = 0) const;

  /// Whether the device can run all steps.
  [[nodiscard]] bool fits(const generator::Problem& problem) const;
  /// The largest figures of all steps.
  [[nodiscard]] runtime::Resources resources() const;
  [[nodiscard]] const generator::Config& config() const noexcept { return config_; }
  /// The compile key of its program.
  [[nodiscard]] const std::string& compile_key() const noexcept { return compile_key_; }
  /// Whether it needs a Workspace for every problem.
  [[nodiscard]] bool takes_rows() const noexcept { return takes_rows_; }
  /// Bytes of Arguments::partials; 0: none.
  [[nodiscard]] std::int64_t partial_bytes() const noexcept { return partial_bytes_; }

 private:
  struct Step {
    const runtime::Module* module;
    runtime::Function function;
    runtime::Launch launch;
    std::int64_t (*blocks)(const generator::Config&, const generator::Problem&);
    std::int64_t most_blocks;
    bool persistent;
  };

  [[nodiscard]] runtime::Launch launch_of(const Step& step, const generator::Problem& problem,
                                          std::int64_t most_clusters = 0) const;

  runtime::Device* device_;
  std::vector<std::unique_ptr<runtime::Module>> modules_;
  generator::Config config_;
  std::string compile_key_;
  std::int64_t partial_bytes_;
  bool takes_rows_;
  std::vector<Step> steps_;
};

/// The program of a config with its binaries, from the database or, failing that, from the compiler. The database
/// stores shared sources at once; a config's own sources are stored by keep(), so that losers leave no binary behind.
/// Thread-safe. \throws CompileError, Unsupported
[[nodiscard]] generator::Program build(runtime::Device& device, cache::Cache& cache,
                                       const generator::Problem& problem, const generator::Config& config);

/// Builds a program that belongs to no config: the database stores all of it at once.
[[nodiscard]] generator::Program build_shared(runtime::Device& device, cache::Cache& cache,
                                              generator::Program program);

/// The kernel for a problem without a winner.
struct Fallback {
  Kernel kernel;
  int compiled = 0;  ///< compiler runs
};

/// The error where no config of a problem fits the device.
[[nodiscard]] Unsupported no_config_fits(const generator::Problem& problem, const runtime::Device& device);

/// The first of these configs (at least one) that compiles and fits the device. A kernel that turns out to keep values
/// in local memory is skipped for the next one that does not, since it may be much slower than any ranking can predict
/// before compiling. The database stores the binaries. Once three configs do not compile, or use local memory, no
/// others are compiled. \throws the error of build() for the first that does not compile; Unsupported if none fits
[[nodiscard]] Fallback fallback(runtime::Device& device, cache::Cache& cache,
                                const generator::Problem& problem, std::span<const generator::Config> ranked);

/// Stores the binaries of a program's sources in the database.
void keep(cache::Cache& cache, std::span<const generator::Source> sources);

/// A built program by the compile key in a measurement, from the database alone: computing the current key would load
/// the compiler only to get its version. Nothing if the database lacks a binary.
[[nodiscard]] std::optional<generator::Program> find_built(cache::Cache& cache,
                                                           const generator::Problem& problem,
                                                           const generator::Config& config,
                                                           std::string_view compile_key);

}  // namespace ce::tuner
