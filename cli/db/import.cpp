#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "cache/export.hpp"
#include "cache/maintenance.hpp"
#include "ce/error.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/long_work.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/spool.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* import_examples =
    "\nExamples:\n"
    "  ce-tune db import measurements.jsonl\n"
    "  gunzip -c measurements.jsonl.gz | ce-tune db import - --db new.db\n"
    "\n"
    "db import adds the output of db export to the database, and creates the database if there is none. It "
    "adds all\nmeasurements, or none if a line was changed.\n";

/// The contents of a file or of the standard input, readable more than once.
/// \throws NotFound, InvalidArgument naming the file
std::fstream open_lines(const std::string& path, bool is_standard_input) {
  const auto keep = [&](std::istream& in) {
    std::fstream spool = open_spool();
    if (in.peek() != std::istream::traits_type::eof()) spool << in.rdbuf();
    if (in.bad()) throw InvalidArgument(path, "cut short", "a file that can be read to its end");
    if (!spool.flush())
      throw std::system_error(errno, std::generic_category(), "cannot write to the temporary folder");
    return spool;
  };
  if (is_standard_input) {
    // Unsynchronized, because otherwise a read error would look like the end.
    std::ios::sync_with_stdio(false);
    if (std::filesystem::is_directory(path))
      throw InvalidArgument("FILE", fmt::format("\"{}\", a folder", path), "a file that db export wrote");
    return keep(std::cin);
  }
  std::fstream file(path, std::ios::in | std::ios::binary);
  if (!file && errno == ENOENT) throw NotFound("there is no file " + path);
  if (!file) throw InvalidArgument("FILE", fmt::format("\"{}\"", path), "a file that can be read");
  if (std::filesystem::is_directory(path))
    throw InvalidArgument("FILE", fmt::format("\"{}\", a folder", path), "a file that db export wrote");
  return std::filesystem::is_regular_file(path) ? std::move(file) : keep(file);
}

ExitCode read(const CommonOptions& common, const std::string& file_or_dash) {
  const bool is_standard_input = file_or_dash == "-";
  const std::string path = is_standard_input ? "/dev/stdin" : file_or_dash;
  std::fstream lines = open_lines(path, is_standard_input);
  // Validated in a first pass without keeping it: a large export does not fit into memory.
  std::optional<LongWork> work(std::in_place, "adding measurements");
  const std::size_t announced = cache::announced_measurements(lines);
  cache::Maintenance database = cache::Maintenance::create_to_fill(database_path(common));
  std::int64_t measurements = 0;
  const std::int64_t added = database.add([&](const auto& add) {
    lines.clear();
    lines.seekg(0);
    cache::visit_export(lines, path,
                        [&](const cache::MeasurementView& measurement, std::string_view identity) {
                          LongWork::report(static_cast<std::size_t>(measurements++), announced);
                          add(measurement, identity);
                        });
  });
  work.reset();
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
  command->add_option("FILE", *file, "The output of db export; - for the standard input")->required();
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback([options, file, &chosen] { chosen = [options, file] { return read(*options, *file); }; });
}

}  // namespace ce::cli
