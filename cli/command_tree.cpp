#include "cli/command_tree.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string_view>

#include "cli/presets.hpp"
#include "generator/problem.hpp"

namespace ce::cli {
namespace {

std::string without_breaks(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::vector<std::string> operation_names(generator::Named which) {
  std::vector<std::string> names;
  for (const generator::OperationRow& row : generator::operation_rows)
    if (generator::may_be_named(row.operation, which)) names.emplace_back(row.word);
  return names;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Vocabulary& vocabulary : vocabularies())
    if (names.empty() || names.back() != vocabulary.preset) names.emplace_back(vocabulary.preset);
  return names;
}

/// An option has the same name and meaning in all commands. Only run does without some values of --op.
const std::vector<std::string>& choices_of(const std::string& command, const std::string& option) {
  static const std::map<std::string, std::vector<std::string>> choices{
      {"--op", operation_names(generator::Named::any)},
      {"run --op", operation_names(generator::Named::of_one_rank)},
      {"--dtype", {"f32", "f16", "bf16"}},
      {"--loss-dtype", {"f32", "f16", "bf16"}},
      {"--weights", {"f32", "f16", "bf16"}},
      {"--target", {"i32", "i64"}},
      {"--reduction", {"none", "mean", "sum"}},
      {"--align", {"vector", "dense", "shifted", "element"}},
      {"--upstream", {"scalar", "rows"}},
      {"--strategy", {"halving", "exhaustive", "random"}},
      {"--device", {"cuda", "host"}},
      {"--preset", preset_names()},
      {"SHELL", {"bash", "zsh", "fish"}},
  };
  static const std::vector<std::string> none;
  const auto own = choices.find(command + " " + option);
  const auto found = own != choices.end() ? own : choices.find(option);
  return found == choices.end() ? none : found->second;
}

OptionEntry entry_of(const CLI::Option& option, const std::string& command) {
  OptionEntry entry;
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  entry.positional = entry.names.empty();
  if (entry.positional) entry.names.push_back(option.get_name(true));
  // A flag with a value of its own, "--weights{f32}", takes another value behind "=".
  entry.optional_value = option.get_expected_max() == 0 && !option.get_fnames().empty();
  const bool takes_value = option.get_expected_max() > 0 || entry.optional_value;
  if (takes_value && !entry.positional) {
    const std::string type = option.get_type_name();
    entry.value = type.empty() || entry.optional_value ? "VALUE" : type;
  }
  entry.help = without_breaks(option.get_description());
  if (takes_value) entry.choices = choices_of(command, entry.names.front());
  return entry;
}

CommandEntry entry_of(const CLI::App& app, const std::string& path) {
  CommandEntry entry{
      .path = path, .help = without_breaks(app.get_description()), .options = {}, .commands = {}};
  for (const CLI::Option* option : app.get_options()) entry.options.push_back(entry_of(*option, path));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    entry.commands.push_back(
        entry_of(*command, path.empty() ? command->get_name() : path + " " + command->get_name()));
  return entry;
}

void collect(const CommandEntry& entry, std::vector<const CommandEntry*>& all) {
  all.push_back(&entry);
  for (const CommandEntry& command : entry.commands) collect(command, all);
}

}  // namespace

CommandEntry command_tree(const CLI::App& app) { return entry_of(app, ""); }

std::vector<const CommandEntry*> all_commands(const CommandEntry& root) {
  std::vector<const CommandEntry*> all;
  collect(root, all);
  return all;
}

}  // namespace ce::cli
