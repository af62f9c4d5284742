#include "cache/bundle.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cache/signature.hpp"
#include "ce/error.hpp"
#include "cli/commands.hpp"
#include "cli/device_names.hpp"
#include "cli/json.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"
#include "tuner/decide.hpp"
#include "tuner/key.hpp"

namespace ce::cli {
namespace {

constexpr const char* bundle_examples =
    "\nExamples:\n"
    "  ce-tune bundle winners.jsonl\n"
    "  ce-tune bundle h100.jsonl --gpu 'H100 80GB' --cubins\n"
    "  CE_SITE_DB=h100.jsonl CE_POLICY=frozen python train.py\n"
    "\nThe file has one line for each decision, sorted, without samples, hosts, dates and paths. Keep it in "
    "a repository:\na diff then shows which decisions changed. It does not contain winners of unfinished "
    "searches.\n";

struct BundleOptions {
  CommonOptions common;
  std::string file;
  std::vector<std::string> gpus;
  std::string key;  ///< key for the signature; empty for no signature
  bool cubins = false;
};

cache::BundledDecision bundled(const cache::Key& key, const tuner::Decision& decision) {
  const cache::Measurement& winner = decision.winner.measurement;
  return {.key = key,
          .config = winner.config,
          .template_digest = winner.template_digest,
          .compile_key = winner.compile_key,
          // The winner by times changes with every sweep; a person's reason does not.
          .why = decision.pinned.empty() ? decision.reason : decision.pinned,
          .pinned = !decision.pinned.empty(),
          .rows = winner.rows,
          .bytes = winner.bytes,
          .median_us = winner.median_us,
          .registers = winner.registers};
}

/// The decisions' kernels, and kernels that no measurement names, which linear layers need.
/// \throws NotFound if a decision's kernel is missing
void add_binaries(const cache::Cache& cache, cache::Bundle& bundle) {
  std::set<std::string> added;
  std::vector<std::string> missing;
  for (const cache::BundledDecision& decision : bundle.decisions) {
    if (tuner::subject_of_race(decision.key))
      continue;  // a library's algorithm, or a kernel that no measurement names
    std::istringstream keys(decision.compile_key);
    bool is_whole = !decision.compile_key.empty();
    for (std::string key; keys >> key;) {
      if (!added.insert(key).second) continue;
      if (auto image = cache.binary(key))
        bundle.binaries.push_back({std::move(key), *std::move(image)});
      else
        is_whole = false;
    }
    if (!is_whole) missing.push_back(decision.key.id());
  }
  for (std::string& key : cache.unnamed_binaries())
    if (auto image = cache.binary(key); image && added.insert(key).second)
      bundle.binaries.push_back({std::move(key), *std::move(image)});
  if (missing.empty()) return;
  constexpr std::size_t most_named = 8;
  const std::size_t all = missing.size();
  missing.resize(std::min(all, most_named));
  throw NotFound(
      fmt::format("{} without a compiled kernel, for example {}: ce-tune time KEY compiles and keeps them",
                  counted(static_cast<std::int64_t>(all), "decision"), fmt::join(missing, ", ")));
}

ExitCode write_bundle(const BundleOptions& options) {
  if (options.common.json && options.file == "-")
    throw InvalidArgument("FILE", "\"-\"",
                          "a file together with --json, which writes to the standard output");
  if (!options.key.empty() && options.file == "-")
    throw InvalidArgument("FILE", "\"-\"",
                          "a file together with --sign, because the signature is a second file beside it");
  const std::string signature_path = cache::signature_of(options.file).string();
  if (!options.key.empty()) require_output("--sign", signature_path, options.common.json);
  if (options.file != "-") require_output("FILE", options.file, options.common.json);
  const cache::Cache cache = open_database(options.common);
  cache::Bundle bundle;
  std::int64_t left_out = 0, pinned = 0;
  for (const cache::Key& key : keys_on(cache, options.gpus)) {
    const auto decision = tuner::decide(cache, key);
    if (!tuner::is_finished(decision)) {
      ++left_out;
      continue;
    }
    pinned += decision->pinned.empty() ? 0 : 1;
    bundle.decisions.push_back(bundled(key, *decision));
  }
  if (options.cubins) add_binaries(cache, bundle);
  const auto decisions = static_cast<std::int64_t>(bundle.decisions.size());
  const auto binaries = static_cast<std::int64_t>(bundle.binaries.size());
  std::ostringstream lines;
  cache::write_bundle(lines, std::move(bundle));
  const std::string signature = options.key.empty() ? "" : cache::sign(lines.view(), options.key);
  if (options.file == "-") {
    print_text("{}", lines.view());
    flush_standard_output();
  } else {
    write_output("FILE", options.file, [&](std::ostream& file) { file << lines.view(); });
  }
  if (!signature.empty())
    write_output("--sign", signature_path, [&](std::ostream& file) { file << signature; });
  if (options.common.json)
    print({{"database", database_path(options.common).string()},
           {"file", options.file},
           {"signature", signature.empty() ? Json() : Json(signature_path)},
           {"decisions", decisions},
           {"pinned", pinned},
           {"binaries", binaries},
           {"left_out", left_out}});
  else
    say("ce-tune: {}, {} of them pinned, and {} written to {}\n", counted(decisions, "decision"), pinned,
        counted(binaries, "compiled kernel"), options.file == "-" ? "the standard output" : options.file);
  if (left_out > 0)
    say("ce-tune: {} left out, because no search with this version's templates was finished\n",
        counted(left_out, "problem"));
  if (signature.empty() && std::filesystem::exists(signature_path))
    say("ce-tune: {} is the signature of the previous content: sign the file again\n", signature_path);
  if (decisions == 0) say("ce-tune: the bundle is empty\n");
  return ExitCode::success;
}

}  // namespace

void add_bundle(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<BundleOptions>();
  CLI::App* command =
      app.add_subcommand("bundle", "Write the winners as a file of decisions for a repository");
  command->footer(bundle_examples);
  command->add_option("FILE", options->file, "The file to write; - for the standard output")->required();
  command->add_option("--gpu", options->gpus, "Only devices whose name contains this; may be repeated")
      ->type_name("NAME");
  command
      ->add_option("--sign", options->key,
                   "Also write FILE.sig, a signature by this ssh key; programs verify it with CE_TRUST")
      ->type_name("KEYFILE");
  command->add_flag("--cubins", options->cubins,
                    "Add the compiled kernels, so that a program needs no compiler");
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return write_bundle(*options); }; });
}

}  // namespace ce::cli
