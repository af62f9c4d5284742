#pragma once
/// \file
/// The language that the public headers are written in.

#if __cplusplus < 202002L
#error "ce needs C++20: compile with -std=c++20 or later (g++ 11, clang 14, nvcc 13.0 or later)"
// A file that does not exist ends the compilation: what follows would be errors about the syntax of C++20.
#define CE_END_OF_COMPILATION "ce needs C++20"
#include CE_END_OF_COMPILATION
#endif
