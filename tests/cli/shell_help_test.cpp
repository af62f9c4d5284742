// What shells and man are told of the commands: made from the same help, so that neither lacks one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "generator/operations/operation.hpp"
#include "tests/cli/all_commands.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

class ShellHelp : public test::CommandTest {
 protected:
  [[nodiscard]] static bool is_there(const std::string& program) {
    return std::filesystem::exists("/usr/bin/" + program);
  }
  test::Finished run_program(const std::string& program, const std::vector<std::string>& arguments) {
    return test::Child(folder(), arguments, surroundings(), "", "/usr/bin/" + program).wait();
  }
  std::filesystem::path script(const std::string& shell) {
    const auto made = ce_tune({"completion", shell});
    EXPECT_EQ(made.status, 0) << made.err;
    std::filesystem::path path = folder() / ("ce-tune." + shell);
    test::write_file(path, made.out);
    return path;
  }
  /// What bash offers for the last word.
  std::string offered(const std::filesystem::path& script, const std::string& words) {
    const std::string text = "source '" + script.string() + "'; COMP_WORDS=(" + words +
                             "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ce_tune; echo \"${COMPREPLY[*]}\"";
    const test::Finished finished = run_program("bash", {"-c", text});
    EXPECT_EQ(finished.err, "");
    return finished.out;
  }
};

TEST_F(ShellHelp, BashCompletesCommandsOptionsAndValues) {
  if (!is_there("bash")) GTEST_SKIP() << "no bash";
  const auto bash = script("bash");
  EXPECT_EQ(offered(bash, "ce-tune swe"), "sweep\n");
  EXPECT_EQ(offered(bash, "ce-tune db hi"), "history\n");
  EXPECT_EQ(offered(bash, "ce-tune sweep --co"), "--cols --configs\n");
  EXPECT_EQ(offered(bash, "ce-tune sweep --op log_softmax_"), "log_softmax_backward\n");
  EXPECT_EQ(offered(bash, "ce-tune sweep --dtype f32,b"), "f32,bf16\n");
  EXPECT_EQ(offered(bash, "ce-tune sweep --dtype = b"), "bf16\n");
  EXPECT_EQ(offered(bash, "ce-tune sweep --rows ''"), "\n");
  EXPECT_EQ(offered(bash, "ce-tune completion ''"), "--help bash zsh fish\n");
  const std::string shapes = (folder() / "shapes.csv").string();
  test::write_file(shapes, "");
  const std::string begun = shapes.substr(0, shapes.size() - 6);
  EXPECT_EQ(offered(bash, "ce-tune sweep --from " + begun), shapes + "\n");
  EXPECT_EQ(offered(bash, "ce-tune db list --db " + begun), shapes + "\n");
}

/// In the help, in shells and in the message about a wrong one.
TEST_F(ShellHelp, OperationsAreThoseThatACommandTakes) {
  if (!is_there("bash")) GTEST_SKIP() << "no bash";
  const auto bash = script("bash");
  const std::string page = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/cli.md");
  for (const std::string command : {"sweep", "bench", "time", "source", "run"}) {
    SCOPED_TRACE(command);
    std::vector<std::string> words{command, "--op", "none", "--dtype", "f32", "--rows", "1", "--cols", "8"};
    if (command == "run") words.insert(words.end(), {"input=x", "output=y"});
    const std::string refused = ce_tune(words).err, before = "--op is \"none\"; expected one of ";
    const std::size_t begin = refused.find(before);
    ASSERT_NE(begin, std::string::npos) << refused;
    std::string names = refused.substr(begin + before.size());
    std::string shown = offered(bash, "ce-tune " + command + " --op ''");
    for (std::string* list : {&names, &shown})
      std::erase_if(*list, [](char c) { return c == ',' || c == '\n'; });
    EXPECT_EQ(shown, names);
    const std::string help = ce_tune({command, "--help"}).out;
    const std::size_t op_at = help.find("\n  --op ");
    ASSERT_NE(op_at, std::string::npos);
    const std::string of_op = help.substr(op_at, help.find("\n  --dtype ", op_at) - op_at);
    std::set<std::string> helped, taken;
    const std::regex word("[a-z_]+");
    for (std::sregex_iterator at(names.begin(), names.end(), word), end; at != end; ++at)
      taken.insert(at->str());
    for (std::sregex_iterator at(of_op.begin(), of_op.end(), word), end; at != end; ++at)
      if (taken.contains(at->str()) || at->str().starts_with("cross_entropy_") || at->str() == "copy")
        helped.insert(at->str());
    EXPECT_EQ(helped, taken);
  }
  for (const generator::OperationRow& row : generator::operation_rows)
    if (!generator::may_be_named(row.operation, generator::Named::of_one_rank)) {
      EXPECT_NE(page.find(fmt::format("`{}`", row.word)), std::string::npos) << row.word;
    }
}

TEST_F(ShellHelp, ZshAndFishReadTheirs) {
  for (const char* shell : {"zsh", "fish"}) {
    const auto path = script(shell);
    if (!is_there(shell)) continue;
    const test::Finished finished = run_program(shell, {"-n", path.string()});
    EXPECT_EQ(finished.status, 0) << shell << finished.err;
  }
  if (!is_there("fish")) GTEST_SKIP() << "no fish";
  const std::string path = script("fish").string();
  const auto offers = [&](const std::string& line) {
    return run_program("fish", {"-c", "source " + path + "; complete -C '" + line + "'"}).out;
  };
  EXPECT_NE(offers("ce-tune db hist").find("history\t"), std::string::npos);
  EXPECT_NE(offers("ce-tune sweep --op log_softmax_b").find("log_softmax_backward"), std::string::npos);
  EXPECT_EQ(offers("ce-tune db --bud").find("--budget"), std::string::npos);
}

TEST_F(ShellHelp, EveryCommandAndItsOptionsAreInAll) {
  const std::string page = ce_tune({"man"}).out;
  std::vector<std::string> scripts;
  for (const char* shell : {"bash", "zsh", "fish"}) scripts.push_back(test::read_file(script(shell)));
  for (const std::vector<std::string>& command : test::all_commands) {
    std::string path = command[0];
    for (std::size_t i = 1; i < command.size(); ++i) path += " " + command[i];
    EXPECT_NE(page.find("\n.SS ce\\-tune " + path + "\n"), std::string::npos) << path;
    for (const std::string& text : scripts) EXPECT_NE(text.find(path), std::string::npos) << path;
  }
  for (const char* option : {"budget", "in-place", "row-weights"}) {
    std::string escaped;
    for (const char c : "--" + std::string(option)) escaped += c == '-' ? "\\-" : std::string(1, c);
    EXPECT_NE(page.find(escaped), std::string::npos) << option;
    EXPECT_NE(scripts[0].find("--" + std::string(option)), std::string::npos) << option;
    EXPECT_NE(scripts[2].find("-l " + std::string(option)), std::string::npos) << option;
  }
}

TEST_F(ShellHelp, TheManualPageSaysWhatTakesAValue) {
  const std::string page = ce_tune({"man"}).out;
  for (const char* term :
       {"\n\\fB\\-\\-batched\\fR\n", "\n\\fB\\-\\-rows\\fR \\fILIST\\fR\n",
        "\n\\fB\\-\\-isolate\\fR[=\\fIVALUE\\fR]\n", "\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\n"})
    EXPECT_NE(page.find(term), std::string::npos) << term;
}

TEST_F(ShellHelp, TheManualPageIsRoffWithoutAWarning) {
  if (!is_there("groff")) GTEST_SKIP() << "no groff";
  const auto path = folder() / "ce-tune.1";
  test::write_file(path, ce_tune({"man"}).out);
  const test::Finished finished = run_program("groff", {"-man", "-Tutf8", "-ww", "-P-cbou", path.string()});
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.err, "");
  EXPECT_NE(finished.out.find("EXIT STATUS"), std::string::npos);
}

TEST_F(ShellHelp, AShellThatIsNotKnownIsNamed) {
  const auto refused = ce_tune({"completion", "csh"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("SHELL is \"csh\"; expected bash, zsh or fish"), std::string::npos)
      << refused.err;
  EXPECT_EQ(refused.out, "");
}

TEST_F(ShellHelp, TheVersionForPrograms) {
  const auto document = nlohmann::json::parse(ce_tune({"--version", "--json"}).out);
  EXPECT_EQ(document.at("format"), 1);
  EXPECT_EQ("ce-tune " + document.at("version").get<std::string>() + "\n", ce_tune({"--version"}).out);
  EXPECT_TRUE(document.at("database_format").is_number_integer());
}

}  // namespace
}  // namespace ce::cli
