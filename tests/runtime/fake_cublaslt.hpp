#pragma once
/// \file
/// What a test sees of the library in fake_cublaslt.cpp.

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>

/// What was asked of it last.
struct FakeCublasLt {
  std::uint32_t reductions = 0;  ///< the mask of a preference
};

/// Of the library at `path`, which is opened once.
inline FakeCublasLt& fake_cublaslt(const char* path) {
  static auto* const fake = [path] {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void* found = library == nullptr ? nullptr : dlsym(library, "fake_cublaslt_state");
    if (found == nullptr) throw std::runtime_error("no fake cuBLASLt");
    return static_cast<FakeCublasLt*>(found);
  }();
  return *fake;
}
