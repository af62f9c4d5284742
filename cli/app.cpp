#include "cli/app.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/schema.hpp"
#include "ce/error.hpp"
#include "ce/version.hpp"
#include "cli/commands.hpp"
#include "cli/exit_codes.hpp"
#include "cli/failure.hpp"
#include "cli/json.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

std::string footer() {
  std::string text =
      "\nExamples:\n"
      "  ce-tune doctor\n"
      "  ce-tune sweep --op softmax --dtype bf16 --rows 8192 --cols 4096,32000,50257,128256\n"
      "  ce-tune bench --op softmax --dtype bf16 --plot softmax.svg\n"
      "  ce-tune db list\n"
      "\nExit status:\n";
  for (const ExitMeaning& meaning : exit_meanings)
    text += fmt::format("  {:>3}  {}\n", static_cast<int>(meaning.code), meaning.meaning);
  text +=
      "\nEnvironment:\n"
      "  CE_DB             the database\n"
      "  CE_SITE_DB        a database or bundle for problems that CE_DB does not know\n"
      "  CE_DEVICE         the device: cuda, cuda:N or host\n"
      "  CE_POLICY         for programs: tune, lookup, frozen or background\n"
      "  CE_LOG            how much the log contains: debug, info, warning or off\n"
      "  CE_NVRTC          the file or folder of NVRTC, the compiler for GPUs\n"
      "  CE_HOST_COMPILER  the compiler for the host device\n";
  return text;
}

/// Quotes an argument for a shell.
std::string command_line(std::span<const char* const> words) {
  std::string line = "ce-tune";
  for (const std::string_view word : words.subspan(1)) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$`&|;<>()*?[]#~!{}") == std::string_view::npos;
    if (plain) {
      line += fmt::format(" {}", word);
      continue;
    }
    line += " '";
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

/// Prints the error to standard error and, for programs, to standard output.
int report(const Failure& failure, bool json) {
  say("{}\n", failure.line());
  if (json) {
    nlohmann::json error = failure.fields;
    error["exit_code"] = static_cast<int>(failure.code);
    print({{"error", error}});
  }
  return static_cast<int>(failure.code);
}

/// "ce-tune db show": the command to ask for --help.
std::string command_of(const CLI::App& app) {
  std::string command = app.get_name();
  for (const auto* inner : app.get_subcommands()) command += " " + command_of(*inner);
  return command;
}

std::string message_of(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App* innermost = &app;
  while (!innermost->get_subcommands().empty()) innermost = innermost->get_subcommands().front();
  const std::vector<std::string> rest = app.remaining(true);
  // For a misspelled command, CLI11 only says that some command is required.
  const bool misspelled = innermost->get_require_subcommand_min() > 0 && !rest.empty();
  return fmt::format("{} ({} --help)",
                     misspelled ? fmt::format("there is no command \"{}\"", rest.front()) : error.what(),
                     command_of(app));
}

[[noreturn]] void refuse_empty(std::string_view argument) {
  throw InvalidArgument(argument, in_quotes(""), "a value");
}

/// For "--name=" CLI11 would take the next word as the value, even if it is another option.
void refuse_empty_words(std::span<const char* const> words) {
  for (const std::string_view word : words.subspan(1)) {
    if (word == "--") return;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      refuse_empty(word.substr(0, word.size() - 1));
  }
}

/// For the commands "" means "not given", which a script with an unset variable does not intend.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) refuse_empty(option->get_name());
  for (const CLI::App* command : app.get_subcommands()) refuse_empty_values(*command);
}

/// Output that could not be written is a failure.
ExitCode flushed(ExitCode code) {
  flush_standard_output();
  return code;
}

}  // namespace

int run(int argument_count, const char* const* arguments) {
  const std::span<const char* const> words(arguments, static_cast<std::size_t>(argument_count));
  const bool json =
      std::any_of(words.begin(), words.end(), [](std::string_view word) { return word == "--json"; });
  try {
    CLI::App app(
        "Finds the fastest softmax and cross entropy kernels for your GPU and shapes, and remembers them.",
        "ce-tune");
    app.set_version_flag("--version", std::string("ce-tune ") + std::string(version()));
    app.require_subcommand(1);
    app.get_formatter()->column_width(28);
    app.footer(footer());
    Action action;
    add_sweep(app, action);
    add_linear(app, action);
    add_bench(app, action, command_line(words));
    add_time(app, action);
    add_explain(app, action);
    add_check(app, action);
    add_regressions(app, action);
    add_gate(app, action);
    add_bundle(app, action);
    add_pin(app, action);
    add_nodes(app, action);
    add_db(app, action);
    add_report(app, action);
    add_run(app, action);
    add_source(app, action);
    add_doctor(app, action);
    add_completion(app, action);
    add_man(app, action);
    refuse_empty_words(words);
    try {
      app.parse(argument_count, arguments);
    } catch (const CLI::ParseError& error) {
      if (json && dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
        print({{"version", version()}, {"database_format", cache::schema_version}});
        return static_cast<int>(flushed(ExitCode::success));
      }
      if (error.get_exit_code() == 0) {  // help or version was asked for
        app.exit(error);
        return static_cast<int>(flushed(ExitCode::success));
      }
      return report(usage_failure(message_of(error, app)), json);
    }
    refuse_empty_values(app);
    const ExitCode code = flushed(action());
    if (has_left_out())
      say("ce-tune: some columns or texts do not fit the width of the terminal; --wide shows them\n");
    return static_cast<int>(code);
  } catch (const std::exception& error) {
    return report(describe(error), json);
  }
}

}  // namespace ce::cli
