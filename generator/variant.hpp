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

/// The limits of a device that constraints depend on.
struct Limits {
  int capability = 0;  ///< 10 x major + minor; 0 for the host device
  int registers_per_multiprocessor = 65536;
  int shared_bytes_per_block = 48 * 1024;
};

/// One launch of an entry point of the template.
struct VariantStep {
  std::string_view entry;
  bool overlaps = false;  ///< it waits itself for the step before it, and may start earlier
};

struct Variant {
  std::string_view name;
  std::string_view file;  ///< below templates/; its "// axis" lines are the space
  bool (*serves)(const Problem&);
  /// The reason why this config cannot work for a problem that the variant serves; empty if it can. Called by
  /// rejects().
  std::optional<std::string> (*constraints)(const Config&, const Problem&, const Limits&);
  /// Dynamic shared memory of a block.
  int (*shared_bytes)(const Config&, const Problem&);
  /// Number of blocks that the rows need.
  std::int64_t (*blocks)(const Config&, const Problem&);
  /// The variant is persistent: no more blocks are launched than run at the same time, and each processes several rows.
  bool persistent = false;
  std::span<const VariantStep> steps;
  std::int64_t partial_bytes = 0;  ///< bytes of Arguments::partials
  bool takes_rows = false;         ///< counts rows in the Workspace
  int minimum_capability = 75;     ///< 10 x major + minor; the host device runs all variants

  /// Whether a device of that capability can run its kernels.
  [[nodiscard]] bool runs_on(const Limits& limits) const noexcept {
    return limits.capability == 0 || limits.capability >= minimum_capability;
  }
  /// The reason why this config cannot work for the problem on such a device; empty if it can. Compiles nothing.
  [[nodiscard]] std::optional<std::string> rejects(const Config& config, const Problem& problem,
                                                   const Limits& limits) const;
  /// The axes in its template, which is read once.
  [[nodiscard]] const std::vector<const Axis*>& axes() const;
  /// Every point of the template's space, constraints not applied, in a fixed order; listed once.
  [[nodiscard]] const std::vector<Config>& points() const;
  /// Whether the config is in space().
  [[nodiscard]] bool has(const Config& point) const;
};

[[nodiscard]] std::span<const Variant> variants() noexcept;
/// \throws InvalidArgument naming the existing variants
[[nodiscard]] const Variant& variant(std::string_view name);

/// The reason why the config is not in space(), as text from outside may name any; empty if it is.
[[nodiscard]] std::optional<std::string> why_not(const Config& config, const Problem& problem,
                                                 const Limits& limits);

/// The configs of all variants that can work for the problem on such a device, in a fixed order.
[[nodiscard]] std::vector<Config> space(const Problem& problem, const Limits& limits);

}  // namespace ce::generator
