#include "cli/analysis/finding.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tuner/decide.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;

Evidence::Sides sides_of(std::span<const Measurement* const> before,
                         std::span<const Measurement* const> after) {
  return {to_runs(before), to_runs(after, *before.front())};
}

Comparison compare_sides(const Evidence::Sides& sides, const Noise& noise) {
  return compare(sides.before, sides.after, noise);
}

double median_of(std::span<const Measurement* const> runs) {
  std::vector<float> medians;
  for (const Measurement* run : runs) medians.push_back(static_cast<float>(run->median_us));
  return median(medians);
}

/// All values of one name in the environments, as one text.
std::string environment_of(std::span<const Measurement* const> runs, const char* name) {
  std::set<std::string> values;
  for (const Measurement* run : runs)
    if (const auto found = run->environment.find(name); found != run->environment.end())
      values.insert(found->second);
  return fmt::format("{}", fmt::join(values, ", "));
}

/// Variants in both with different digests; for races, the makers of their ways.
void add_templates(std::vector<Change>& changes, const Software& before, const Software& after) {
  std::string old, now;
  bool raced = false;
  for (const auto& [variant, digest] : before.templates) {
    const auto other = after.templates.find(variant);
    if (other == after.templates.end() || other->second == digest) continue;
    raced = variant.empty();
    for (const auto& [text, its] : {std::pair{&old, &digest}, std::pair{&now, &other->second}})
      *text += (text->empty() ? "" : ", ") + templates_text(variant, *its);
  }
  if (!old.empty()) changes.push_back({raced ? "maker" : "templates", old, now});
}

std::vector<Change> changes_of(const Population& before, const Population& after) {
  std::vector<Change> changes;
  const auto add = [&changes](const char* what, const std::string& old, const std::string& now) {
    if (old != now) changes.push_back({what, old, now});
  };
  add("driver", before.software.driver, after.software.driver);
  add("toolkit", before.software.toolkit, after.software.toolkit);
  add("library", before.software.library, after.software.library);
  add_templates(changes, before.software, after.software);
  add("gpu", environment_of(before.runs, "uuid"), environment_of(after.runs, "uuid"));
  return changes;
}

void acquit(Finding& finding, std::initializer_list<const char*> names, const std::string& why) {
  std::vector<std::string> left = finding.suspects;
  std::erase_if(left, [&](const std::string& suspect) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return suspect == name; });
  });
  if (left.empty() || left == finding.suspects) return;  // at least one of them must be the cause
  finding.suspects = std::move(left);
  finding.why += (finding.why.empty() ? "" : "; ") + why;
}

/// Removes suspects that equal texts or binaries of both winners rule out.
void suspect(Finding& finding, const Evidence& evidence) {
  if (finding.winner.verdict == Verdict::same) return;
  for (const Change& change : finding.changes) finding.suspects.push_back(change.what);
  if (finding.config_before != finding.config_after) return;
  if (evidence.is_same_binary)
    acquit(finding, {"toolkit", "library", "templates"}, "both sides ran the same binary");
  else if (evidence.is_same_template)
    acquit(finding, {"templates"}, "the winner's template has not changed");
}

}  // namespace

Evidence evidence_of(const Population& before, const Population& after) {
  const auto old = before.runs_of(before.winner), now = after.runs_of(after.winner);
  const Measurement &last_old = *old.back(), &last_now = *now.back();
  // The key of a binary depends on its text and its compiler.
  Evidence evidence{
      .finding = {.config_before = before.winner,
                  .config_after = after.winner,
                  .before_us = median_of(old),
                  .after_us = median_of(now),
                  .winner = {},
                  .changes = changes_of(before, after)},
      .winner = sides_of(old, now),
      .kernel = std::nullopt,
      .is_same_binary = !last_old.compile_key.empty() && last_old.compile_key == last_now.compile_key,
      .is_same_template = last_old.template_digest == last_now.template_digest};
  for (const std::string& config : {before.winner, after.winner}) {
    const auto one = before.runs_of(config), other = after.runs_of(config);
    if (one.empty() || other.empty()) continue;
    evidence.finding.kernel_config = config;
    evidence.kernel = sides_of(one, other);
    break;
  }
  return evidence;
}

Finding compare(Evidence evidence, const Noise& noise) {
  Finding finding = std::move(evidence.finding);
  finding.winner = compare_sides(evidence.winner, noise);
  finding.runs_needed = runs_needed(finding.winner.deviation, finding.winner.before, noise.degrees);
  if (evidence.kernel) finding.kernel = compare_sides(*evidence.kernel, noise);
  suspect(finding, evidence);
  return finding;
}

Finding compare(const Population& before, const Population& after, const Noise& noise) {
  return compare(evidence_of(before, after), noise);
}

MachineMove machine_move(std::span<const Finding* const> findings) {
  // The reference is off by chance now and then, see docs/measuring.md; a median tolerates that.
  constexpr double usual_deviation_of_reference = 0.02, sure = 3, of_median = 1.2533, of_absolute = 1.4826;
  std::vector<float> moves;
  for (const Finding* finding : findings)
    if (finding->winner.drift) moves.push_back(static_cast<float>(std::log1p(*finding->winner.drift)));
  if (moves.empty()) return {};
  const double middle = median(moves);
  std::vector<float> distances;
  distances.reserve(moves.size());
  for (const float move : moves) distances.push_back(static_cast<float>(std::abs(move - middle)));
  const double deviation = std::max(usual_deviation_of_reference, of_absolute * median(distances));
  const double error = of_median * deviation / std::sqrt(static_cast<double>(moves.size()));
  return {.drift = std::expm1(middle),
          .problems = static_cast<int>(moves.size()),
          .is_sure = std::abs(middle) >= std::max(std::log1p(least_effect), sure * error)};
}

void suspect_machine(std::span<Finding* const> findings) {
  const MachineMove all = machine_move(std::vector<const Finding*>(findings.begin(), findings.end()));
  for (Finding* finding : findings) {
    const Comparison& winner = finding->winner;
    if (winner.verdict == Verdict::same) continue;
    const double effect = std::log(winner.ratio) + std::log1p(winner.taken_out);
    const auto explains = [&](double drift) {
      const double moved = std::log1p(drift);
      return std::abs(moved) >= std::log1p(least_effect) && (moved > 0) == (effect > 0) &&
             std::abs(moved) >= std::abs(effect) / 2;
    };
    std::string of;
    double drift = 0;
    if (all.is_sure && explains(all.drift)) {
      drift = all.drift;
      of = fmt::format(" in the median of {} problems", all.problems);
    } else if (winner.drift && explains(*winner.drift)) {
      drift = *winner.drift;
    } else {
      continue;
    }
    finding->suspects.insert(finding->suspects.begin(), "machine");
    finding->why = fmt::format("the time of the reference kernel also changed by {:+.1f}%{}{}{}", 100 * drift,
                               of, finding->why.empty() ? "" : "; ", finding->why);
  }
}

void narrow_suspects(std::span<Finding* const> findings) {
  struct Alone {
    Change change;
    bool harmless = true;
    int problems = 0;
  };
  std::vector<Alone> alone;
  for (const Finding* finding : findings) {
    if (finding->changes.size() != 1 || finding->winner.verdict == Verdict::unsure) continue;
    auto known = std::find_if(alone.begin(), alone.end(),
                              [&](const Alone& a) { return a.change == finding->changes.front(); });
    if (known == alone.end()) known = alone.insert(alone.end(), {finding->changes.front()});
    known->harmless = known->harmless && finding->winner.verdict == Verdict::same;
    ++known->problems;
  }
  for (Finding* finding : findings)
    for (const Alone& other : alone)
      if (other.harmless &&
          std::find(finding->changes.begin(), finding->changes.end(), other.change) != finding->changes.end())
        acquit(*finding, {other.change.what.c_str()},
               fmt::format("{} was the only change of {} other problem{}, without a slowdown",
                           other.change.what, other.problems, other.problems == 1 ? "" : "s"));
}

}  // namespace ce::tuner
