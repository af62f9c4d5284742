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

/// The winner that the database knows for the device, else what would run without tuning: what near problems say,
/// or the config that is used when nothing is known.
/// No database is as good as an empty one, unless --db names it.
/// \throws NotFound, DatabaseError
[[nodiscard]] ConfigChoice choose_config(const CommonOptions& common, runtime::Device& device,
                                         const generator::Problem& problem);

}  // namespace ce::cli
