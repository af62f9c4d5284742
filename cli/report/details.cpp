#include "cli/report/details.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

#include "cli/known.hpp"
#include "cli/report/history.hpp"
#include "cli/report/html.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr std::size_t widest_refusal = 160;
constexpr std::size_t digits_of_templates = 8;

/// The values that all environments have in common.
Environment common_environment(const std::vector<tuner::Candidate>& candidates) {
  Environment common = candidates.front().measurement.environment.map();
  for (const tuner::Candidate& candidate : candidates)
    std::erase_if(common, [&](const auto& entry) {
      const auto its = candidate.measurement.environment.find(entry.first);
      return its == candidate.measurement.environment.end() || its->second != entry.second;
    });
  return common;
}

std::string environment_words(const Environment& environment, const Redaction& redaction,
                              const Environment& left_out = {}) {
  std::vector<std::string> words;
  for (const auto& [name, value] : environment)
    if (!left_out.contains(name)) words.push_back(fmt::format("{} {}", name, redaction.text(value)));
  return escaped(fmt::format("{}", fmt::join(words, ", ")));
}

/// Times with different rows are not comparable.
std::string behind_text(const cache::Measurement& measurement, const cache::Measurement& winner) {
  if (measurement.rows != winner.rows) return "-";
  return fmt::format("{:+.1f}%", 100 * (measurement.median_us / winner.median_us - 1));
}

std::string row_of_config(const tuner::Candidate& candidate, const cache::Measurement& winner,
                          const Environment& common, const Redaction& redaction) {
  const cache::Measurement& measurement = candidate.measurement;
  const std::string its = environment_words(measurement.environment.map(), redaction, common);
  return fmt::format(
      "<tr><td><code>{}</code></td><td class=\"num\">{}</td><td class=\"num\">{}</td><td "
      "class=\"num\">{}</td>"
      "<td class=\"num\">{}</td><td>{}</td><td class=\"num\">{}</td><td "
      "class=\"num\">{}</td><td>{}</td><td>{}</td>"
      "<td>{}</td><td>{:.2f}</td></tr>\n",
      escaped(candidate.text()), time_text(measurement.median_us),
      throughput_text(throughput_of(measurement)), behind_text(measurement, winner),
      percent_text(measurement.spread), stage_of(measurement), measurement.registers, measurement.local_bytes,
      escaped(measurement.template_digest.substr(0, digits_of_templates)), escaped(measurement.created_at),
      its.empty() ? "the same" : its, fmt::join(measurement.samples_us, " "));
}

std::string configs_html(const ReportedProblem& reported, const Redaction& redaction) {
  const Environment common = common_environment(reported.best);
  const cache::Measurement& winner = reported.best.front().measurement;
  std::string html = fmt::format("<p>{}</p>\n<p class=\"faint\">{} rows timed, {} moved; {}</p>\n",
                                 redaction.html(reported.reason), winner.rows, size_text(winner.bytes),
                                 environment_words(common, redaction));
  html +=
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Configs\"><table><thead><tr><th>config</th><th class=\"num\">time</th><th "
      "class=\"num\">GB/s</th>"
      "<th class=\"num\">behind</th><th class=\"num\">spread</th><th>stage</th><th "
      "class=\"num\">registers</th>"
      "<th class=\"num\">local</th><th>templates</th><th>measured (UTC)</th><th>environment</th><th>samples "
      "(us)</th>"
      "</tr></thead><tbody>\n";
  for (const tuner::Candidate& candidate : reported.best)
    html += row_of_config(candidate, winner, common, redaction);
  html += "</tbody></table></div>\n";
  if (reported.ranked > reported.best.size())
    html += fmt::format("<p class=\"faint\">and {} more</p>\n", reported.ranked - reported.best.size());
  return html;
}

}  // namespace

std::string details_html(const ReportedProblem& reported, const Redaction& redaction) {
  std::string html = reported.best.empty() ? "<p>No config was measured with this version's templates.</p>\n"
                                           : configs_html(reported, redaction);
  html += periods_html(reported, redaction);
  for (const auto& [reason, count] : reported.rejected)
    html += fmt::format("<p class=\"faint\">{} rejected: {}</p>\n", counted(count, "config"),
                        escaped(cut(redaction.text(reason), widest_refusal)));
  if (reported.history > 0)
    html += fmt::format("<p class=\"faint\">{} made with other versions' templates</p>\n",
                        counted(static_cast<std::int64_t>(reported.history), "measurement"));
  return html + commands_html(reported);
}

std::string commands_html(const ReportedProblem& reported) {
  return fmt::format("<p class=\"faint mono\">ce-tune explain {0}<br/>ce-tune db show {0}</p>\n",
                     reported.summary.key.id());
}

}  // namespace ce::cli
