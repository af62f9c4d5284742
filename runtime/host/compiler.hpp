#pragma once
/// \file
/// The system's C++ compiler, which compiles kernels for the host device.

#include <chrono>
#include <filesystem>
#include <string>

#include "runtime/device.hpp"

namespace ce::runtime::host {

/// Thread safe: it holds only what it found when it was created.
class Compiler {
 public:
  /// Takes the compiler that CE_HOST_COMPILER names (a path, or a name on PATH), else the first of c++, g++ and clang++
  /// on PATH, and asks its version. A missing compiler is an error only when something is to be compiled.
  /// \throws InvalidArgument for an invalid CE_COMPILE_TIMEOUT
  Compiler();

  [[nodiscard]] bool found() const noexcept { return why_not_.empty(); }
  /// "g++ 12.2.0".
  /// \throws Unsupported if there is no compiler; the message says how to get one
  [[nodiscard]] const std::string& version() const;

  /// Compiles to a shared object. The text stays on disk if it does not compile. A compiler that takes longer than
  /// CE_COMPILE_TIMEOUT, by default two minutes, is killed. Its remaining children are not waited for.
  /// \throws CompileError; Error(compile) if the compiler itself failed, or if its output is not a whole shared
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
