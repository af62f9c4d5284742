#pragma once
/// \file
/// What the database knows of one key, put in order.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "tuner/decide.hpp"
#include "tuner/key.hpp"

namespace ce::cli {

struct Known {
  cache::Key key;
  std::optional<generator::Problem>
      problem;                              ///< nothing for a race, and for a key that another version wrote
  std::optional<tuner::Decision> decision;  ///< nothing where no config was measured with today's templates
  std::string maker{};                      ///< of a race: whose ways its last final compared
  std::vector<cache::Measurement> measurements;        ///< all, oldest first
  std::vector<const cache::Measurement*> quarantined;  ///< the latest of each config that is out today
  std::size_t history = 0;                             ///< measurements with templates of other versions

  Known(const cache::Cache& cache, const cache::Key& wanted);

  /// Whether it counts today: of today's templates, and of a race of its maker.
  [[nodiscard]] bool is_current(const cache::Measurement& measurement) const;

  /// \throws InvalidArgument for a race, and saying what is wrong with the text of a key that another version wrote
  [[nodiscard]] const generator::Problem& problem_or_throw() const;
  /// Why configs are out today: the first line of the reason, and how many.
  [[nodiscard]] std::map<std::string, int> rejections() const;
  /// For people: the problem's title, or the key's text where it cannot be read.
  [[nodiscard]] std::string title() const;
  /// Why a person pinned the winner; empty where times decide.
  [[nodiscard]] std::string pinned() const { return decision ? decision->pinned : ""; }
};

/// For people: the problem's title, the subject of a race, or the key's text where it cannot be read.
[[nodiscard]] std::string title_of(const cache::Key& key);

using tuner::problem_of;

/// For people: of which rounds it is. What turns left behind is "early", as what was only screened.
[[nodiscard]] std::string_view stage_of(const cache::Measurement& measurement) noexcept;

/// For people: when it was timed, and on which GPU of its model: "2030-01-02 12:00 UTC on GPU-1".
[[nodiscard]] std::string timed_text(const cache::Measurement& measurement);

/// An import may have brought a measurement without a time, or with one that no kernel has.
[[nodiscard]] bool has_time(const cache::Measurement& measurement) noexcept;

/// 1e9 bytes a second of the fewest bytes that must move; 0 without a time.
[[nodiscard]] double throughput_of(const cache::Measurement& measurement) noexcept;

/// The name in a key's text of a device: "NVIDIA H200".
[[nodiscard]] std::string device_name_of(const cache::Key& key);

}  // namespace ce::cli
