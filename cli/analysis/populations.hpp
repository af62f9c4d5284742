#pragma once
/// \file
/// The measurements of a key, by the software that they were made with: what to compare with what.

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

/// What a measurement was made with. "-" for what its environment does not tell.
struct Software {
  std::string driver, toolkit, library;
  std::map<std::string, std::string> templates;  ///< digests by tuner::templates_of()
};

[[nodiscard]] Software software_of(const cache::Measurement& measurement);
/// The same without templates.
[[nodiscard]] Software software_of(const cache::Environment& environment);

/// One of its templates, for people: "block 1a2b3c4d"; of a race its maker.
[[nodiscard]] std::string templates_text(std::string_view variant, std::string_view digest);

/// Runs of one key that were made with the same software, on as many rows.
struct Population {
  Software software;
  std::int64_t rows = 0;
  std::vector<const cache::Measurement*> runs;  ///< finals and checks, oldest first; not those under doubt
  std::string winner;                           ///< the config that was served at its end

  [[nodiscard]] const std::string& last_at() const noexcept { return runs.back()->created_at; }
  [[nodiscard]] std::vector<const cache::Measurement*> runs_of(const std::string& config) const;
};

/// \param measurements  of one key, oldest first; must outlive the result
/// \param chosen  whether a measurement may be a run; all say what was served
/// \returns the one with the newest run last
[[nodiscard]] std::vector<Population> populations_of(
    std::span<const cache::Measurement> measurements,
    const std::function<bool(const cache::Measurement&)>& chosen = {});

/// Whether the kernel has blocks enough, four for each multiprocessor, that what one of them meets does not decide its
/// time. Holds on the host device, and of what an edited database has in place of a key or a config.
[[nodiscard]] bool fills_device(const cache::Measurement& measurement);

/// As evidence for verdicts, oldest first. References only where they are of one kernel. What one process measured of a
/// kernel that does not fill the device is one run: the medians.
/// \param measurements  of one config
/// \param like  whose reference that is; without it, that of the first
[[nodiscard]] std::vector<Run> to_runs(std::span<const cache::Measurement* const> measurements);
[[nodiscard]] std::vector<Run> to_runs(std::span<const cache::Measurement* const> measurements,
                                       const cache::Measurement& like);

/// Collects what the populations of a device's problems say of its noise.
class NoisePool {
 public:
  /// Of one problem. The runs of a config on one GPU within a population are repeats, but for kernels that do not
  /// fill the device: how far those scatter says nothing of others.
  void add(std::span<const Population> populations);
  void add(const NoisePool& other);
  /// Of all that was added. See pooled_noise().
  [[nodiscard]] Noise noise() const { return pooled_noise(repeats_); }

 private:
  std::vector<std::vector<Run>> repeats_;
};

}  // namespace ce::tuner
