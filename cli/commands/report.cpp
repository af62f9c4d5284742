#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "cli/commands.hpp"
#include "cli/long_work.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/report/data.hpp"
#include "cli/report/json.hpp"
#include "cli/report/page.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* report_examples =
    "\nExamples:\n"
    "  ce-tune report --html report.html\n"
    "  ce-tune report --html softmax.html 3fa2c81b04d7 49a0\n"
    "  ce-tune report --json > report.json\n"
    "\nKEYs are the beginnings of keys that db list shows, at least 4 digits of each; without a KEY,\nreport "
    "shows all. The page is one file that loads nothing, and you can mail it or put it on any server: it "
    "contains\nno names of hosts, paths and addresses. --unredacted keeps them, and so does --json.\n";

struct ReportOptions {
  CommonOptions common;
  std::string html, top = "8";
  std::vector<std::string> keys;
  bool unredacted = false;
};

Redaction redaction_of(const ReportOptions& options, const ReportData& report) {
  if (options.unredacted) return {};
  std::set<std::string> hosts;
  for (const ReportedDevice& device : report.devices) hosts.insert(device.hosts.begin(), device.hosts.end());
  return Redaction(hosts);
}

ReportScope scope_of(const ReportOptions& options, const cache::Cache& cache) {
  ReportScope scope{.keys = {},
                    .device = std::nullopt,
                    .top = static_cast<std::size_t>(parse_count("--top", options.top, 1, 1'000'000))};
  for (const std::string& prefix : options.keys) scope.keys.push_back(find_key(cache, prefix));
  if (!options.common.device.empty()) scope.device = open_device(options.common)->model().key();
  return scope;
}

ExitCode write_report(const ReportOptions& options) {
  if (options.html.empty() && !options.common.json)
    throw InvalidArgument("--html", "missing", "a file for the page; or --json");
  if (!options.html.empty()) require_output("--html", options.html, options.common.json);
  const cache::Cache cache = open_database(options.common);
  const ReportData report = [&] {
    const LongWork work("reading problems");
    return report_of(cache, scope_of(options, cache));
  }();
  std::size_t problems = 0;
  for (const ReportedDevice& device : report.devices) problems += device.problems.size();
  std::size_t bytes = 0;
  if (!options.html.empty())
    write_output("--html", options.html, [&](std::ostream& file) {
      bytes = write_page(report, redaction_of(options, report), file);
    });
  if (options.common.json)
    print(json_of(report));
  else
    print_text(is_standard_output(options.html) ? stderr : stdout, "{}: {} on {}, {}\n", options.html,
               counted(static_cast<std::int64_t>(problems), "problem"),
               counted(static_cast<std::int64_t>(report.devices.size()), "device"),
               size_text(static_cast<std::int64_t>(bytes)));
  return ExitCode::success;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command =
      app.add_subcommand("report", "Write a page for browsers with winners, axes, history and environments");
  command->footer(report_examples);
  command->add_option("KEY", options->keys, "Only these keys of db list; their first 4 digits or more");
  command->add_option("--html", options->html, "The page to write")->type_name("FILE");
  command->add_option("--top", options->top, "Show the best N configs of each problem (default: 8)")
      ->type_name("N");
  command->add_flag("--unredacted", options->unredacted,
                    "Keep names of hosts, paths and addresses on the page");
  add_device_option(*command, options->common, "Only keys that this device would use: cuda, cuda:N or host");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return write_report(*options); }; });
}

}  // namespace ce::cli
