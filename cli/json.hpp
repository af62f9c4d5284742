#pragma once
/// \file
/// What several commands print with --json. The fields are documented in docs/json.md.

#include <nlohmann/json_fwd.hpp>

#include "cache/measurement.hpp"
#include "cli/analysis/explain.hpp"
#include "cli/failure.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::cli {

/// Keeps its fields in the order in which they were set.
using Json = nlohmann::ordered_json;

[[nodiscard]] Json json_of(const Failure& failure);
[[nodiscard]] Json json_of(const generator::Problem& problem);
[[nodiscard]] Json json_of(const cache::Measurement& measurement);
[[nodiscard]] Json json_of(const runtime::Model& model);
[[nodiscard]] Json json_of(const tuner::AxisEffect& effect);

/// Of every document: a field that goes, or means something else, makes it one more. New fields do not.
inline constexpr int json_format = 1;

/// Prints a document of `format` and these fields to standard output. Bytes that are no UTF-8, as compilers and file names may hold, are
/// replaced, and characters beyond ASCII are written as \\u and digits: a terminal obeys some of them.
void print(const Json& fields);

}  // namespace ce::cli
