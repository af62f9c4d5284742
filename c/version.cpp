#include "ce/version.hpp"

// Defines the same macros, in the same words: otherwise the compiler warns.
#include "ce/ce.h"

const char* ce_version() { return ce::version().data(); }
