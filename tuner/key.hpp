#pragma once
/// \file
/// Converts between a Problem on a device and its key in the database.

#include <optional>
#include <string_view>

#include "cache/measurement.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// The key of the problem on devices of this model.
[[nodiscard]] cache::Key key_of(const generator::Problem& problem, const runtime::Model& model);

/// The problem of a key; nothing for a key of another version of the library, whose text may have another form.
[[nodiscard]] std::optional<generator::Problem> problem_of(const cache::Key& key);

/// The key of a race on devices of this model. A race compares ways to do one thing that are not configs of ours, such
/// as the algorithms of a library.
/// \param subject  "matmul bf16 m=8192 ...": everything that determines which way is fastest
[[nodiscard]] cache::Key race_key(std::string_view subject, const runtime::Model& model);

/// The subject of a race's key; nothing for other keys.
[[nodiscard]] std::optional<std::string_view> subject_of_race(const cache::Key& key);

}  // namespace ce::tuner
