#pragma once
/// \file
/// Who wins, and why.

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

/// One config with the measurement that counts for it: of its highest stage those of the most rows, the latest; of finals
/// the latest of a search that came to its end, if there is one.
struct Candidate {
  generator::Config config;  ///< of the measurement
  cache::Measurement measurement;

  /// The config as text.
  [[nodiscard]] const std::string& text() const noexcept { return measurement.config; }
};

struct Decision {
  Candidate winner;
  std::vector<Candidate> ranking;  ///< every config that was asked for, best first; the winner is the first
  std::string reason;    ///< in words: by how much it is ahead, and of whom; and what is to be doubted
  std::string pinned{};  ///< why a person decided, against times; empty where times did
};

/// Why a measurement is not to be trusted, in words: clocks that were held down, other processes on the GPU, a
/// machine that was not steady. Empty where nothing speaks against it.
[[nodiscard]] std::string doubt_of(const cache::Measurement& measurement);

/// Two medians closer than this, relative, are a tie.
inline constexpr double tie = 0.003;

/// How much faster, relative, another way must be than the one that runs without a race: less is noise.
inline constexpr double least_gain = 0.005;

/// The names in an environment of that way, and of the one that has won. A race in which none was right has neither.
inline constexpr const char* first_of_race = "first";
inline constexpr const char* winner_of_race = "winner";

/// The winner among measurements made with today's templates, of configs that can work for their key: what an import or
/// an edited database has beside them is passed over. Here the texts of configs are parsed, once: what serves is handed on as
/// a Config. Configs of the highest stage go before the others. Medians of
/// finals are held against each other within one final alone, and the last final decides: so a merge of databases whose
/// winners agree keeps them, whichever GPU was faster. Ties go to fewer registers and then to the smaller text, so the
/// same data always give the same winner.
/// \param operation  decides which template digests are today's
/// \returns nothing where no config was measured with today's templates
[[nodiscard]] std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                                             generator::Operation operation);

/// The same with the templates of another time, whose digests are given by templates_of().
[[nodiscard]] std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                                             const std::map<std::string, std::string>& digests);

/// The measurement of the winner that decide() finds among them, which it is asked for alone; null for none.
[[nodiscard]] const cache::Measurement* winner_among(std::span<const cache::Measurement* const> measurements,
                                                     const std::map<std::string, std::string>& digests);

/// Makes the config of a pin the winner, as long as it can work for the problem and is not in quarantine;
/// else the decision stays what it is, and the log says once why. The reason names who would have won.
/// \param measurements  of the key: the figures of a config that was never timed are 0
void apply_pin(const cache::Pin& pin, const generator::Problem& problem,
               std::span<const cache::Measurement> measurements, std::optional<Decision>& decision);

/// The winner of all that a database knows of the key, as decide() finds it among all measurements, or whom a person has
/// pinned; only what decides is read, and of finals the ranking has the winner alone.
/// \param problem  of the key
[[nodiscard]] std::optional<Decision> decide(const cache::Cache& cache, const cache::Key& key,
                                             const generator::Problem& problem);

/// The winner of a race: the fastest of the last final, or the way that runs without a race where none gains least_gain on
/// it. Its texts are their maker's, and its configs here are empty.
/// \param measurements  of the key of a race
/// \param maker  whose ways may win, with its version, which stands in the place of a template digest; empty for
///               maker_of_race()
[[nodiscard]] std::optional<Decision> decide_race(std::span<const cache::Measurement> measurements,
                                                  std::string_view maker = {});

/// decide() for a key of any kind; nothing for one that another version wrote.
[[nodiscard]] std::optional<Decision> decide(const cache::Cache& cache, const cache::Key& key);
/// The same among all measurements of one key.
[[nodiscard]] std::optional<Decision> decide(std::span<const cache::Measurement> measurements);

/// The variant of a config text.
[[nodiscard]] std::string variant_of(std::string_view config);

/// What is another where the template digest of the measurement is: its variant; "" of a race, all of whose ways have one
/// maker.
[[nodiscard]] std::string_view templates_of(const cache::Measurement& measurement);

/// Whether it is of a race's final whose winner is not among them, which a damaged database has lost: whom that has beaten
/// must not win in its place.
/// \param measurements  of its key
[[nodiscard]] bool has_lost_winner(const cache::Measurement& measurement,
                                   std::span<const cache::Measurement* const> measurements);

/// The first line of a reason: a compiler's messages are long.
[[nodiscard]] std::string first_line(std::string_view text);
/// A reason as quarantines keep it: of one beyond 64 KiB the beginning and the end, with a line between them that says how
/// much is left out. Every import takes it.
[[nodiscard]] std::string kept_reason(std::string reason);

/// Whether it was timed in turns with others: a search writes that when it ends, early or not. Then it serves.
[[nodiscard]] bool has_final(const std::optional<Decision>& decision) noexcept;

/// Why a search that ended early did so: its budget or slow compilers left too few configs. Empty where it did not.
[[nodiscard]] std::string cut_short_by(const cache::Measurement& final);

/// Why the search that left this final is to go on: it was cut short, or measured in doubt. Empty where it came to its
/// end.
[[nodiscard]] std::string unfinished_because(const cache::Measurement& final);

/// Whether the search that found it came to its end. What was found otherwise serves, is marked, and the next search goes
/// on.
[[nodiscard]] bool is_finished(const std::optional<Decision>& decision);

/// Whether the measurement was made with the templates of this program.
[[nodiscard]] bool is_current(const cache::Measurement& measurement, generator::Operation operation);

/// The maker of a race whose ways are kernels of this library, too: a change of their templates is another version of it.
[[nodiscard]] std::string maker_with_templates(std::string_view maker, std::string_view template_digest);

/// The maker of the last final of a race, of those with today's templates; empty where there is none.
[[nodiscard]] std::string maker_of_race(std::span<const cache::Measurement> measurements);

}  // namespace ce::tuner
