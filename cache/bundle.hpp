#pragma once
/// \file
/// Decisions as a text to keep in a repository: which config serves for which key, one JSON object a line, by device and
/// then by problem. Without samples, hosts, dates and paths, so a change of a line is a change of a decision.

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "cache/measurement.hpp"

namespace ce::cache {

class Store;

/// When a decision of a bundle was made: it does not say.
inline constexpr std::string_view undated = "1970-01-01T00:00:00.000Z";

struct BundledDecision {
  Key key;
  std::string config;
  std::string template_digest;  ///< the decision is good for these templates alone, unless it is pinned
  std::string compile_key;      ///< names its compiled kernels; empty where none was compiled
  std::string why;              ///< in words
  bool pinned = false;          ///< by a person, against times
  std::int64_t rows = 0, bytes = 0;
  double median_us = 0;  ///< 0 where the config was never timed
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

/// Sorts both.
void write_bundle(std::ostream& out, Bundle bundle);

/// \param name  of the text, for messages
/// \throws InvalidArgument naming the line and what is wrong with it
[[nodiscard]] Bundle read_bundle(std::string_view text, const std::string& name);

/// Whether a text begins as bundles do.
[[nodiscard]] bool is_bundle(std::string_view beginning) noexcept;

struct BundleFile {
  Bundle bundle;
  bool is_vouched_for = false;  ///< its signature is of someone whom CE_TRUST names
};

/// \throws NotFound, InvalidArgument as read_bundle(), DatabaseError where the file cannot be read, or is not signed by
/// someone whom CE_TRUST, if it is set, names
[[nodiscard]] BundleFile read_bundle_file(const std::filesystem::path& path);

/// Adds what the bundle says to a store.
void fill(Store& store, const Bundle& bundle);

}  // namespace ce::cache
