#pragma once
/// \file
/// cuBLASLt, opened at run time.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ce/source_location.hpp"
#include "runtime/cuda/cublaslt_api.hpp"
#include "runtime/cuda/scope.hpp"
#include "runtime/matmul.hpp"

namespace ce::runtime::cuda {

/// The library's functions, under the names of the API.
struct CublasLt {
#define CE_CUBLASLT_MEMBER(name) lt::name* name = nullptr;
  CE_CUBLASLT_FUNCTIONS(CE_CUBLASLT_MEMBER)
#undef CE_CUBLASLT_MEMBER

  std::string path;

  /// The library, or all paths that were tried and the errors there.
  struct Opened {
    std::unique_ptr<const CublasLt> library;
    std::vector<std::string> tried;
  };
  /// Opened at the first call: the copy that the process has loaded already, else the newest that is found. The
  /// environment variable CE_CUBLASLT names another file or folder.
  [[nodiscard]] static const Opened& shared();

  /// "13.1.0".
  [[nodiscard]] std::string version() const;
  /// \throws DeviceError with the text of any status but success
  void check(lt::Status status, std::string_view call,
             SourceLocation where = SourceLocation::current()) const;
};

/// The device's library of matrix products.
/// \throws Unsupported if there is no cuBLASLt
[[nodiscard]] std::unique_ptr<MatmulLibrary> open_cublaslt(std::shared_ptr<const PrimaryContext> context);

}  // namespace ce::runtime::cuda
