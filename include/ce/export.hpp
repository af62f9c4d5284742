#pragma once
/// \file
/// Which symbols a shared library of ce exports.

#include "ce/language.hpp"

/// Marks an exported class or function of the public headers; everything else is compiled as hidden. A class inside of
/// an exported one that is the library's own is marked CE_HIDDEN.
#define CE_API __attribute__((visibility("default")))
#define CE_HIDDEN __attribute__((visibility("hidden")))
