#pragma once
/// \file
/// The language that the public headers are written in.

#if __cplusplus < 202002L
#error "ce needs C++20: compile with -std=c++20 or later (g++ 11, clang 14, nvcc 13.0 or later)"
// Ends the compilation: what follows would be errors about the syntax of C++20.
#include "ce needs C++20"
#endif
