#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/all_commands.hpp"
#include "tests/cli/process.hpp"
#include "tests/environment.hpp"

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
  const std::set<std::string> documented =
      options_in(test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/cli.md"));
  EXPECT_EQ(documented, offered);
}

TEST_F(Documentation, GivesNoCommandOptionsThatItLacks) {
  const std::string text = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/cli.md");
  const auto offered = [&](std::vector<std::string> words) {
    words.emplace_back("--help");
    return options_in(ce_tune(words).out);
  };
  const std::regex row("\n\\| (`--[^|]*) \\|");
  for (const std::vector<std::string>& command : test::all_commands) {
    std::string name = command[0];
    for (std::size_t i = 1; i < command.size(); ++i) name += " " + command[i];
    const std::size_t begin = text.find("\n## " + name + "\n");
    ASSERT_NE(begin, std::string::npos) << name;
    const std::string section = text.substr(begin, text.find("\n## ", begin + 1) - begin);
    const std::set<std::string> own = offered(command);
    for (std::sregex_iterator at(section.begin(), section.end(), row), end; at != end; ++at)
      for (const std::string& option : options_in((*at)[1]))
        EXPECT_TRUE(own.contains(option)) << name << " lacks " << option;
  }
}

TEST_F(Documentation, TasksGiveCommandsOptionsThatTheyHave) {
  const std::string text = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/tasks.md");
  // Of a block and of a sentence alike: ce-tune, the words of the command, and what follows.
  const std::regex call("[ `]ce-tune ((?:db )?[a-z]+)([^`\n#]*)");
  std::set<std::string> called;
  for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at) {
    const std::string name = (*at)[1];
    std::vector<std::string> words;
    for (std::size_t from = 0; from != std::string::npos;) {
      const std::size_t to = name.find(' ', from);
      words.push_back(name.substr(from, to - from));
      from = to == std::string::npos ? to : to + 1;
    }
    ASSERT_NE(std::find(test::all_commands.begin(), test::all_commands.end(), words),
              test::all_commands.end())
        << name;
    words.emplace_back("--help");
    const std::set<std::string> offered = options_in(ce_tune(words).out);
    for (const std::string& option : options_in((*at)[2]))
      EXPECT_TRUE(offered.contains(option)) << name << " lacks " << option;
    called.insert(name);
  }
  EXPECT_GE(called.size(), 10U);
}

TEST_F(Documentation, NamesTheCeilingsWhereTheyAreOperations) {
  for (const char* command : {"sweep", "bench", "time", "source", "run"})
    EXPECT_EQ(ce_tune({command, "--help"}).out.find("copy, read, add") != std::string::npos,
              command != std::string("run"))
        << command;
}

TEST_F(Documentation, CountsTheConfigsOfItsTranscriptAsTheCommandDoes) {
  const std::string text = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/cli.md");
  const std::regex row("\n    softmax f32 64 x 1000 [^\n]* of ([0-9]+) ");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, row));
  const std::string listed = ce_tune({"source", "--op", "softmax", "--dtype", "f32", "--rows", "64", "--cols",
                                      "1000", "--device", "host", "--list"})
                                 .out;
  EXPECT_EQ(found[1], std::to_string(std::count(listed.begin(), listed.end(), '\n')));
}

TEST_F(Documentation, CountsTheShippedWinnersAsDoctorDoes) {
  const ce::test::ScopedEnvironment system("CE_SYSTEM_DB", static_cast<const char*>(nullptr));
  const std::string said = ce_tune({"doctor"}).out;
  const std::size_t begin = said.find("built in: ");
  ASSERT_NE(begin, std::string::npos) << said;
  const std::string line = said.substr(begin, said.find('\n', begin) - begin);
  const std::string text = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/cli.md");
  EXPECT_NE(text.find(line), std::string::npos) << line;
}

}  // namespace
}  // namespace ce::cli
