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
    "\nEach GPU is held against the median of the others of its model, by what they have timed of the same\n"
    "configs with the same software, in finals and checks. It is slow where that is 2% or more and chance\n"
    "would show it once in 1000 GPUs; docs/measuring.md has the method.\n"
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
    say("ce-tune: nothing was compared; expected two GPUs of one model that timed the same with the same "
        "software\n");
  return code;
}

}  // namespace

void add_nodes(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<NodesOptions>();
  CLI::App* command =
      app.add_subcommand("nodes", "Say which GPUs of a fleet are slow, and what slows them down");
  command->footer(nodes_notes);
  command->add_option("--since", options->since, "Only what was measured from then on")
      ->type_name("DATE|VERSION");
  command->add_flag("--all", options->all, "List the GPUs that are as the others, too");
  add_tag_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, &chosen] { chosen = [options] { return nodes(*options); }; });
}

}  // namespace ce::cli
