#pragma once
/// \file
/// The config of a command: the one of --config, or the one that a program would run.

#include <string>

#include "ce/error.hpp"
#include "cli/options.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::cli {

/// \throws InvalidArgument naming --config
[[nodiscard]] generator::Config parse_config_option(const std::string& text);

/// For --config: \throws InvalidArgument naming it if devices of the model cannot run the problem with the config
void require_serves(const generator::Config& config, const generator::Problem& problem,
                    const runtime::Model& model);

/// That error, with the obstacle.
[[nodiscard]] InvalidArgument not_serving(const generator::Config& config, const generator::Problem& problem,
                                          const runtime::Model& model, const std::string& why);

struct ConfigChoice {
  generator::Config config;
  std::string origin;  ///< why it was chosen: "the known winner on NVIDIA H200"
};

/// The config of --config. \throws InvalidArgument naming it
[[nodiscard]] ConfigChoice named_config(const std::string& text);

/// The config that a program with that database would run without tuning: the winner in the database or the layers
/// below it, else the most promising by near problems, else the safe default. A missing database counts as an empty
/// one, unless --db names it.
/// \throws NotFound, DatabaseError
[[nodiscard]] ConfigChoice choose_config(const CommonOptions& common, runtime::Device& device,
                                         const generator::Problem& problem);

}  // namespace ce::cli
