#include "cli/analysis/gate.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "cache/bundle.hpp"
#include "cache/cache.hpp"
#include "cache/recognize.hpp"
#include "ce/error.hpp"
#include "cli/commands.hpp"
#include "cli/device_names.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* gate_notes =
    "\nExamples:\n"
    "  ce-tune gate --baseline winners.jsonl --gpu H100 --junit gate.xml --github\n"
    "  ce-tune db export winners.jsonl --winners                    once, for the repository\n"
    "  ce-tune check --db ci.db; ce-tune gate --db ci.db --baseline winners.jsonl --accept accepted.json\n"
    "\nAfter the baseline was written, the database of --db must have measured every problem of the "
    "baseline, and none\nmay be slower. The baseline is what db export wrote, with or without --winners, or "
    "a "
    "database.\n"
    "\naccepted.json: {\"accepted\": [{\"key\": \"3fa2c81b04d7\", \"up_to\": 1.05, \"why\": \"...\"},\n"
    "                            {\"key\": \"49a06cacf0fd\", \"missing\": true, \"why\": \"...\"}]}\n";

struct GateOptions {
  CommonOptions common;
  std::string baseline, accept, junit;
  std::vector<std::string> gpus;
  bool github = false, unsure_pass = false;
};

/// \throws NotFound, InvalidArgument naming the option
std::string contents_of(const char* option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) throw NotFound("there is no file " + path);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad() || std::filesystem::is_directory(path))
    throw InvalidArgument(option, in_quotes(path), "a file that can be read");
  return text;
}

cache::Cache open_baseline(const std::string& path) {
  if (std::filesystem::is_regular_file(path) && cache::is_database(path))
    return cache::Cache::read_existing(path);
  const std::string text = contents_of("--baseline", path);
  if (cache::is_bundle(text))
    throw InvalidArgument("--baseline", in_quotes(path) + ", a bundle, which has no samples",
                          "the output of db export --winners, or a database");
  return cache::Cache::of_export(text, path);
}

ExitCode gate(const GateOptions& options) {
  if (options.github && options.common.json)
    throw InvalidArgument("--github", "given",
                          "no --json together with --github, because both write to the standard output");
  if (!options.junit.empty()) require_output("--junit", options.junit, options.common.json);
  std::map<std::string, Accepted> accepted;
  if (!options.accept.empty())
    accepted = read_accepted(contents_of("--accept", options.accept), options.accept);
  const cache::Cache baseline = open_baseline(options.baseline);
  const std::vector<cache::Key> keys = keys_on(baseline, options.gpus);
  const cache::Cache cache = open_database(options.common);
  const std::list<Case> cases = cases_since(cache, baseline, keys);
  const Gate result = gate_of(cases, accepted);
  const ExitCode code = result.code(options.unsure_pass);
  if (!options.junit.empty())
    write_output("--junit", options.junit,
                 [&](std::ostream& file) { file << junit_of(result, options.unsure_pass); });
  if (options.common.json)
    print(json_of(result, options.unsure_pass));
  else
    print_text("{}", text_of(result));
  if (options.github) print_text("{}", annotations_of(result, options.unsure_pass));
  if (keys.empty())
    say("ce-tune: the baseline has no problem; a gate that compared nothing does not pass\n");
  else if (!result.findings.empty() && !result.compares_kernels())
    say("ce-tune: only races were compared; a gate that compared no kernel does not pass\n");
  else if (result.findings.empty() && result.races_left_out > 0)
    say("ce-tune: nothing was compared; only the calls that need a race time it, not a check\n");
  return code;
}

}  // namespace

void add_gate(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<GateOptions>();
  CLI::App* command =
      app.add_subcommand("gate", "Compare the database with a baseline, and pass or fail, for CI");
  command->footer(gate_notes);
  command->add_option("--baseline", options->baseline, "The problems to compare: an export or a database")
      ->type_name("FILE")
      ->required();
  command->add_option("--accept", options->accept, "Problems that may be slower or missing, with reasons")
      ->type_name("FILE");
  command
      ->add_option("--gpu", options->gpus,
                   "Only problems of the baseline on devices whose name contains NAME; may be repeated")
      ->type_name("NAME");
  command->add_flag("--unsure-pass", options->unsure_pass,
                    "Pass even if a problem may be slower, but has too few runs to decide");
  command->add_option("--junit", options->junit, "Also write JUnit's XML")->type_name("FILE");
  command->add_flag("--github", options->github, "Also print annotations for GitHub Actions");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, &chosen] { chosen = [options] { return gate(*options); }; });
}

}  // namespace ce::cli
