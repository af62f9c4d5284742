#include "cli/db/db.hpp"

#include <CLI/CLI.hpp>

namespace ce::cli {

void add_db(CLI::App& app, Action& chosen) {
  CLI::App* db = app.add_subcommand("db", "Read and maintain the database");
  db->require_subcommand(1);
  for (const auto add : {add_db_list, add_db_show, add_db_history, add_db_diff, add_db_merge, add_db_export,
                         add_db_import, add_db_prune, add_db_verify, add_db_vacuum})
    add(*db, chosen);
}

}  // namespace ce::cli
