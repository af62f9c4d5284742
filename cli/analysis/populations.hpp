#pragma once
/// \file
/// Groups the measurements of a key by the software that they were made with, for comparisons.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/measurement.hpp"
#include "cli/analysis/verdict.hpp"

namespace ce::tuner {

/// The software of a measurement; "-" for versions that its environment lacks.
struct Software {
  std::string driver, toolkit, library;
  std::map<std::string, std::string> templates;  ///< digests by tuner::templates_of()
};

[[nodiscard]] Software software_of(const cache::Measurement& measurement);
/// The software without templates.
[[nodiscard]] Software software_of(const cache::Environment& environment);

/// One of its templates, for people: "block 1a2b3c4d"; for a race its maker.
[[nodiscard]] std::string templates_text(std::string_view variant, std::string_view digest);

/// Runs of one key that were made with the same software and equal rows.
struct Population {
  Software software;
  std::int64_t rows = 0;
  std::vector<const cache::Measurement*> runs;  ///< finals and checks, oldest first; without doubtful ones
  std::string winner;                           ///< the config that was served at the last run

  [[nodiscard]] const std::string& last_at() const noexcept { return runs.back()->created_at; }
  [[nodiscard]] std::vector<const cache::Measurement*> runs_of(const std::string& config) const;
};

/// \param measurements  of one key, oldest first; must outlive the result
/// \param chosen  selects measurements as runs; all determine which config was served
/// \returns the populations; the one with the newest run is last
[[nodiscard]] std::vector<Population> populations_of(
    std::span<const cache::Measurement> measurements,
    const std::function<bool(const cache::Measurement&)>& chosen = {});

/// Whether the kernel has at least four blocks for each multiprocessor, so that a single block's delays do not
/// determine its time. True on the host device, and for an invalid key or config of an edited database.
[[nodiscard]] bool fills_device(const cache::Measurement& measurement);

/// Converts measurements to evidence for verdicts, oldest first. Reference times are used only if they are of one
/// kernel. All measurements by one process of a kernel that does not fill the device become one run: their medians.
/// \param measurements  of one config
/// \param like  a measurement with the reference kernel; by default the first one
[[nodiscard]] std::vector<Run> to_runs(std::span<const cache::Measurement* const> measurements);
[[nodiscard]] std::vector<Run> to_runs(std::span<const cache::Measurement* const> measurements,
                                       const cache::Measurement& like);

/// Collects the noise in the populations of a device's problems.
class NoisePool {
 public:
  /// Adds one problem's populations. Runs of a config on one GPU within a population are repeats, except for kernels
  /// that do not fill the device: their scatter is not typical.
  void add(std::span<const Population> populations);
  void add(const NoisePool& other);
  /// The noise of everything added. See pooled_noise().
  [[nodiscard]] Noise noise() const { return pooled_noise(repeats_); }

 private:
  std::vector<std::vector<Run>> repeats_;
};

}  // namespace ce::tuner
