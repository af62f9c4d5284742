#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/open.hpp"
#include "cache/repair.hpp"
#include "cache/upkeep.hpp"
#include "cli/db.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"

namespace ce::cli {
namespace {

constexpr const char* verify_examples =
    "\nExamples:\n"
    "  ce-tune db verify\n"
    "  ce-tune db verify --db fleet.db --json\n"
    "\n"
    "Looks at a copy of the database: pages, references, the counts of each key, and the digests of "
    "compiled\n"
    "kernels, evidence and measurements.\n";

/// Also of a file that is too damaged to be copied.
std::vector<std::string> damages_of(const std::filesystem::path& path) {
  try {
    return cache::Upkeep::copy(path).damages();
  } catch (const cache::Damaged& damage) {
    return {"database: " + damage.cause()};
  }
}

ExitCode verify(const CommonOptions& common) {
  const std::filesystem::path path = cache::existing_file(database_path(common));
  const std::vector<std::string> damages = damages_of(path);
  if (common.json) {
    print({{"database", path.string()}, {"damages", damages}});
  } else {
    for (const std::string& damage : damages) print_text("{}\n", damage);
    print_text("{}: {}\n", path.string(), damages.empty() ? "whole" : "damaged");
  }
  return damages.empty() ? ExitCode::success : ExitCode::database;
}

}  // namespace

void add_db_verify(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command = db.add_subcommand("verify", "Look for damage");
  command->footer(verify_examples);
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return verify(*options); }; });
}

}  // namespace ce::cli
