#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <sstream>
#include <string>
#include <string_view>

#include "ce/version.hpp"
#include "cli/command_tree.hpp"
#include "cli/commands.hpp"

namespace ce::cli {
namespace {

constexpr const char* man_examples =
    "\nExamples:\n"
    "  ce-tune man | man -l -\n";

/// Escapes text for roff: backslashes and hyphens stay as they are, and no line is a request.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool begins_line = result.empty() || result.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  return result;
}

/// The sections of a help footer: a title that ends in a colon, and indented lines.
void write_footer(std::ostringstream& page, const std::string& footer) {
  std::istringstream lines(footer);
  bool open = false;
  const auto close = [&] {
    if (open) page << ".fi\n";
    open = false;
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line.back() == ':' && line.front() != ' ') {
      close();
      std::string title = line.substr(0, line.size() - 1);
      for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      page << fmt::format(".SH {}\n.nf\n", roff(title));
      open = true;
    } else {
      page << roff(line) << '\n';
    }
  }
  close();
}

void write_options(std::ostringstream& page, const CommandEntry& command) {
  for (const OptionEntry& option : command.options) {
    std::string term;
    for (const std::string& name : option.names)
      term +=
          fmt::format("{}\\f{}{}\\fR", term.empty() ? "" : ", ", option.positional ? 'I' : 'B', roff(name));
    const std::string value = fmt::format("\\fI{}\\fR", roff(option.value));
    if (!option.value.empty()) term += option.optional_value ? "[=" + value + "]" : " " + value;
    page << fmt::format(".TP\n{}\n{}\n", term, roff(option.help));
  }
}

std::string synopsis(const CommandEntry& command) {
  std::string line = fmt::format("\\fBce\\-tune {}\\fR [\\fIOPTIONS\\fR]", roff(command.path));
  for (const OptionEntry& option : command.options)
    if (option.positional) line += fmt::format(" \\fI{}\\fR", roff(option.names.front()));
  return line;
}

std::string manual_page(const CLI::App& app) {
  const CommandEntry root = command_tree(app);
  std::ostringstream page;
  page << fmt::format(".TH CE\\-TUNE 1 \"\" \"ce {}\" \"User Commands\"\n", version())
       << ".SH NAME\nce\\-tune \\- finds and remembers the fastest softmax and cross entropy kernels\n"
       << ".SH SYNOPSIS\n\\fBce\\-tune\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
       << ".SH DESCRIPTION\n"
       << roff(root.help) << "\n"
       << ".SH OPTIONS\n";
  write_options(page, root);
  page << ".SH COMMANDS\n";
  for (const CommandEntry* command : all_commands(root)) {
    if (command->path.empty() || !command->commands.empty()) continue;  // `db` by itself does nothing
    page << fmt::format(".SS ce\\-tune {}\n{}.\n.PP\n{}\n", roff(command->path), roff(command->help),
                        synopsis(*command));
    write_options(page, *command);
  }
  write_footer(page, app.get_footer());
  return page.str();
}

}  // namespace

void add_man(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("man", "Print the manual page");
  command->footer(man_examples);
  command->callback([&app, &chosen] {
    chosen = [&app] {
      fmt::print("{}", manual_page(app));
      return ExitCode::success;
    };
  });
}

}  // namespace ce::cli
