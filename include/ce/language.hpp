#pragma once
/// \file
/// The language that the public headers are written in.

#if __cplusplus < 202002L
#error "ce needs C++20: compile with -std=c++20 or later (g++ 11, clang 14, nvcc 13.0 or later)"
// The missing file ends the compilation here; otherwise the compiler would report the C++20 syntax that follows.
#define CE_END_OF_COMPILATION "ce needs C++20"
#include CE_END_OF_COMPILATION
#endif
