#pragma once
/// \file
/// Compares the GPUs in a database with their fleets.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/analysis/fleet.hpp"
#include "cli/exit_codes.hpp"
#include "cli/json.hpp"

namespace ce::cli {

/// One GPU. Each model has a fleet of its own.
struct Node {
  std::string gpu;     ///< its UUID; for a host device the name of the host
  std::string host;    ///< empty if not known
  std::string device;  ///< the name of its model
  tuner::GpuFinding finding;
  /// Conditions that may slow down this GPU only, in words: throttling, a lower power limit or clock, heat.
  std::vector<std::string> conditions;
};

struct Fleet {
  std::vector<Node> nodes;         ///< slow, then unsure, fast and normal ones; the slowest of each first
  std::vector<std::string> alone;  ///< GPUs without comparable measurements on another GPU
};

/// Compares times of the same config on GPUs of one model, with equal rows and the same software: the newest software
/// that two of them share.
/// \param chosen  selects measurements; all without it
[[nodiscard]] Fleet fleet_of(const cache::Cache& cache,
                             const std::function<bool(const cache::Measurement&)>& chosen = {});

/// The GPU of a measurement or a run, as in Node::gpu.
[[nodiscard]] std::string gpu_of(const std::map<std::string, std::string>& environment);

/// A table of the GPUs that differ from the fleet, and counts. \param all  includes the others
[[nodiscard]] std::string text_of(const Fleet& fleet, bool all);
/// {"nodes": [...], "alone": [...], "summary": {...}}
[[nodiscard]] Json json_of(const Fleet& fleet);

/// ExitCode::regression if one is slow; else nothing_compared if none was compared, unsure_regression if one may be
/// slow, success.
[[nodiscard]] ExitCode exit_code_of(const Fleet& fleet);

}  // namespace ce::cli
