#pragma once
/// \file
/// What can be wrong with the options of a Context. Not installed.

#include "ce/context.hpp"

namespace ce {

/// Refuses what shows to be wrong without a device or a database, and without the environment. \throws InvalidArgument
void check_options(const ContextOptions& options);

}  // namespace ce
