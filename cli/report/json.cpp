#include "cli/report/json.hpp"

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/analysis/findings.hpp"
#include "cli/known.hpp"

namespace ce::cli {
namespace {

Json json_of_period(const ReportedPeriod& period, const ReportedProblem& reported) {
  Json json{{"first_at", period.first_at},
            {"last_at", period.last_at},
            {"driver", period.software.driver},
            {"compiler", period.software.toolkit},
            {"library", period.software.library},
            {"templates", period.software.templates},
            {"config", period.config},
            {"median_us", period.median_us},
            {"gbs", period.gbs},
            {"runs", period.runs},
            {"change", Json()}};
  if (period.change)
    json["change"] = json_of(ProblemFinding{reported.summary.key, reported.title, *period.change});
  return json;
}

Json json_of_problem(const ReportedProblem& reported) {
  const auto share = reported.share();
  Json json{{"key", reported.summary.key.id()},
            {"title", reported.title},
            {"problem_text", reported.summary.key.problem},
            {"problem", reported.problem ? json_of(*reported.problem) : Json()},
            {"measurements", reported.summary.measurements},
            {"history", reported.history},
            {"first_at", reported.summary.first_at},
            {"last_at", reported.summary.last_at},
            {"reason", reported.reason},
            {"gbs", reported.best.empty() ? Json() : Json(reported.gbs())},
            {"ceiling_gbs", reported.ceiling_gbs > 0 ? Json(reported.ceiling_gbs) : Json()},
            {"share_of_ceiling", share ? Json(*share) : Json()},
            {"ranked", reported.ranked},
            {"best", Json::array()},
            {"rejected", reported.rejected},
            {"effects", Json::array()},
            {"periods", Json::array()}};
  for (const tuner::Candidate& candidate : reported.best)
    json["best"].push_back(json_of(candidate.measurement));
  for (const tuner::AxisEffect& effect : reported.effects) json["effects"].push_back(json_of(effect));
  for (const ReportedPeriod& period : reported.periods)
    json["periods"].push_back(json_of_period(period, reported));
  return json;
}

}  // namespace

Json json_of(const ReportData& report) {
  Json devices = Json::array();
  for (const ReportedDevice& device : report.devices) {
    Json ceilings = Json::object(), problems = Json::array();
    for (const auto& [kind, gbs] : device.ceilings) ceilings[std::string(generator::name(kind))] = gbs;
    for (const ReportedProblem& reported : device.problems) problems.push_back(json_of_problem(reported));
    devices.push_back({{"device", device.name},
                       {"device_text", device.text},
                       {"drivers", device.drivers},
                       {"compilers", device.toolkits},
                       {"libraries", device.libraries},
                       {"uuids", device.uuids},
                       {"ceilings_gbs", std::move(ceilings)},
                       {"problems", std::move(problems)}});
  }
  return {{"version", report.version},
          {"date", report.date},
          {"database", report.database},
          {"devices", std::move(devices)}};
}

}  // namespace ce::cli
