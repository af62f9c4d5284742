#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "cache/upkeep.hpp"
#include "cli/db.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* export_examples =
    "\nExamples:\n"
    "  ce-tune db export measurements.jsonl\n"
    "  ce-tune db export /dev/stdout | gzip > measurements.jsonl.gz\n"
    "\n"
    "One JSON object a line: a head, each measurement, and an end with a digest, so that db import knows "
    "that "
    "the text is\n"
    "whole. Databases with the same measurements give the same text. Compiled kernels are not in it.\n";

ExitCode write(const CommonOptions& common, const std::string& path) {
  cache::Upkeep database = cache::Upkeep::copy(database_path(common));
  std::ofstream file(path, std::ios::binary);
  const std::int64_t count = file ? database.write_lines(file) : 0;
  if (!file.flush())
    throw std::system_error(errno, std::generic_category(), "cannot write the measurements to " + path);
  if (common.json)
    print({{"database", database.path().string()}, {"file", path}, {"measurements", count}});
  else
    fmt::print(stderr, "ce-tune: {} of {} written to {}\n", counted(count, "measurement"),
               database.path().string(), path);
  return ExitCode::success;
}

}  // namespace

void add_db_export(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  auto file = std::make_shared<std::string>();
  CLI::App* command = db.add_subcommand("export", "Write all measurements as lines of JSON");
  command->footer(export_examples);
  command->add_option("FILE", *file, "Where to")->required();
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback(
      [options, file, &chosen] { chosen = [options, file] { return write(*options, *file); }; });
}

}  // namespace ce::cli
