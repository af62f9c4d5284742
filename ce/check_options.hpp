#pragma once
/// \file
/// Checks the options of a Context. Not installed.

#include "ce/context.hpp"

namespace ce {

/// Checks everything that needs neither a device nor a database nor the environment. \throws InvalidArgument
void check_options(const ContextOptions& options);

}  // namespace ce
