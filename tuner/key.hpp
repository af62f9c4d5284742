#pragma once
/// \file
/// Between a Problem on a device and the key that the database has for it.

#include <optional>
#include <string_view>

#include "cache/measurement.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// What measurements of the problem on a device of this model are kept under.
[[nodiscard]] cache::Key key_of(const generator::Problem& problem, const runtime::Model& model);

/// The problem of a key; nothing for one that another version of the library wrote: a database outlives versions of the
/// text.
[[nodiscard]] std::optional<generator::Problem> problem_of(const cache::Key& key);

/// What a race on a device of this model is kept under: of ways to do one thing that are no configs of ours, such as the
/// algorithms of a library.
/// \param subject  "matmul bf16 m=8192 ...": what decides which way is fastest
[[nodiscard]] cache::Key race_key(std::string_view subject, const runtime::Model& model);

/// The subject of a race; nothing for a key of another kind.
[[nodiscard]] std::optional<std::string_view> subject_of_race(const cache::Key& key);

}  // namespace ce::tuner
