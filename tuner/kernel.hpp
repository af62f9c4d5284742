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
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce::tuner {

/// What the generator's constraints ask of a device.
[[nodiscard]] generator::Limits limits_of(const runtime::Model& model);

class Kernel {
 public:
  /// Room for the launches of every step.
  using Launches = std::array<runtime::KernelLaunch, generator::most_steps>;

  /// \param program  that was built: see build()
  /// \throws DeviceError where a binary cannot be loaded or lacks an entry point
  Kernel(runtime::Device& device, const generator::Program& program);

  /// Launches every step.
  /// \param problem  may differ from the one it was generated for in its rows
  /// \param arguments  the one parameter of all steps
  /// \param most_clusters  of blocks that take one row after the other; 0 for as many as the device holds
  template <class Parameter>
  void launch(const generator::Problem& problem, const Parameter& arguments, Stream stream,
              std::int64_t most_clusters = 0) const {
    Launches room;
    device_->launch(launches(problem, room, most_clusters), &arguments, sizeof arguments, stream);
  }
  /// The same for callers that launch it more than once, with Device::launch(): valid as long as the Kernel.
  /// \returns the launches, at the beginning of the room
  std::span<const runtime::KernelLaunch> launches(const generator::Problem& problem, Launches& room,
                                                  std::int64_t most_clusters = 0) const;

  /// Whether the device can run every step at all.
  [[nodiscard]] bool fits(const generator::Problem& problem) const;
  /// The largest figures over all steps.
  [[nodiscard]] runtime::Resources resources() const;
  [[nodiscard]] const generator::Config& config() const noexcept { return config_; }
  /// The compile key of the program that it was loaded from.
  [[nodiscard]] const std::string& compile_key() const noexcept { return compile_key_; }
  /// Whether it needs a Workspace, whatever the problem.
  [[nodiscard]] bool takes_rows() const noexcept { return takes_rows_; }
  /// Bytes that Arguments::partials must point to; 0 for none.
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

/// The program of a config with its binaries, from the database or, failing that, from the compiler. The database keeps
/// at once what all configs share; what belongs to one config only is kept by keep(), so that losers leave no binary
/// behind. Safe to call from several threads. \throws CompileError, Unsupported
[[nodiscard]] generator::Program build(runtime::Device& device, cache::Cache& cache,
                                       const generator::Problem& problem, const generator::Config& config);

/// The same of a program that is not of one config: the database keeps all of it at once.
[[nodiscard]] generator::Program build_shared(runtime::Device& device, cache::Cache& cache,
                                              generator::Program program);

/// What runs for a problem that has no winner.
struct Fallback {
  Kernel kernel;
  int compiled = 0;  ///< compiler runs
};

/// The first of these configs, at least one, that compiles and fits the device; but a kernel that turns out to keep
/// values in local memory gives way to the next that does not, since it may be much slower than any ranking can know
/// before it is compiled. The database keeps the binaries. Where three do not compile, or keep such values, no others
/// are compiled. \throws as build(), for the first that does not compile, Unsupported where none fits
[[nodiscard]] Fallback fallback(runtime::Device& device, cache::Cache& cache,
                                const generator::Problem& problem, std::span<const generator::Config> ranked);

/// Makes the database keep the binaries of a program's sources.
void keep(cache::Cache& cache, std::span<const generator::Source> sources);

/// A program as build() makes it, by the key that a measurement names, from the database alone: asking for today's key would
/// open the compiler only to learn its version. Nothing where the database lacks a binary.
[[nodiscard]] std::optional<generator::Program> find_built(cache::Cache& cache,
                                                           const generator::Problem& problem,
                                                           const generator::Config& config,
                                                           std::string_view compile_key);

}  // namespace ce::tuner
