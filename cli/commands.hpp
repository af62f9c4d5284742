#pragma once
/// \file
/// The commands. Each adds its options to ce-tune and, if it was called, sets its action.

#include <functional>
#include <string>

#include "cli/exit_codes.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace ce::cli {

/// Runs the parsed command, prints its results to standard output, and returns the exit code. An action that throws has
/// printed nothing to standard output.
using Action = std::function<ExitCode()>;

void add_sweep(CLI::App& app, Action& chosen);
/// \param command_line  the command line, for the record
void add_bench(CLI::App& app, Action& chosen, const std::string& command_line);
void add_time(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_check(CLI::App& app, Action& chosen);
void add_regressions(CLI::App& app, Action& chosen);
void add_gate(CLI::App& app, Action& chosen);
void add_bundle(CLI::App& app, Action& chosen);
void add_linear(CLI::App& app, Action& chosen);
void add_pin(CLI::App& app, Action& chosen);
void add_nodes(CLI::App& app, Action& chosen);
void add_db(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_source(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
/// The output of these two covers all commands of `app`, in whatever order they are added.
void add_completion(CLI::App& app, Action& chosen);
void add_man(CLI::App& app, Action& chosen);

}  // namespace ce::cli
