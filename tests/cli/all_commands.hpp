#pragma once
/// \file
/// What ce-tune can be asked to do.

#include <string>
#include <vector>

namespace ce::cli::test {

/// The words of every command.
inline const std::vector<std::vector<std::string>> all_commands{
    {"sweep"},       {"linear"},        {"bench"},        {"time"},        {"explain"},      {"check"},
    {"regressions"}, {"nodes"},         {"gate"},         {"bundle"},      {"pin"},          {"db", "list"},
    {"db", "show"},  {"db", "history"}, {"db", "diff"},   {"db", "merge"}, {"db", "export"}, {"db", "import"},
    {"db", "prune"}, {"db", "verify"},  {"db", "vacuum"}, {"report"},      {"run"},          {"source"},
    {"doctor"},      {"completion"},    {"man"}};

}  // namespace ce::cli::test
