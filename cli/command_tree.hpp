#pragma once
/// \file
/// The commands and their options, read from what parses them: the manual page and completions say what the help says.

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ce::cli {

struct OptionEntry {
  std::vector<std::string>
      names;          ///< "--rows", "-h"; of an argument without a name the one that the help shows
  std::string value;  ///< "FILE"; empty for a flag
  std::string help;   ///< without line breaks
  bool positional = false;
  bool optional_value = false;  ///< "--isolate" and "--isolate=TIME"
  /// The words that it takes, where these are few and known; empty for any other.
  std::vector<std::string> choices;
};

struct CommandEntry {
  std::string path;  ///< "db list"; empty for ce-tune itself
  std::string help;  ///< a sentence without an end
  std::vector<OptionEntry> options;
  std::vector<CommandEntry> commands;
};

[[nodiscard]] CommandEntry command_tree(const CLI::App& app);

/// The tree as a list: each command before its own.
[[nodiscard]] std::vector<const CommandEntry*> all_commands(const CommandEntry& root);

}  // namespace ce::cli
