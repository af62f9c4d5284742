#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/printable.hpp"
#include "base/time.hpp"
#include "cache/maintenance.hpp"
#include "ce/error.hpp"
#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"
#include "generator/config.hpp"
#include "generator/variant.hpp"
#include "tuner/decide.hpp"
#include "tuner/maker.hpp"
#include "tuner/quarantine_reason.hpp"

namespace ce::cli {
namespace {

constexpr const char* pin_examples =
    "\nExamples:\n"
    "  ce-tune pin 3fa2 block/warps=8,vec=8,load=cs,store=cs --why 'same bits as the last run'\n"
    "  ce-tune pin 3fa2 --remove\n"
    "\nPrograms use a pinned config whatever is measured, unless it gives a wrong answer. Bundles contain "
    "it, too.\n";

constexpr std::size_t longest_why = 500;

struct PinOptions {
  CommonOptions common;
  std::string key, config, why;
  bool remove = false;
};

/// \throws InvalidArgument
void require_complete(const PinOptions& options) {
  if (options.remove) {
    if (!options.config.empty())
      throw InvalidArgument("CONFIG", options.config, "no value together with --remove");
    if (!options.why.empty())
      throw InvalidArgument("--why", in_quotes(options.why), "no value together with --remove");
    return;
  }
  if (options.config.empty()) throw InvalidArgument("CONFIG", "missing", "the config to pin, or --remove");
  if (options.why.empty())
    throw InvalidArgument("--why", "missing", "the reason why this config is used whatever its time");
  if (options.why.size() > longest_why)
    throw InvalidArgument("--why", fmt::format("{} bytes long", options.why.size()),
                          fmt::format("{} at most", longest_why));
}

/// The config in its canonical text form. \throws InvalidArgument for an invalid config of the key, or a quarantined
/// one
std::string checked_config(const Known& known, const std::string& text) {
  static_cast<void>(known.problem_or_throw());
  std::string config;
  try {
    config = generator::to_text(generator::parse_config(text));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("CONFIG", in_quotes(text), error.expected());
  }
  for (const cache::Measurement* measurement : known.quarantined)
    if (measurement->config == config)
      throw InvalidArgument("CONFIG", config,
                            fmt::format("a config that is not in quarantine; this one is ({})",
                                        tuner::first_line(measurement->reason)));
  std::optional<tuner::Decision> decision;
  tuner::apply_pin({.key = known.key, .config = config, .why = "a look", .created_at = ""},
                   known.problem_or_throw(), {}, decision);
  const std::string variant = tuner::variant_of(config);
  if (!decision || !generator::variant(variant).serves(known.problem_or_throw()))
    throw InvalidArgument("CONFIG", config,
                          fmt::format("a config for {} on {}", known.title(), device_name_of(known.key)));
  return config;
}

ExitCode pin(const PinOptions& options) {
  require_complete(options);
  const std::string path = database_path(options.common).string();
  cache::Pin wanted{.key = {}, .config = {}, .why = options.why, .created_at = utc_now()};
  {
    const cache::Cache user = open_layered_database(options.common);
    const FoundKey found = find_key(databases_of(user, path), options.key);
    wanted.key = found.key;
    if (!options.remove)
      wanted.config = checked_config(Known(*found.database.cache, found.key), options.config);
    else if (!user.pin(found.key))
      throw NotFound(fmt::format("nothing is pinned for {} in {}", found.key.id(), path));
  }
  if (!cache::Maintenance::create(path).pin(wanted))
    throw DatabaseError(
        fmt::format("{} has a pin for {} with a time in the future, because the clock was set back", path,
                    wanted.key.id()));
  if (options.common.json)
    print({{"database", path},
           {"key", wanted.key.id()},
           {"config", options.remove ? Json() : Json(wanted.config)},
           {"why", options.remove ? Json() : Json(wanted.why)}});
  else if (options.remove)
    print_text("{}  {}\npinned   no longer; the times decide\n", wanted.key.id(), title_of(wanted.key));
  else
    print_text("{}  {}\npinned   {}\nwhy      {}\n", wanted.key.id(), title_of(wanted.key), wanted.config,
               printable(wanted.why));
  return ExitCode::success;
}

}  // namespace

void add_pin(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<PinOptions>();
  CLI::App* command = app.add_subcommand("pin", "Use one config for a problem, whatever its time");
  command->footer(pin_examples);
  add_key_argument(*command, options->key);
  command->add_option("CONFIG", options->config, "The config, in the form that db show prints");
  command->add_option("--why", options->why, "The reason, for people who find the pin later")
      ->type_name("TEXT");
  command->add_flag("--remove", options->remove, "Remove the pin: the times decide again");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return pin(*options); }; });
}

}  // namespace ce::cli
