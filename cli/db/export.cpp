#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cache/maintenance.hpp"
#include "ce/error.hpp"
#include "cli/analysis/thinned.hpp"
#include "cli/db/db.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/long_work.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"
#include "tuner/decide.hpp"
#include "tuner/statistics.hpp"

namespace ce::cli {
namespace {

constexpr const char* export_examples =
    "\nExamples:\n"
    "  ce-tune db export measurements.jsonl\n"
    "  ce-tune db export - | gzip > measurements.jsonl.gz\n"
    "  ce-tune db export --winners winners.jsonl\n"
    "\n"
    "db export writes one JSON object per line: a head, each measurement, and an end with a digest, by which "
    "db import sees\nwhether the text is complete. Databases with the same measurements give the same text. "
    "It has no compiled kernels.\n";

/// Samples to keep, as many as a final takes, evenly spread: a shipped text should be short.
void thin(cache::Measurement& measurement) {
  constexpr int most = 15;
  if (measurement.samples_us.size() <= most) return;
  measurement.samples_us = tuner::thinned(std::move(measurement.samples_us), most);
  measurement.median_us = tuner::median(measurement.samples_us);
  measurement.spread = tuner::spread(measurement.samples_us);
}

/// The winner of a key with current templates, without data that names machines.
/// \param unfinished  also if its search is not finished
std::vector<cache::Measurement> only_winner(const std::vector<cache::Measurement>& list, bool unfinished) {
  auto decision = tuner::decide(list);
  if (unfinished ? !tuner::has_final(decision) : !tuner::is_finished(decision)) return {};
  cache::Measurement winner = std::move(decision->winner.measurement);
  for (const char* name : {"host", "process", "uuid"}) winner.environment.erase(name);
  thin(winner);
  return {std::move(winner)};
}

/// The effect of --winners and --unfinished.
struct Which {
  bool winners = false, unfinished = false;
};

/// Selects the measurements of a key to write; empty for all.
cache::Maintenance::Selection selection_of(const Which& which, const Tags& tags) {
  if (!which.winners && tags.empty()) return {};
  return [which, tags](const std::vector<cache::Measurement>& list) {
    std::vector<cache::Measurement> chosen = with_tags(list, tags);
    return which.winners ? only_winner(chosen, which.unfinished) : chosen;
  };
}

ExitCode write(const CommonOptions& common, const std::string& path, const Which& which) {
  const bool to_output = path == "-";
  if (common.json && to_output)
    throw InvalidArgument("FILE", "\"-\"",
                          "a file together with --json, which writes to the standard output");
  cache::Maintenance database = cache::Maintenance::read(database_path(common));
  const cache::Maintenance::Selection selection = selection_of(which, tags_of(common));
  cache::Maintenance::Written written;
  std::optional<LongWork> work(std::in_place, "writing measurements");
  if (!to_output) {
    require_output("FILE", path, common.json);
    const auto write_lines = [&](std::ostream& file) { written = database.write_lines(file, selection); };
    write_output("FILE", path, write_lines, Readers::the_user);  // it contains machine names
  } else {
    written = database.write_lines(std::cout, selection);
    flush_standard_output();
  }
  work.reset();
  if (common.json)
    print({{"database", database.path().string()},
           {"file", path},
           {"measurements", written.measurements},
           {"left_out", written.left_out}});
  else
    say("ce-tune: {} of {} written to {}\n", counted(written.measurements, "measurement"),
        database.path().string(), to_output ? "the standard output" : path);
  if (written.left_out > 0)
    say("ce-tune: {} left out, because db import would refuse the whole text with such a measurement: {}\n",
        counted(written.left_out, "measurement"), written.because);
  return ExitCode::success;
}

}  // namespace

void add_db_export(CLI::App& db, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  auto file = std::make_shared<std::string>();
  auto which = std::make_shared<Which>();
  CLI::App* command = db.add_subcommand("export", "Write all measurements as lines of JSON");
  command->footer(export_examples);
  command->add_option("FILE", *file, "The file to write; - for the standard output")->required();
  command->add_flag(
      "--winners", which->winners,
      "Only the winners of finished searches, with 15 samples at most, without the names of machines\n"
      "and processes (uuid, host, process)");
  command->add_flag("--unfinished", which->unfinished,
                    "With --winners, also winners of searches that were cut short or disturbed");
  add_tag_option(*command, *options);
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback([options, file, which, &chosen] {
    chosen = [options, file, which] {
      if (which->unfinished && !which->winners)
        throw InvalidArgument("--unfinished", "given", "--winners together with --unfinished");
      return write(*options, *file, *which);
    };
  });
}

}  // namespace ce::cli
