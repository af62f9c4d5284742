#pragma once
/// \file
/// The commands and their options, taken from the parser, so that the manual page and completions agree with the help.

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ce::cli {

struct OptionEntry {
  std::vector<std::string> names;  ///< "--rows", "-h"; for a positional argument its name in the help
  std::string value;               ///< "FILE"; empty for a flag
  std::string help;                ///< without line breaks
  bool positional = false;
  bool optional_value = false;  ///< such as "--isolate" and "--isolate=TIME"
  /// The accepted words, if they are few and known; else empty.
  std::vector<std::string> choices;
};

struct CommandEntry {
  std::string path;  ///< "db list"; empty for ce-tune itself
  std::string help;  ///< a sentence without an end
  std::vector<OptionEntry> options;
  std::vector<CommandEntry> commands;
};

[[nodiscard]] CommandEntry command_tree(const CLI::App& app);

/// The tree as a list: each command precedes its subcommands.
[[nodiscard]] std::vector<const CommandEntry*> all_commands(const CommandEntry& root);

}  // namespace ce::cli
