#pragma once
/// \file
/// The config that a command is about when none was named.

#include <string>

#include "cli/options.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::cli {

struct ConfigChoice {
  std::string config;
  std::string origin;  ///< why this one: "the known winner on NVIDIA H200"
};

/// What a program with that database would run without tuning: the winner that it, or one of those below it, knows for
/// the device, else what near problems say, else the safe default.
/// No database is as good as an empty one, unless --db names it.
/// \throws NotFound, DatabaseError
[[nodiscard]] ConfigChoice choose_config(const CommonOptions& common, runtime::Device& device,
                                         const generator::Problem& problem);

}  // namespace ce::cli
