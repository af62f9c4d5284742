#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/export.hpp"
#include "cache/maintenance.hpp"
#include "ce/error.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* import_examples =
    "\nExamples:\n"
    "  ce-tune db import measurements.jsonl\n"
    "  gunzip -c measurements.jsonl.gz | ce-tune db import - --db new.db\n"
    "\n"
    "Adds what db export wrote to the database, which is created where there is none: all of it, or nothing "
    "where a\n"
    "line is not as it was written.\n";

/// \throws NotFound, InvalidArgument naming the file, or its line
std::vector<cache::Measurement> measurements_in(const std::string& path, bool is_standard_input) {
  std::ifstream file;
  if (is_standard_input) {
    // Its path opens no socket. Unsynchronized, or an error of reading would look like the end.
    std::ios::sync_with_stdio(false);
  } else {
    file.open(path, std::ios::binary);
    if (!file && errno == ENOENT) throw NotFound("there is no file " + path);
    if (!file) throw InvalidArgument("FILE", fmt::format("\"{}\"", path), "a file that can be read");
  }
  if (std::filesystem::is_directory(path))
    throw InvalidArgument("FILE", fmt::format("\"{}\", a folder", path), "a file that db export wrote");
  return cache::read_export(is_standard_input ? std::cin : file, path);
}

ExitCode read(const CommonOptions& common, const std::string& file_or_dash) {
  const bool is_standard_input = file_or_dash == "-";
  const std::string path = is_standard_input ? "/dev/stdin" : file_or_dash;
  // All is read before a database is created.
  const std::vector<cache::Measurement> list = measurements_in(path, is_standard_input);
  cache::Maintenance database = cache::Maintenance::create(database_path(common));
  const auto measurements = static_cast<std::int64_t>(list.size());
  const std::int64_t added = database.add(list);
  if (common.json)
    print({{"database", database.path().string()},
           {"file", path},
           {"measurements", measurements},
           {"measurements_added", added}});
  else
    print_text("{} of {} added to {}\n", added, counted(measurements, "measurement"),
               database.path().string());
  return ExitCode::success;
}

}  // namespace

void add_db_import(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  auto file = std::make_shared<std::string>();
  CLI::App* command = db.add_subcommand("import", "Add the measurements that db export wrote");
  command->footer(import_examples);
  command->add_option("FILE", *file, "What db export wrote; - for the standard input")->required();
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback([options, file, &chosen] { chosen = [options, file] { return read(*options, *file); }; });
}

}  // namespace ce::cli
