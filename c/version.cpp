#include "ce/version.hpp"

// This file defines the same macros with the same text: otherwise the compiler warns.
#include "ce/ce.h"

const char* ce_version() { return ce::version().data(); }
