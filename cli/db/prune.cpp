#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
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

constexpr const char* prune_examples =
    "\nExamples:\n"
    "  ce-tune db prune --dry-run\n"
    "  ce-tune db prune --keep 0 && ce-tune db vacuum\n"
    "\n"
    "db prune removes measurements with replaced templates. Of these it keeps all finals, the fastest of "
    "each problem and\ntemplates, the last --keep checks of each problem, and the last --keep measurements "
    "of each problem (finals and\nchecks first). It also removes compiled kernels that only measurements "
    "with replaced templates use, but keeps kernels\nof linear layers. Nothing has to be measured again.\n";

struct PruneOptions {
  CommonOptions common;
  std::string keep;
  bool dry_run = false;
};

constexpr std::int64_t usual_keep = 100;

ExitCode prune(const PruneOptions& options) {
  const std::int64_t keep =
      options.keep.empty() ? usual_keep
                           : parse_count("--keep", options.keep, 0, std::numeric_limits<std::int64_t>::max());
  const std::filesystem::path path = database_path(options.common);
  std::optional<LongWork> work(std::in_place, "looking for measurements with replaced templates");
  cache::Maintenance database =
      options.dry_run ? cache::Maintenance::copy(path) : cache::Maintenance::open(path);
  const cache::Store::Pruned pruned = database.prune(keep, options.dry_run);
  work.reset();
  if (options.common.json)
    print({{"database", database.path().string()},
           {"dry_run", options.dry_run},
           {"measurements", pruned.measurements},
           {"binaries", pruned.binaries}});
  else
    print_text("{} and {} {} {}\n", counted(pruned.measurements, "measurement"),
               counted(pruned.binaries, "compiled kernel"),
               options.dry_run ? "would be removed from" : "removed from", database.path().string());
  return ExitCode::success;
}

}  // namespace

void add_db_prune(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<PruneOptions>();
  CLI::App* command =
      db.add_subcommand("prune", "Remove measurements and compiled kernels that no verdict needs");
  command->footer(prune_examples);
  command
      ->add_option("--keep", options->keep, "Measurements of each problem to keep in any case (default: 100)")
      ->type_name("N");
  command->add_flag("--dry-run", options->dry_run, "Only print how many would be removed");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return prune(*options); }; });
}

}  // namespace ce::cli
