#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "cli/analysis/cases.hpp"
#include "cli/commands.hpp"
#include "cli/device_names.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/since.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;

constexpr const char* regressions_notes =
    "\nWithout --since and --against, each problem's newest runs are compared with those of the software "
    "before: another\ndriver, toolkit, version of ce or templates. A problem counts as slower if its winner "
    "takes at least 1% longer and\nchance would show that only once in 1000 problems; docs/measuring.md "
    "describes the method.\n"
    "\nExamples:\n"
    "  ce-tune regressions                           after a change of driver, and a sweep or check with it\n"
    "  ce-tune regressions --since 2030-01-31        slower problems since that day\n"
    "  ce-tune regressions --since 0.2.0             slower problems since that version\n"
    "  ce-tune regressions --against release.db      this database compared with another one\n";

struct RegressionOptions {
  CommonOptions common;
  std::string since, against, require;
  bool all = false;
};

void split_since(Case& problem, const std::string& since) {
  const auto newer = newer_than(since);
  problem.newer = tuner::populations_of(problem.measurements, newer);
  problem.older =
      tuner::populations_of(problem.measurements, [&](const Measurement& m) { return !newer(m); });
  condense(problem);
}

std::list<Case> cases_of(const RegressionOptions& options) {
  const cache::Cache cache = open_tagged_database(options.common);
  if (options.against.empty() && options.since.empty()) return cases_by_software(cache);
  if (!options.against.empty()) return cases_against(cache, cache::Cache::read_existing(options.against));
  return cases_of_keys(cache, keys_on(cache, {}),
                       [&](Case& problem) { split_since(problem, options.since); });
}

ExitCode regressions(const RegressionOptions& options) {
  if (!options.since.empty()) static_cast<void>(newer_than(options.since));  // throws for an invalid value
  const std::list<Case> cases = cases_of(options);
  const std::vector<ProblemFinding> findings = findings_of(cases);
  const auto left_out = left_out_of(cases);
  const std::size_t required =
      options.require.empty()
          ? 1
          : static_cast<std::size_t>(parse_count("--require", options.require, 1, 1'000'000'000));
  if (options.common.json) {
    Json document = json_of(findings);
    document["compared"] = findings.size();
    document["not_compared"] = cases.size() - findings.size();
    document["left_out"] = left_out;
    print(document);
  } else {
    print_text("{}", text_of(findings, options.all, "this again"));
    for (const auto& [reason, problems] : left_out)
      print_text("{} left out: {}\n", counted(static_cast<std::int64_t>(problems), "problem"), reason);
  }
  const ExitCode code = exit_code_of(findings, required);
  if (code == ExitCode::nothing_compared)
    say("ce-tune: {} compared; expected {} or more\n",
        counted(static_cast<std::int64_t>(findings.size()), "problem"), required);
  return code;
}

}  // namespace

void add_regressions(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RegressionOptions>();
  CLI::App* command =
      app.add_subcommand("regressions", "Show which problems became slower, and what changed");
  command->footer(regressions_notes);
  CLI::Option* since = command->add_option(
      "--since", options->since, "Compare measurements from this day or version on with earlier ones");
  since->type_name("DATE|VERSION");
  command->add_option("--against", options->against, "Compare with the newest runs in this database")
      ->type_name("FILE")
      ->excludes(since);
  command
      ->add_option("--require", options->require,
                   "Fail (12) if fewer than N problems were compared (default: 1)")
      ->type_name("N");
  command->add_flag("--all", options->all, "Also list the problems that are as fast as before");
  add_tag_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, &chosen] { chosen = [options] { return regressions(*options); }; });
}

}  // namespace ce::cli
