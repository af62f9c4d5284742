#pragma once
/// \file
/// Between a Problem on a device and the key that the database has for it.

#include <optional>

#include "cache/measurement.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// What measurements of the problem on a device of this model are kept under.
[[nodiscard]] cache::Key key_of(const generator::Problem& problem, const runtime::Model& model);

/// The problem of a key; nothing for one that another version of the library wrote: a database outlives versions of the
/// text.
[[nodiscard]] std::optional<generator::Problem> problem_of(const cache::Key& key);

}  // namespace ce::tuner
