#pragma once
/// \file
/// NVIDIA's run-time compiler, opened at run time. Needs neither a GPU nor a driver.

#include <memory>
#include <string>
#include <vector>

#include "runtime/device.hpp"

namespace ce::runtime::cuda {

/// Compute capabilities (10 x major + minor) that the kernels are developed and tested for.
inline constexpr int architectures_of_interest[] = {75, 80, 86, 89, 90, 100, 120};

/// One opened NVRTC library. All methods may be called from any thread; NVRTC compiles one text at a time.
class Nvrtc {
 public:
  /// The result of the search for the library.
  struct Opened {
    std::unique_ptr<const Nvrtc> nvrtc;  ///< null if none was found
    std::vector<std::string> tried;      ///< every path that was tried, with the error there
  };

  /// Looks for the library now, in this order: CE_NVRTC (a file or a folder; if it is set, nothing else is tried), the
  /// loader's own path, CUDA_HOME, CUDA_PATH, /usr/local/cuda, and the folders of NVIDIA's Python packages.
  [[nodiscard]] static Opened open();

  /// The result of open() at the first call, kept for the rest of the process.
  [[nodiscard]] static const Opened& shared();
  /// The shared library.
  /// \throws Unsupported naming every path that was tried and how to get NVRTC
  [[nodiscard]] static const Nvrtc& get();
  /// The shared library if code in this process has asked for it already; opens nothing.
  [[nodiscard]] static const Nvrtc* if_opened() noexcept;

  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  /// The path of the library.
  [[nodiscard]] const std::string& path() const noexcept;
  /// "13.0".
  [[nodiscard]] std::string version() const;
  /// Capabilities that it compiles for, in ascending order.
  [[nodiscard]] const std::vector<int>& architectures() const noexcept;
  /// The architectures_of_interest among them.
  [[nodiscard]] std::vector<int> architectures_to_test() const;

  /// The target of compile() for that capability: "sm_90", or, if this NVRTC does not know the capability,
  /// "compute_89", PTX for the nearest lower one, which the driver translates.
  /// \param specific  "sm_90a" in place of "sm_90": CompileRequest::architecture_specific
  /// \throws Unsupported if it knows no capability that low; with specific, if it does not know that very one
  [[nodiscard]] std::string target(int capability, bool specific = false) const;

  /// The reason why it cannot compile even a kernel of three lines, for example missing builtins; empty if it can.
  [[nodiscard]] std::string problem() const;

  /// A cubin or PTX (see target()) of the request's text, compiled as C++20 (C++17 before NVRTC 12).
  /// \throws CompileError with the log; text and headers are then kept in a new folder among the system's temporary
  /// files; Error(compile) if NVRTC itself failed
  [[nodiscard]] Binary compile(const CompileRequest& request, int capability) const;

 private:
  struct Api;
  [[nodiscard]] Binary compile_program(const CompileRequest& request, int capability) const;
  explicit Nvrtc(std::unique_ptr<const Api> api);
  std::unique_ptr<const Api> api_;
};

/// The message of Nvrtc::get() and of `doctor`.
[[nodiscard]] std::string no_nvrtc(const std::vector<std::string>& tried);

}  // namespace ce::runtime::cuda
