#pragma once
/// \file
/// Common JSON output of commands with --json. docs/json.md documents the fields.

#include <nlohmann/json_fwd.hpp>

#include "cache/measurement.hpp"
#include "cli/analysis/explain.hpp"
#include "cli/failure.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::cli {

/// Keeps fields in insertion order.
using Json = nlohmann::ordered_json;

[[nodiscard]] Json json_of(const Failure& failure);
[[nodiscard]] Json json_of(const generator::Problem& problem);
[[nodiscard]] Json json_of(const cache::Measurement& measurement);
[[nodiscard]] Json json_of(const runtime::Model& model);
[[nodiscard]] Json json_of(const tuner::AxisEffect& effect);

/// Version of every document: increased when a field is removed or changes its meaning, not for new fields.
inline constexpr int json_format = 1;

/// Prints a document of `format` with these fields to standard output. Bytes that are not UTF-8, as in messages of
/// compilers and in file names, are replaced, and characters beyond ASCII are written as \\u escapes: a terminal would
/// obey some of them.
void print(const Json& fields);

}  // namespace ce::cli
