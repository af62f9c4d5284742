#include "tuner/decide.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "ce/error.hpp"
#include "generator/config.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/model_key.hpp"
#include "tuner/doubt.hpp"
#include "tuner/kernel.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"
#include "tuner/quarantine_reason.hpp"

namespace ce::tuner {
namespace {

/// Checks configs against the problem and device of a key.
class Possible {
 public:
  explicit Possible(const cache::Key& key)
      : key_(key), problem_(problem_of(key)), model_(runtime::parse_model_key(key.device)) {}

  /// Keeps the last one: a caller that scans a database asks for the same key repeatedly.
  [[nodiscard]] static Possible& of(const cache::Key& key) {
    thread_local std::optional<Possible> last;
    if (!last || !(last->key_ == key)) last.emplace(key);
    return *last;
  }

  /// The config that a text names. Nothing for invalid entries of a damaged or edited database, or an import: texts
  /// that are not a config, and configs that no search tries for the problem on the device. If the key cannot be
  /// parsed, only the text is checked.
  [[nodiscard]] const std::optional<generator::Config>& config_of(const std::string& text,
                                                                  std::int64_t rows) {
    const auto [known, is_new] = known_.try_emplace({text, rows});
    if (is_new) known->second = find_config(text, rows);
    return known->second;
  }

 private:
  [[nodiscard]] std::optional<generator::Config> find_config(std::string_view text, std::int64_t rows) const {
    if (subject_of_race(key_)) return generator::Config{};  // only the race's maker knows its meaning
    try {
      generator::Config config = generator::parse_config(text);
      if (!problem_ || !model_) return config;
      // A key covers many numbers of rows; a constraint may not hold for some of them.
      generator::Problem timed = *problem_;
      if (rows > 0) timed.rows = rows;
      const generator::Limits limits = limits_of(*model_);
      if (!generator::why_not(config, timed, limits) || !generator::why_not(config, *problem_, limits))
        return config;
    } catch (const InvalidArgument&) {
    }
    return std::nullopt;
  }

  cache::Key key_;
  std::optional<generator::Problem> problem_;
  std::optional<runtime::Model> model_;
  std::map<std::pair<std::string, std::int64_t>, std::optional<generator::Config>> known_;
};

using Counting = std::map<std::string_view, const cache::Measurement*>;

/// Whether two times can be compared: screenings with equal rows, and configs of one final. Another process, GPU or day
/// may be some percent faster overall, and has other runners-up.
bool is_comparable(const cache::Finalist& a, const cache::Finalist& b) {
  return a.stage == b.stage && a.rows == b.rows && (a.stage <= 0 || a.created_at == b.created_at);
}

/// Sorts by stage, then by rows; the latest final comes first.
bool comes_before(const cache::Finalist& a, const cache::Finalist& b) {
  if (a.stage != b.stage) return a.stage > b.stage;
  if (a.rows != b.rows) return a.rows > b.rows;
  if (!is_comparable(a, b)) return a.created_at > b.created_at;
  if (a.median_us != b.median_us) return a.median_us < b.median_us;
  return a.config < b.config;
}

/// Rows for the comparison of measurements; more rows take precedence. A race covers all rows of its key.
std::int64_t counting_rows(const cache::Measurement& measurement) {
  return subject_of_race(measurement.key).has_value() ? 0 : measurement.rows;
}

/// Whether a measurement takes precedence over an earlier one of the same config. An unfinished final does not replace
/// a finished one.
bool counts_more(const cache::Measurement& later, const cache::Measurement& earlier) {
  const auto weight = [](const cache::Measurement& m) {
    return std::tuple(m.stage, counting_rows(m), m.stage <= 0 || unfinished_because(m).empty());
  };
  return weight(later) >= weight(earlier);
}

/// Among the configs that tie with the first: the one with the fewest registers, then with the smaller text.
std::size_t break_tie(const std::vector<cache::Finalist>& ranking) {
  const cache::Finalist& best = ranking.front();
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < ranking.size(); ++i) {
    const cache::Finalist& other = ranking[i];
    if (!is_comparable(other, best) || other.median_us > best.median_us * (1 + tie)) break;
    const cache::Finalist& current = ranking[chosen];
    if (other.registers < current.registers ||
        (other.registers == current.registers && other.config < current.config))
      chosen = i;
  }
  return chosen;
}

/// For a race: the default way, if the fastest in the same final is not faster by enough.
std::size_t stay(const std::vector<cache::Finalist>& ranking, std::string_view first) {
  const cache::Finalist& best = ranking.front();
  for (std::size_t i = 1; i < ranking.size(); ++i)
    if (ranking[i].config == first && is_comparable(ranking[i], best) &&
        ranking[i].median_us <= best.median_us * (1 + least_gain))
      return i;
  return 0;
}

/// Sorts best first. \returns whether `choose` picked another than the one with the best median
template <class Choose>
bool rank(std::vector<cache::Finalist>& list, const Choose& choose) {
  std::sort(list.begin(), list.end(), comes_before);
  const auto chosen = list.begin() + static_cast<std::ptrdiff_t>(choose(list));
  std::rotate(list.begin(), chosen, chosen + 1);
  return chosen != list.begin();
}

/// \param ranking  starts with the winner
std::string lead_of(const cache::Measurement& winner, const std::vector<cache::Finalist>& ranking,
                    bool tied) {
  if (ranking.size() == 1 || !is_comparable(ranking[0], ranking[1]))
    return winner.stage > 0 ? "the only config in the final" : "the only config that was measured";
  const cache::Finalist& second = ranking[1];
  const double ahead = second.median_us / winner.median_us - 1;
  const bool raced = subject_of_race(winner.key).has_value();
  if (raced && tied)
    return fmt::format("it runs without a race, and {} gains less than {:.1f}%", second.config,
                       least_gain * 100);
  if (!raced && (tied || ahead < tie))
    return fmt::format(
        "within {:.1f}% of the fastest median, and with the fewest registers ({}) of those configs",
        tie * 100, winner.registers);
  return fmt::format("median {:.2f} us, {:.1f}% ahead of {} (median of {} samples, spread {:.1f}%)",
                     winner.median_us, ahead * 100, second.config, winner.samples_us.size(),
                     winner.spread * 100);
}

/// Removes finals of unfinished searches if another search with at least as many rows was finished: they timed too few
/// configs, or were in doubt.
void leave_out_superseded(Counting& counting) {
  const auto is_final = [](const cache::Measurement* m) { return m != nullptr && m->stage > 0; };
  std::int64_t most_rows = -1;
  for (const auto& [config, measurement] : counting)
    if (is_final(measurement) && unfinished_because(*measurement).empty())
      most_rows = std::max(most_rows, counting_rows(*measurement));
  for (auto& [config, measurement] : counting)
    if (is_final(measurement) && counting_rows(*measurement) <= most_rows &&
        !unfinished_because(*measurement).empty())
      measurement = nullptr;
}

/// The measurement that counts for each config, and the configs, best first; no configs if nothing counts.
struct Ranked {
  Counting counting;
  std::vector<cache::Finalist> ranking;
  bool tied = false;
};

Ranked rank_all(std::span<const cache::Measurement* const> measurements,
                const std::map<std::string, std::string>& digests) {
  Ranked ranked;
  Counting& counting = ranked.counting;
  for (const cache::Measurement* measurement : measurements) {
    const auto digest = std::find_if(
        digests.begin(), digests.end(),
        [templates = templates_of(*measurement)](const auto& one) { return one.first == templates; });
    if (digest == digests.end() || measurement->template_digest != digest->second) continue;
    if (has_lost_winner(*measurement, measurements)) continue;
    const cache::Measurement*& counted = counting[measurement->config];
    // A later quarantine invalidates earlier measurements.
    if (measurement->outcome != cache::Outcome::measured)
      counted = nullptr;
    else if (!std::isnan(measurement->median_us) &&
             (counted == nullptr || counts_more(*measurement, *counted)))
      counted = measurement;
  }
  for (auto& [text, measurement] : counting)
    if (measurement != nullptr &&
        !Possible::of(measurement->key).config_of(measurement->config, measurement->rows))
      measurement = nullptr;
  leave_out_superseded(counting);
  for (const auto& [config, measurement] : counting)
    if (measurement != nullptr)
      ranked.ranking.push_back({.config = measurement->config,
                                .template_digest = measurement->template_digest,
                                .stage = measurement->stage,
                                .rows = counting_rows(*measurement),
                                .median_us = measurement->median_us,
                                .registers = measurement->registers,
                                .created_at = measurement->created_at});
  if (ranked.ranking.empty()) return ranked;
  ranked.tied = rank(ranked.ranking, [&](const std::vector<cache::Finalist>& list) {
    const cache::Measurement& best = *counting.at(list.front().config);
    if (!subject_of_race(best.key)) return break_tie(list);
    const auto first = best.environment.find(first_of_race);
    return first == best.environment.end() ? 0 : stay(list, first->second);
  });
  return ranked;
}

std::string reason_of(const cache::Measurement& winner, const std::vector<cache::Finalist>& ranking,
                      bool tied) {
  const std::string doubt = doubt_of(winner);
  // The time can be trusted, the choice less so.
  const std::string cut_short = cut_short_by(winner);
  return lead_of(winner, ranking, tied) + (doubt.empty() ? "" : "; the measurement was disturbed: " + doubt) +
         (cut_short.empty() ? "" : "; " + cut_short);
}

}  // namespace

bool has_final(const std::optional<Decision>& decision) noexcept {
  return decision && (!decision->pinned.empty() || decision->winner.measurement.stage > 0);
}

bool is_finished(const std::optional<Decision>& decision) {
  return has_final(decision) &&
         (!decision->pinned.empty() || unfinished_because(decision->winner.measurement).empty());
}

std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                               generator::Operation operation) {
  std::map<std::string, std::string> digests;
  for (const cache::Measurement& measurement : measurements) {
    const auto [digest, added] = digests.try_emplace(variant_of(measurement.config));
    if (added) digest->second = current_digest(measurement.config, operation);
  }
  std::erase_if(digests, [](const auto& digest) { return digest.second.empty(); });
  return decide(measurements, digests);
}

std::optional<Decision> decide(std::span<const cache::Measurement> measurements,
                               const std::map<std::string, std::string>& digests) {
  std::vector<const cache::Measurement*> pointers;
  pointers.reserve(measurements.size());
  for (const cache::Measurement& measurement : measurements) pointers.push_back(&measurement);
  const Ranked ranked = rank_all(pointers, digests);
  if (ranked.ranking.empty()) return std::nullopt;
  Decision decision;
  decision.ranking.reserve(ranked.ranking.size());
  for (const cache::Finalist& finalist : ranked.ranking) {
    const cache::Measurement& measurement = *ranked.counting.at(finalist.config);
    decision.ranking.push_back(
        {Possible::of(measurement.key).config_of(measurement.config, measurement.rows).value(), measurement});
  }
  decision.winner = decision.ranking.front();
  decision.reason = reason_of(decision.winner.measurement, ranked.ranking, ranked.tied);
  return decision;
}

std::optional<Decision> decide_race(std::span<const cache::Measurement> measurements,
                                    std::string_view maker) {
  const std::string own = maker.empty() ? maker_of_race(measurements) : std::string(maker);
  return own.empty() ? std::nullopt : decide(measurements, {{"", own}});
}

std::optional<Decision> decide(std::span<const cache::Measurement> measurements) {
  if (measurements.empty()) return std::nullopt;
  const cache::Key& key = measurements.front().key;
  if (subject_of_race(key)) return decide_race(measurements);
  const auto problem = problem_of(key);
  return problem ? decide(measurements, problem->operation) : std::nullopt;
}

std::optional<Decision> decide(const cache::Cache& cache, const cache::Key& key) {
  if (subject_of_race(key)) return decide_race(cache.history(key));
  const auto problem = problem_of(key);
  return problem ? decide(cache, key, *problem) : std::nullopt;
}

const cache::Measurement* winner_among(std::span<const cache::Measurement* const> measurements,
                                       const std::map<std::string, std::string>& digests) {
  const Ranked ranked = rank_all(measurements, digests);
  return ranked.ranking.empty() ? nullptr : ranked.counting.at(ranked.ranking.front().config);
}

void apply_pin(const cache::Pin& pin, const generator::Problem& problem,
               std::span<const cache::Measurement> measurements, std::optional<Decision>& decision) {
  const auto leave_out = [&](std::string_view because) {
    log_once(LogLevel::warning, fmt::format("{} is pinned for {} (key {}) but is not used: {}", pin.config,
                                            generator::title(problem), pin.key.id(), because));
  };
  auto config = Possible::of(pin.key).config_of(pin.config, 0);
  if (!config) return leave_out("it is not a config for this problem on this device");
  const cache::Measurement* timed = nullptr;
  const cache::Measurement* last = nullptr;
  for (const cache::Measurement& measurement : measurements) {
    if (measurement.config != pin.config || !is_current(measurement, problem.operation)) continue;
    last = &measurement;
    if (measurement.outcome == cache::Outcome::measured &&
        (timed == nullptr || counts_more(measurement, *timed)))
      timed = &measurement;
  }
  if (last != nullptr && last->outcome == cache::Outcome::quarantined)
    return leave_out("in quarantine: " + first_line(last->reason));
  Candidate pinned{.config = *std::move(config),
                   .measurement = {.key = pin.key,
                                   .config = pin.config,
                                   .template_digest = current_digest(pin.config, problem.operation),
                                   .stage = cache::stage_of_finals,
                                   .rows = problem.rows,
                                   .bytes = generator::traffic(problem).total(),
                                   .created_at = pin.created_at}};
  if (timed != nullptr) pinned.measurement = *timed;
  std::string reason = "pinned: " + pin.why;
  if (decision && decision->winner.text() != pin.config)
    reason +=
        fmt::format("; by the times, the winner would be {}: {}", decision->winner.text(), decision->reason);
  if (!decision) decision.emplace();
  std::erase_if(decision->ranking, [&](const Candidate& other) { return other.text() == pin.config; });
  decision->ranking.insert(decision->ranking.begin(), pinned);
  decision->winner = std::move(pinned);
  decision->reason = std::move(reason);
  decision->pinned = pin.why;
}

std::optional<Decision> decide(const cache::Cache& cache, const cache::Key& key,
                               const generator::Problem& problem) {
  if (const auto pin = cache.pin(key)) {
    const std::vector<cache::Measurement> all = cache.measurements(key);
    auto decision = decide(all, problem.operation);
    apply_pin(*pin, problem, all, decision);
    return decision;
  }
  std::vector<std::string_view> variants;
  std::vector<std::string> digests;
  for (const generator::Variant& variant : generator::variants())
    if (variant.serves(problem)) {
      variants.push_back(variant.name);
      digests.push_back(generator::template_digest(problem.operation, variant.name));
    }
  std::vector<cache::Finalist> ranking;
  bool tied = false;
  auto winner =
      cache.final_of(key, digests, [&](std::vector<cache::Finalist>& list) -> const cache::Finalist* {
        ranking = std::move(list);
        std::erase_if(ranking, [&](const cache::Finalist& finalist) {
          const auto digest = std::find(digests.begin(), digests.end(), finalist.template_digest);
          return variant_of(finalist.config) != variants[static_cast<std::size_t>(digest - digests.begin())];
        });
        if (ranking.empty()) return nullptr;
        tied = rank(ranking, break_tie);
        return &ranking.front();
      });
  // Without reading more than an index, it is unknown whether a finished search came after an unfinished one.
  auto config = winner ? Possible::of(key).config_of(winner->config, winner->rows) : std::nullopt;
  if (config && unfinished_because(*winner).empty()) {
    Decision decision{.winner = {}, .ranking = {}, .reason = reason_of(*winner, ranking, tied)};
    decision.winner = {*std::move(config), *std::move(winner)};
    decision.ranking.push_back(decision.winner);
    return decision;
  }
  if (!cache.has(key, digests)) return std::nullopt;
  return decide(cache.measurements(key), problem.operation);
}

}  // namespace ce::tuner
