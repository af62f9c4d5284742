#pragma once
/// \file
/// The system's C++ compiler, which compiles kernels for the host device.

#include <chrono>
#include <filesystem>
#include <string>

#include "runtime/device.hpp"

namespace ce::runtime::host {

/// Thread safe: holds nothing but what it found when it was made.
class Compiler {
 public:
  /// Takes the compiler that CE_HOST_COMPILER names (a path, or a name on PATH), else the first of c++, g++
  /// and clang++ on PATH, and asks its version. Finding none is no error until something is to be compiled.
  Compiler();

  [[nodiscard]] bool found() const noexcept { return why_not_.empty(); }
  /// "g++ 12.2.0".
  /// \throws Unsupported where there is no compiler; the message says how to get one
  [[nodiscard]] const std::string& version() const;

  /// Compiles to a shared object. The text stays on disk when it does not compile.
  /// \param limit  the compiler is killed when it takes longer
  /// \throws CompileError, Unsupported (no compiler), InvalidArgument (a header's name leaves the folder)
  [[nodiscard]] Binary compile(const CompileRequest& request,
                               std::chrono::milliseconds limit = std::chrono::minutes(2)) const;

 private:
  std::filesystem::path path_;
  std::string version_;
  std::string why_not_;
};

}  // namespace ce::runtime::host
