#pragma once
/// \file
/// The database's knowledge of one key.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "tuner/decide.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"

namespace ce::cli {

struct Known {
  cache::Key key;
  std::optional<generator::Problem> problem;     ///< nothing for a race, and for a key of another version
  std::optional<tuner::Decision> decision;       ///< nothing if no config was measured with current templates
  std::string maker{};                           ///< for a race: the maker in its last final
  std::vector<cache::Measurement> measurements;  ///< all measurements, oldest first
  std::vector<const cache::Measurement*> quarantined;  ///< the latest of each quarantined config
  std::size_t history = 0;  ///< number of measurements with templates of other versions

  Known(const cache::Cache& cache, const cache::Key& wanted);

  /// Whether a measurement counts: it has current templates; for a race, its maker.
  [[nodiscard]] bool is_current(const cache::Measurement& measurement) const;

  /// \throws InvalidArgument for a race, and with the error in the text of another version's key
  [[nodiscard]] const generator::Problem& problem_or_throw() const;
  /// Why configs are quarantined: the first line of each reason, and the number of configs.
  [[nodiscard]] std::map<std::string, int> rejections() const;
  /// For people: the problem's title, or the key's text if it cannot be parsed.
  [[nodiscard]] std::string title() const;
  /// Why a person pinned the winner; empty if times decided.
  [[nodiscard]] std::string pinned() const { return decision ? decision->pinned : ""; }
};

/// For people: the problem's title, the subject of a race, or the key's text if it cannot be parsed.
[[nodiscard]] std::string title_of(const cache::Key& key);

using tuner::problem_of;

/// For people: the stage of a measurement. A config that left the turns early is "early", like one that was only
/// screened.
[[nodiscard]] std::string_view stage_of(const cache::Measurement& measurement) noexcept;

/// For people: the time of a measurement, and its GPU: "2030-01-02 12:00 UTC on GPU-1".
[[nodiscard]] std::string timed_text(const cache::Measurement& measurement);

/// Whether the measurement has a valid time. An import may have brought one without.
[[nodiscard]] bool has_time(const cache::Measurement& measurement) noexcept;

/// Throughput in 1e9 bytes a second, of the fewest bytes that must move; 0 without a time.
[[nodiscard]] double throughput_of(const cache::Measurement& measurement) noexcept;

/// The device's name in a key's text: "NVIDIA H200".
[[nodiscard]] std::string device_name_of(const cache::Key& key);

}  // namespace ce::cli
