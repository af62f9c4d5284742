#pragma once
/// \file
/// The commands below `ce-tune db`, one file each. Like those of commands.hpp.

#include "cli/commands.hpp"

namespace ce::cli {

void add_db_list(CLI::App& db, Action& chosen);
void add_db_show(CLI::App& db, Action& chosen);
void add_db_history(CLI::App& db, Action& chosen);
void add_db_diff(CLI::App& db, Action& chosen);
void add_db_merge(CLI::App& db, Action& chosen);
void add_db_export(CLI::App& db, Action& chosen);
void add_db_import(CLI::App& db, Action& chosen);
void add_db_prune(CLI::App& db, Action& chosen);
void add_db_verify(CLI::App& db, Action& chosen);
void add_db_vacuum(CLI::App& db, Action& chosen);

}  // namespace ce::cli
