#include "runtime/cuda/keep_source.hpp"

#include <fmt/format.h>

#include "ce/base/error.hpp"
#include "runtime/source_folder.hpp"

namespace ce::runtime::cuda {

std::string keep_source(const CompileRequest& request) {
  try {
    return SourceFolder(request).keep().string();
  } catch (const Error& error) {
    return fmt::format("nowhere: {}", error.what());
  }
}

}  // namespace ce::runtime::cuda
