#pragma once
/// \file
/// The config that a command is about: the one that --config names, or the one of a program.

#include <string>

#include "ce/error.hpp"
#include "cli/options.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::cli {

/// \throws InvalidArgument naming --config
[[nodiscard]] generator::Config parse_config_option(const std::string& text);

/// For --config: \throws InvalidArgument naming it where devices of the model cannot run the problem with the config
void require_serves(const generator::Config& config, const generator::Problem& problem,
                    const runtime::Model& model);

/// That error, with what is in the way.
[[nodiscard]] InvalidArgument not_serving(const generator::Config& config, const generator::Problem& problem,
                                          const runtime::Model& model, const std::string& why);

struct ConfigChoice {
  generator::Config config;
  std::string origin;  ///< why this one: "the known winner on NVIDIA H200"
};

/// The one that --config names. \throws InvalidArgument naming it
[[nodiscard]] ConfigChoice named_config(const std::string& text);

/// What a program with that database would run without tuning: the winner that it, or one of those below it, knows for
/// the device, else what near problems say, else the safe default.
/// No database is as good as an empty one, unless --db names it.
/// \throws NotFound, DatabaseError
[[nodiscard]] ConfigChoice choose_config(const CommonOptions& common, runtime::Device& device,
                                         const generator::Problem& problem);

}  // namespace ce::cli
