#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cache/maintenance.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/long_work.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* vacuum_examples =
    "\nExamples:\n"
    "  ce-tune db vacuum\n"
    "  ce-tune db vacuum --db fleet.db --json\n"
    "\n"
    "db vacuum returns the space that db prune freed to the file system. It needs as much free space as the "
    "file has.\n";

ExitCode vacuum(const CommonOptions& common) {
  cache::Maintenance database = cache::Maintenance::open(database_path(common));
  const auto [before, after] = [&] {
    const LongWork work("rewriting the file");
    return database.vacuum();
  }();
  if (common.json)
    print({{"database", database.path().string()}, {"bytes_before", before}, {"bytes_after", after}});
  else
    print_text("{}: {}, before {}\n", database.path().string(), size_text(after), size_text(before));
  return ExitCode::success;
}

}  // namespace

void add_db_vacuum(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command = db.add_subcommand("vacuum", "Make the file as small as its content allows");
  command->footer(vacuum_examples);
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return vacuum(*options); }; });
}

}  // namespace ce::cli
