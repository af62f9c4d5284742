#pragma once
/// \file
/// The exit statuses of ce-tune. Scripts rely on these numbers: none ever gets another meaning.

#include <array>
#include <string_view>

#include "ce/error.hpp"

namespace ce::cli {

enum class ExitCode : int {
  success = 0,
  internal = 1,
  usage = 2,
  regression = 3,
  unsure_regression = 4,
  device = 5,
  compile = 6,
  database = 7,
  not_found = 8,
  unsupported = 9,
  verification = 10,
  out_of_budget = 11,
  nothing_compared = 12,
  interrupted = 130,
};

struct ExitMeaning {
  ExitCode code;
  std::string_view meaning;
};

/// All exit codes, for the help text.
inline constexpr std::array<ExitMeaning, 14> exit_meanings{{
    {ExitCode::success, "fine"},
    {ExitCode::internal, "a failure inside ce-tune, or its output could not be written"},
    {ExitCode::usage, "an option or argument is wrong"},
    {ExitCode::regression, "regressions were found"},
    {ExitCode::unsure_regression, "only unsure regressions were found"},
    {ExitCode::device, "the device does not exist, or the driver or device failed"},
    {ExitCode::compile, "a kernel does not compile, or there is no compiler"},
    {ExitCode::database, "the database cannot be used"},
    {ExitCode::not_found, "a key, config, winner, file or database does not exist"},
    {ExitCode::unsupported, "not supported on this device"},
    {ExitCode::verification, "no config gave the correct result, or a target is out of range"},
    {ExitCode::out_of_budget, "the budget was used up before all was done"},
    {ExitCode::nothing_compared, "nothing was compared, or less than was required"},
    {ExitCode::interrupted, "interrupted; what was tuned or checked is kept"},
}};

[[nodiscard]] constexpr ExitCode exit_code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument: return ExitCode::usage;
    case ErrorKind::unsupported: return ExitCode::unsupported;
    case ErrorKind::device: return ExitCode::device;
    case ErrorKind::compile: return ExitCode::compile;
    case ErrorKind::database: return ExitCode::database;
    case ErrorKind::not_found: return ExitCode::not_found;
    case ErrorKind::verification:
    case ErrorKind::target_out_of_range: return ExitCode::verification;
    case ErrorKind::interrupted: return ExitCode::interrupted;
  }
  return ExitCode::internal;
}

}  // namespace ce::cli
