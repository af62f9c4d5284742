#pragma once
/// \file
/// A compiled and loaded Source with its launch geometry.

#include <memory>
#include <span>
#include <vector>

#include "ce/base/dtype.hpp"
#include "cache/cache.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce::tuner {

/// What the generator's constraints ask of a device.
[[nodiscard]] generator::Limits limits_of(const runtime::Model& model);

class Kernel {
 public:
  /// \throws DeviceError where the image cannot be loaded or lacks an entry point
  Kernel(runtime::Device& device, std::span<const std::byte> image, generator::Source source);

  /// Launches every step. Allocates nothing and takes no lock.
  /// \param problem  may differ from the one it was generated for in its rows
  void launch(const generator::Problem& problem, const Arguments& arguments, Stream stream) const;

  /// Whether the device can run every step at all.
  [[nodiscard]] bool fits(const generator::Problem& problem) const;
  /// Of the step that reads the rows: the largest figures over all steps.
  [[nodiscard]] runtime::Resources resources() const;
  [[nodiscard]] const generator::Config& config() const noexcept { return config_; }

 private:
  struct Step {
    runtime::Function function;
    runtime::Launch launch;
    std::int64_t (*blocks)(const generator::Config&, const generator::Problem&);
  };

  runtime::Device* device_;
  std::unique_ptr<runtime::Module> module_;
  generator::Config config_;
  std::vector<Step> steps_;
};

/// A binary and where it came from.
struct Built {
  std::vector<std::byte> image;
  generator::Source source;
  std::string compile_key;
  bool compiled = false;  ///< false: the database had it
};

/// The binary of a config, from the database or, failing that, from the compiler; the database keeps it.
/// Safe to call from several threads.
/// \throws CompileError, Unsupported
[[nodiscard]] Built build(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
                          const generator::Config& config);

}  // namespace ce::tuner
