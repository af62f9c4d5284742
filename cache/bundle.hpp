#pragma once
/// \file
/// Decisions as text to keep in a repository: the config that serves each key, one JSON object a line, sorted by device
/// and then by problem. Without samples, hosts, dates and paths, so a changed line is a changed decision.

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "cache/measurement.hpp"

namespace ce::cache {

class Store;

/// Time of a bundle's decisions, since bundles do not contain one.
inline constexpr std::string_view undated = "1970-01-01T00:00:00.000Z";

struct BundledDecision {
  Key key;
  std::string config;
  std::string template_digest;  ///< the decision is valid for these templates only, unless it is pinned
  std::string compile_key;      ///< identifies its compiled kernels; empty if none was compiled
  std::string why;              ///< the reason, in words
  bool pinned = false;          ///< chosen by a person, against the measured times
  std::int64_t rows = 0, bytes = 0;
  double median_us = 0;  ///< 0 if the config was never timed
  int registers = 0;
};

struct BundledBinary {
  std::string compile_key;
  std::vector<std::byte> image;
};

struct Bundle {
  std::vector<BundledDecision> decisions;
  std::vector<BundledBinary> binaries;
};

/// Writes a bundle. Sorts its decisions and kernels.
void write_bundle(std::ostream& out, Bundle bundle);

/// \param name  name of the text, for messages
/// \throws InvalidArgument naming the line and what is wrong with it
[[nodiscard]] Bundle read_bundle(std::string_view text, const std::string& name);

/// Whether a text begins like a bundle.
[[nodiscard]] bool is_bundle(std::string_view beginning) noexcept;

struct BundleFile {
  Bundle bundle;
  bool is_vouched_for = false;  ///< it is signed by a signer that CE_TRUST names
};

/// \throws NotFound, InvalidArgument as read_bundle(), DatabaseError if the file cannot be read, or if CE_TRUST is set
/// and names no signer of it
[[nodiscard]] BundleFile read_bundle_file(const std::filesystem::path& path);

/// Adds the decisions and kernels of a bundle to a store.
void fill(Store& store, const Bundle& bundle);

}  // namespace ce::cache
