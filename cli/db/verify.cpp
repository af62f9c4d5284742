#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/printable.hpp"
#include "cache/maintenance.hpp"
#include "cache/repair/repair.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/long_work.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"

namespace ce::cli {
namespace {

constexpr const char* verify_examples =
    "\nExamples:\n"
    "  ce-tune db verify\n"
    "  ce-tune db verify --db fleet.db --json\n"
    "  ce-tune db verify --repair\n"
    "\n"
    "db verify checks a copy of the database: its pages, references, the counts of each key, and the digests "
    "of compiled\nkernels, environments and measurements.\n";

struct VerifyOptions {
  CommonOptions common;
  bool repair = false;
};

ExitCode verify(const VerifyOptions& options) {
  const std::filesystem::path path = cache::existing_file(database_path(options.common));
  const cache::Maintenance::Mended found = [&] {
    const LongWork work("looking for damage");
    return options.repair
               ? cache::Maintenance::mend(path)
               : cache::Maintenance::Mended{.damages = cache::Maintenance::damages_of(path), .done = {}};
  }();
  if (options.common.json) {
    print({{"database", path.string()},
           {"damages", found.damages},
           {"repaired", found.done.empty() ? Json() : Json(found.done)}});
  } else {
    for (const std::string& damage : found.damages) print_text("{}\n", printable(damage));
    print_text("{}: {}\n", path.string(), found.damages.empty() ? "whole" : "damaged");
    if (!found.done.empty()) print_text("{}\n", found.done);
  }
  return found.damages.empty() || !found.done.empty() ? ExitCode::success : ExitCode::database;
}

}  // namespace

void add_db_verify(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = db.add_subcommand("verify", "Check the database for damage");
  command->footer(verify_examples);
  command->add_flag("--repair", options->repair,
                    "Remove damaged compiled kernels; if there is other damage, set the database aside and "
                    "copy\nall that can be read into a new one");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return verify(*options); }; });
}

}  // namespace ce::cli
