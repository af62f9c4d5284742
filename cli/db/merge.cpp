#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cache/maintenance.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/long_work.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* merge_examples =
    "\nExamples:\n"
    "  ce-tune db merge node1.db node2.db --db fleet.db\n"
    "  ce-tune db merge node1.db --binaries\n"
    "\n"
    "db merge adds measurements of the files to the database of --db, and creates the database if there is "
    "none. If a file is\ndamaged, it adds nothing. The files are not changed. Binaries are code that runs on "
    "the device: add only those of\ndatabases that you trust.\n";

struct MergeOptions {
  CommonOptions common;
  std::vector<std::string> files;
  bool binaries = false;
};

ExitCode merge(const MergeOptions& options) {
  std::optional<LongWork> work(std::in_place, "adding measurements");
  std::vector<cache::Maintenance> sources;
  const std::string target = database_path(options.common).string();
  for (const std::string& file : options.files) {
    std::error_code none;
    // The target must not be one of the sources.
    const bool is_target = std::filesystem::equivalent(file, target, none);
    sources.push_back(is_target ? cache::Maintenance::copy(file) : cache::Maintenance::read(file));
    if (options.binaries) sources.back().expect_own_binaries();
  }
  cache::Maintenance database = cache::Maintenance::create_to_fill(database_path(options.common));
  Json documents = Json::array();
  std::string text;
  const std::vector<cache::Store::Copied> all_added = database.merge(sources, options.binaries);
  work.reset();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const cache::Maintenance& source = sources[i];
    const cache::Store::Copied& added = all_added[i];
    documents.push_back({{"file", source.path().string()},
                         {"measurements_added", added.measurements},
                         {"binaries_added", added.binaries}});
    text += fmt::format("{}: {} added", source.path().string(), counted(added.measurements, "measurement"));
    text += options.binaries
                ? fmt::format(" and {}\n",
                              added.binaries == 1 ? "1 binary" : fmt::format("{} binaries", added.binaries))
                : "\n";
  }
  if (options.common.json)
    print({{"database", database.path().string()}, {"merged", documents}});
  else
    print_text("{}", text);
  return ExitCode::success;
}

}  // namespace

void add_db_merge(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<MergeOptions>();
  CLI::App* command = db.add_subcommand("merge", "Add the measurements of other databases");
  command->footer(merge_examples);
  command->add_option("FILES", options->files, "The other databases")->required();
  command->add_flag("--binaries", options->binaries, "Also add their compiled kernels");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return merge(*options); }; });
}

}  // namespace ce::cli
