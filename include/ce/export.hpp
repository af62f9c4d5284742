#pragma once
/// \file
/// What a shared library of ce shows.

#include "ce/language.hpp"

/// Before a class or a function of the public headers. All else is compiled as hidden. A class of the library's own that
/// lies inside such a class has CE_HIDDEN.
#define CE_API __attribute__((visibility("default")))
#define CE_HIDDEN __attribute__((visibility("hidden")))
