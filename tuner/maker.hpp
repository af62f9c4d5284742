#pragma once
/// \file
/// What made a measurement: templates of a version, or the library of a race.

#include <span>
#include <string>
#include <string_view>

#include "cache/cache.hpp"
#include "generator/operations/operation.hpp"

namespace ce::tuner {

/// The variant of a config text.
[[nodiscard]] std::string variant_of(std::string_view config);

/// The part of a measurement's origin that its template digest depends on: its variant; "" for a race, all of whose
/// ways have one maker.
[[nodiscard]] std::string_view templates_of(const cache::Measurement& measurement);

/// The digest of the current templates for the variant in a config text; empty for a variant that no longer exists.
[[nodiscard]] std::string current_digest(std::string_view config, generator::Operation operation);

/// Whether the measurement was made with this program's templates.
[[nodiscard]] bool is_current(const cache::Measurement& measurement, generator::Operation operation);

/// Environment names of the default way and of the winner of a race. Absent in a race in which no way was right.
inline constexpr const char* first_of_race = "first";
inline constexpr const char* winner_of_race = "winner";

/// The maker of a race of kernels of this library: it includes the digest of their templates, so that a change makes a
/// new version.
[[nodiscard]] std::string maker_with_templates(std::string_view maker, std::string_view template_digest);

/// The maker of a race's last final with current templates; empty if there is none.
[[nodiscard]] std::string maker_of_race(std::span<const cache::Measurement> measurements);

/// Whether it belongs to the final of a race whose winner is missing, which a damaged database has lost: a way that was
/// beaten must not win instead.
/// \param measurements  measurements of its key
[[nodiscard]] bool has_lost_winner(const cache::Measurement& measurement,
                                   std::span<const cache::Measurement* const> measurements);

}  // namespace ce::tuner
