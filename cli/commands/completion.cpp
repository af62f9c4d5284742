#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ce/error.hpp"
#include "cli/command_tree.hpp"
#include "cli/commands.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* completion_examples =
    "\nExamples:\n"
    "  ce-tune completion bash > ~/.local/share/bash-completion/completions/ce-tune\n"
    "  ce-tune completion zsh > ~/.zfunc/_ce-tune   (a folder in fpath)\n"
    "  ce-tune completion fish > ~/.config/fish/completions/ce-tune.fish\n";

bool takes_file(const OptionEntry& option) { return option.value.find("FILE") != std::string::npos; }

/// Whether the value is the next word.
bool takes_word(const OptionEntry& option) { return !option.value.empty() && !option.optional_value; }

/// The words that may come next, except values.
std::vector<std::string> next_words(const CommandEntry& command) {
  std::vector<std::string> words;
  for (const CommandEntry& below : command.commands)
    words.push_back(below.path.substr(below.path.rfind(' ') + 1));
  for (const OptionEntry& option : command.options) {
    if (option.positional)
      words.insert(words.end(), option.choices.begin(), option.choices.end());
    else
      words.push_back(option.names.front());
  }
  return words;
}

/// Quotes with single quotes, which all shells read alike except for a quote inside.
std::string in_single_quotes(std::string_view text, std::string_view quote = "'\\''") {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string(quote) : std::string(1, c);
  return result + "'";
}

/// The branches that find the command in the words so far: "db list" if "list" comes after "db".
/// \param branch  writes a branch for a pattern, "db|list", and the command, both quoted
template <class Branch>
std::string command_branches(const CommandEntry& root, const Branch& branch, std::string_view quote) {
  std::string text;
  for (const CommandEntry* entry : all_commands(root)) {
    if (entry->path.empty()) continue;
    const std::size_t space = entry->path.rfind(' ');
    const std::string above = space == std::string::npos ? "" : entry->path.substr(0, space);
    const std::string word = entry->path.substr(space == std::string::npos ? 0 : space + 1);
    text += branch(in_single_quotes(fmt::format("{}|{}", above, word), quote),
                   in_single_quotes(entry->path, quote));
  }
  return text;
}

std::string command_cases(const CommandEntry& root) {
  return command_branches(
      root,
      [](const std::string& pattern, const std::string& command) {
        return fmt::format("      {}) command={} ;;\n", pattern, command);
      },
      "'\\''");
}

/// Branches of a `case` for the value of an option; `choices` and `files` are the commands that offer them.
std::string value_cases(const CommandEntry& root, const char* choices, const char* files) {
  std::string text;
  for (const CommandEntry* entry : all_commands(root))
    for (const OptionEntry& option : entry->options) {
      if (option.positional || !takes_word(option)) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(in_single_quotes(entry->path + "|" + name));
      const std::string offer =
          !option.choices.empty()
              ? fmt::format("{} {}", choices,
                            in_single_quotes(fmt::to_string(fmt::join(option.choices, " "))))
          : takes_file(option) ? files
                               : ":";
      text += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), offer);
    }
  return text;
}

std::string for_bash(const CommandEntry& root) {
  std::string text =
      "# Completions of ce-tune for bash, made by: ce-tune completion bash\n"
      "_ce_tune_offer() {  # words; after commas, those of a list\n"
      "  local list=\n"
      "  [[ $current != *,* ]] || list=${current%,*},\n"
      "  mapfile -t COMPREPLY < <(compgen -P \"$list\" -W \"$1\" -- \"${current##*,}\")\n"
      "}\n"
      "_ce_tune_files() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "
      "\"$current\"); }\n"
      "_ce_tune() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i\n"
      "  # bash takes \"--name=value\" for three words.\n"
      "  [[ $before != = ]] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  [[ $current != = ]] || current=\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$command|${COMP_WORDS[i]}\" in\n";
  text += command_cases(root);
  text +=
      "    esac\n"
      "  done\n"
      "  COMPREPLY=()\n"
      "  case \"$command|$before\" in\n";
  text += value_cases(root, "_ce_tune_offer", "_ce_tune_files");
  text +=
      "  esac\n"
      "  case $command in\n";
  for (const CommandEntry* entry : all_commands(root))
    text += fmt::format("    {}) _ce_tune_offer {} ;;\n", in_single_quotes(entry->path),
                        in_single_quotes(fmt::to_string(fmt::join(next_words(*entry), " "))));
  text +=
      "  esac\n"
      "}\n"
      "complete -F _ce_tune ce-tune\n";
  return text;
}

/// Escapes a text for _describe: a colon would end the word.
std::string described(std::string_view word, std::string_view help) {
  std::string escaped;
  for (const char c : word) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  return in_single_quotes(fmt::format("{}:{}", escaped, help));
}

std::string for_zsh(const CommandEntry& root) {
  std::string text =
      "#compdef ce-tune\n"
      "# Completions of ce-tune for zsh, made by: ce-tune completion zsh\n"
      "_ce_tune_offer() {  # words; after commas, those of a list\n"
      "  compset -P '*,'\n"
      "  compadd -- ${=1}\n"
      "}\n"
      "_ce-tune() {\n"
      "  local command= before=${words[CURRENT-1]} i\n"
      "  local -a candidates\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$command|${words[i]}\" in\n";
  text += command_cases(root);
  text +=
      "    esac\n"
      "  done\n"
      "  if compset -P '--*='; then before=${IPREFIX%=}; fi\n"
      "  case \"$command|$before\" in\n";
  text += value_cases(root, "_ce_tune_offer", "_files");
  text +=
      "  esac\n"
      "  case $command in\n";
  for (const CommandEntry* entry : all_commands(root)) {
    text += fmt::format("    {}) candidates=(\n", in_single_quotes(entry->path));
    for (const CommandEntry& below : entry->commands)
      text += fmt::format("      {}\n", described(below.path.substr(below.path.rfind(' ') + 1), below.help));
    for (const OptionEntry& option : entry->options) {
      if (!option.positional) text += fmt::format("      {}\n", described(option.names.front(), option.help));
      if (option.positional)
        for (const std::string& choice : option.choices)
          text += fmt::format("      {}\n", described(choice, option.help));
    }
    text += "    ) ;;\n";
  }
  text +=
      "  esac\n"
      "  _describe 'ce-tune' candidates\n"
      "}\n"
      "if [[ $funcstack[1] == _ce-tune ]]; then _ce-tune \"$@\"; else compdef _ce-tune ce-tune; fi\n";
  return text;
}

std::string for_fish(const CommandEntry& root) {
  const auto fish = [](std::string_view text) { return in_single_quotes(text, "\\'"); };
  std::string text =
      "# Completions of ce-tune for fish, made by: ce-tune completion fish\n"
      "function __ce_tune_is\n"
      "  set -l command ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$command|$word\"\n";
  text += command_branches(
      root,
      [](const std::string& pattern, const std::string& command) {
        return fmt::format("      case {}\n        set command {}\n", pattern, command);
      },
      "\\'");
  text +=
      "    end\n"
      "  end\n"
      "  test \"$command\" = \"$argv[1]\"\n"
      "end\n"
      "complete -c ce-tune -f\n";
  for (const CommandEntry* entry : all_commands(root)) {
    const std::string here = fish(fmt::format("__ce_tune_is \"{}\"", entry->path));
    for (const CommandEntry& below : entry->commands)
      text += fmt::format("complete -c ce-tune -n {} -a {} -d {}\n", here,
                          fish(below.path.substr(below.path.rfind(' ') + 1)), fish(below.help));
    for (const OptionEntry& option : entry->options) {
      const std::string choices = fish(fmt::to_string(fmt::join(option.choices, " ")));
      if (option.positional) {
        if (!option.choices.empty())
          text += fmt::format("complete -c ce-tune -n {} -a {} -d {}\n", here, choices, fish(option.help));
        continue;
      }
      text += fmt::format("complete -c ce-tune -n {}", here);
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (takes_word(option)) text += takes_file(option) ? " -r -F" : " -x";
      if (!option.choices.empty()) text += " -a " + choices;
      text += fmt::format(" -d {}\n", fish(option.help));
    }
  }
  return text;
}

}  // namespace

void add_completion(CLI::App& app, Action& chosen) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes commands and options in a shell");
  command->footer(completion_examples);
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command->callback([&app, shell, &chosen] {
    chosen = [&app, shell] {
      const CommandEntry root = command_tree(app);
      if (*shell == "bash")
        fmt::print("{}", for_bash(root));
      else if (*shell == "zsh")
        fmt::print("{}", for_zsh(root));
      else if (*shell == "fish")
        fmt::print("{}", for_fish(root));
      else
        throw InvalidArgument("SHELL", in_quotes(*shell), "bash, zsh or fish");
      return ExitCode::success;
    };
  });
}

}  // namespace ce::cli
