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
  /// \throws InvalidArgument where CE_COMPILE_TIMEOUT means nothing
  Compiler();

  [[nodiscard]] bool found() const noexcept { return why_not_.empty(); }
  /// "g++ 12.2.0".
  /// \throws Unsupported where there is no compiler; the message says how to get one
  [[nodiscard]] const std::string& version() const;

  /// Compiles to a shared object. The text stays on disk when it does not compile.
  /// A compiler that takes longer than CE_COMPILE_TIMEOUT, else two minutes, is killed. What it has started and left
  /// behind is not waited for.
  /// \throws CompileError; Error(compile) where the compiler did not get to it, or what it left is no whole shared
  /// object; Unsupported (no compiler), InvalidArgument (a header's name leaves the folder)
  [[nodiscard]] Binary compile(const CompileRequest& request) const { return compile(request, limit_); }
  [[nodiscard]] Binary compile(const CompileRequest& request, std::chrono::milliseconds limit) const;

 private:
  std::filesystem::path path_;
  std::string version_;
  std::string why_not_;
  std::chrono::milliseconds limit_;
};

}  // namespace ce::runtime::host
