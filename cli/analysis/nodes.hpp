#pragma once
/// \file
/// The GPUs of a database, each held against its fleet.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/analysis/fleet.hpp"
#include "cli/exit_codes.hpp"
#include "cli/json.hpp"

namespace ce::cli {

/// One GPU. GPUs of different models are in different fleets.
struct Node {
  std::string gpu;     ///< its UUID; of a host device the name of the host
  std::string host;    ///< empty where it is not known
  std::string device;  ///< the name of its model
  tuner::GpuFinding finding;
  /// What may slow it down and others not, in words: throttling, a lower power limit or clock, heat.
  std::vector<std::string> conditions;
};

struct Fleet {
  std::vector<Node> nodes;  ///< slow ones first, then unsure, fast and usual ones; of each the slowest first
  std::vector<std::string> alone;  ///< GPUs that no other has measured the same as
};

/// By what GPUs of one model have timed of the same config, on as many rows, with the same software: of each the newest
/// that two of them share.
/// \param chosen  whether a measurement counts; all without it
[[nodiscard]] Fleet fleet_of(const cache::Cache& cache,
                             const std::function<bool(const cache::Measurement&)>& chosen = {});

/// The GPU of a measurement or a run, as Node::gpu.
[[nodiscard]] std::string gpu_of(const std::map<std::string, std::string>& environment);

/// A table of those that are not as the fleet, and counts. \param all  the others, too
[[nodiscard]] std::string text_of(const Fleet& fleet, bool all);
/// {"nodes": [...], "alone": [...], "summary": {...}}
[[nodiscard]] Json json_of(const Fleet& fleet);

/// ExitCode::regression where one is slow; else nothing_compared where none was compared, unsure_regression where one may
/// be slow, success.
[[nodiscard]] ExitCode exit_code_of(const Fleet& fleet);

}  // namespace ce::cli
