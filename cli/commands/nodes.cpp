#include "cli/analysis/nodes.hpp"

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.hpp"
#include "cli/long_work.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/since.hpp"

namespace ce::cli {
namespace {

constexpr const char* nodes_notes =
    "\nnodes compares each GPU with the median of the others of its model, by their times of the same "
    "configs\nwith the same software, in finals and checks. A GPU is slow if its times are 2% or more "
    "longer, and chance\nwould show that only once in 1000 GPUs; docs/measuring.md describes the method.\n"
    "\nExamples:\n"
    "  ce-tune nodes --db fleet.db --since 2030-01-31\n"
    "\nBefore, on each GPU: ce-tune check; then ce-tune db merge node-*.db --db fleet.db\n";

struct NodesOptions {
  CommonOptions common;
  std::string since;
  bool all = false;
};

ExitCode nodes(const NodesOptions& options) {
  std::function<bool(const cache::Measurement&)> chosen;
  if (!options.since.empty()) chosen = newer_than(options.since);
  const Fleet fleet = [&] {
    const LongWork work("comparing GPUs");
    return fleet_of(open_tagged_database(options.common), chosen);
  }();
  if (options.common.json)
    print(json_of(fleet));
  else
    print_text("{}", text_of(fleet, options.all));
  const ExitCode code = exit_code_of(fleet);
  if (code == ExitCode::nothing_compared)
    say("ce-tune: nothing was compared; expected two GPUs of one model that timed the same configs with the "
        "same software\n");
  return code;
}

}  // namespace

void add_nodes(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<NodesOptions>();
  CLI::App* command = app.add_subcommand("nodes", "Show which GPUs of a fleet are slow, and possible causes");
  command->footer(nodes_notes);
  command->add_option("--since", options->since, "Only measurements from this day or version on")
      ->type_name("DATE|VERSION");
  command->add_flag("--all", options->all, "Also list the GPUs that are as fast as the others");
  add_tag_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, &chosen] { chosen = [options] { return nodes(*options); }; });
}

}  // namespace ce::cli
