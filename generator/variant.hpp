#pragma once
/// \file
/// A Variant is a kernel template together with the space of values that it can be instantiated with.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config.hpp"
#include "generator/problem.hpp"

namespace ce::generator {

/// What a device can hold, as far as constraints ask.
struct Limits {
  int capability = 0;  ///< 10 x major + minor; 0 for the host device
  int registers_per_multiprocessor = 65536;
  int shared_bytes_per_block = 48 * 1024;
};

/// One launch of an entry point of the template.
struct VariantStep {
  std::string_view entry;
  bool overlaps = false;  ///< waits by itself for the step before it, and may start earlier
};

struct Variant {
  std::string_view name;
  std::string_view file;  ///< below templates/; its "// axis" lines are the space
  bool (*serves)(const Problem&);
  /// Why this config cannot work for a problem that it serves; nothing when it can. rejects() asks it.
  std::optional<std::string> (*constraints)(const Config&, const Problem&, const Limits&);
  /// Dynamic shared memory of a block.
  int (*shared_bytes)(const Config&, const Problem&);
  /// Blocks that the rows need.
  std::int64_t (*blocks)(const Config&, const Problem&);
  /// Blocks stay and take several rows: never more are launched than run at the same time.
  bool persistent = false;
  std::span<const VariantStep> steps;
  std::int64_t partial_bytes = 0;  ///< of Arguments::partials
  bool takes_rows = false;         ///< counts rows in the Workspace
  int minimum_capability = 75;     ///< 10 x major + minor; the host device has all

  /// Whether a device of that capability can run its kernels.
  [[nodiscard]] bool runs_on(const Limits& limits) const noexcept {
    return limits.capability == 0 || limits.capability >= minimum_capability;
  }
  /// Why this config cannot work for the problem on such a device, found without compiling anything; nothing when it can.
  [[nodiscard]] std::optional<std::string> rejects(const Config& config, const Problem& problem,
                                                   const Limits& limits) const;
  /// The axes that its template names, which is read once.
  [[nodiscard]] const std::vector<const Axis*>& axes() const;
  /// Every point of the template's space, constraints not applied, in a fixed order; listed once.
  [[nodiscard]] const std::vector<Config>& points() const;
  /// Whether it is one of them.
  [[nodiscard]] bool has(const Config& point) const;
};

[[nodiscard]] std::span<const Variant> variants() noexcept;
/// \throws InvalidArgument naming the variants that exist
[[nodiscard]] const Variant& variant(std::string_view name);

/// Why the config is not one of space(), which a text from outside may not be; nothing where it is.
[[nodiscard]] std::optional<std::string> why_not(const Config& config, const Problem& problem,
                                                 const Limits& limits);

/// The configs of all variants that can work for the problem on such a device, in a fixed order.
[[nodiscard]] std::vector<Config> space(const Problem& problem, const Limits& limits);

}  // namespace ce::generator
