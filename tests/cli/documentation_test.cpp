#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/all_commands.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

std::set<std::string> options_in(const std::string& text) {
  std::set<std::string> found;
  const std::regex option("--[a-z][a-z-]*");
  for (std::sregex_iterator at(text.begin(), text.end(), option), end; at != end; ++at)
    found.insert(at->str());
  return found;
}

using Documentation = test::CommandTest;

TEST_F(Documentation, NamesEveryOptionThatTheHelpNamesAndNoOther) {
  std::set<std::string> offered{"--help", "--version"};
  std::vector<std::vector<std::string>> commands = test::all_commands;
  commands.emplace_back();  // ce-tune itself
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> words = command;
    words.emplace_back("--help");
    offered.merge(options_in(ce_tune(words).out));
  }
  std::set<std::string> documented =
      options_in(test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/cli.md"));
  documented.insert("--version");
  documented.erase("--gpus");  // of docker
  EXPECT_EQ(documented, offered);
}

TEST_F(Documentation, NamesEveryCommand) {
  const std::string text = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/cli.md");
  for (const char* command :
       {"sweep", "bench", "time", "explain", "db list", "db show", "db history", "db diff", "db merge",
        "db export", "db import", "db prune", "db verify", "db vacuum", "report", "run", "source", "doctor"})
    EXPECT_NE(text.find("\n## " + std::string(command) + "\n"), std::string::npos) << command;
}

}  // namespace
}  // namespace ce::cli
