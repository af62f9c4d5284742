#pragma once
/// \file
/// Chooses the winner, and gives the reason.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"

namespace ce::tuner {

/// A config with the measurement that counts for it: of its highest stage and most rows, the latest; for finals the
/// latest of a finished search, if there is one.
struct Candidate {
  generator::Config config;  ///< the measured config
  cache::Measurement measurement;

  /// The config as text.
  [[nodiscard]] const std::string& text() const noexcept { return measurement.config; }
};

struct Decision {
  Candidate winner;
  std::vector<Candidate> ranking;  ///< all configs that were asked for, best first; the first is the winner
  std::string reason;              ///< in words: its lead over the second, and doubts
  std::string pinned{};            ///< the person's reason, for a pin; empty if times decided
};

/// Medians whose relative difference is below this are a tie.
inline constexpr double tie = 0.003;

/// The relative speed-up that another way needs over the default way: less is noise.
inline constexpr double least_gain = 0.005;

/// The winner among measurements with current templates, of configs that can work for their key: other entries of an
/// import or an edited database are ignored. Parses the texts of configs, once: later code gets a Config. Configs of
/// the highest stage precede the others. Medians of finals are compared within one final only, and the last final
/// decides: so a merge of databases with the same winner keeps it, whichever GPU was faster. Ties go to fewer registers
/// and then to the smaller text, so the same data always give the same winner.
/// \param operation  determines the current template digests
/// \returns nothing if no config was measured with current templates
[[nodiscard]] std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                                             generator::Operation operation);

/// Decides with the given template digests, by templates_of().
[[nodiscard]] std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                                             const std::map<std::string, std::string>& digests);

/// The measurement of the winner that decide() would find, and only that; null if there is none.
[[nodiscard]] const cache::Measurement* winner_among(std::span<const cache::Measurement* const> measurements,
                                                     const std::map<std::string, std::string>& digests);

/// Makes the config of a pin the winner, if it can work for the problem and is not quarantined; otherwise the decision
/// stays, and the log says once why. The reason names the winner by times.
/// \param measurements  measurements of the key; the figures of a config that was never timed are 0
void apply_pin(const cache::Pin& pin, const generator::Problem& problem,
               std::span<const cache::Measurement> measurements, std::optional<Decision>& decision);

/// The winner among everything that a database has for the key: the one that decide() finds among all measurements, or
/// a pin. Only reads what it needs; for finals, the ranking only contains the winner.
/// \param problem  the key's problem
[[nodiscard]] std::optional<Decision> decide(const cache::Cache& cache, const cache::Key& key,
                                             const generator::Problem& problem);

/// The winner of a race: the fastest in the last final, or the default way if none gains least_gain over it. Only the
/// race's maker understands its config texts; Config members are empty here.
/// \param measurements  measurements of a race's key
/// \param maker  library and version whose ways may win, in place of a template digest; empty for
///                             maker_of_race()
[[nodiscard]] std::optional<Decision> decide_race(std::span<const cache::Measurement> measurements,
                                                  std::string_view maker = {});

/// Decides for a key of any kind; returns nothing for a key of another version.
[[nodiscard]] std::optional<Decision> decide(const cache::Cache& cache, const cache::Key& key);
/// Decides among all measurements of one key.
[[nodiscard]] std::optional<Decision> decide(std::span<const cache::Measurement> measurements);

/// Whether it was timed in turns with others. A search writes that at its end, even an early one; such a config may
/// serve.
[[nodiscard]] bool has_final(const std::optional<Decision>& decision) noexcept;

/// Whether the winner's search is finished. An unfinished one serves, is marked, and is continued by the next search.
[[nodiscard]] bool is_finished(const std::optional<Decision>& decision);

}  // namespace ce::tuner
