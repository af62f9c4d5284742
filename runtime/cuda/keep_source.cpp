#include "runtime/cuda/keep_source.hpp"

#include "ce/error.hpp"
#include "runtime/source_folder.hpp"

namespace ce::runtime::cuda {

std::string keep_source(const CompileRequest& request) {
  try {
    return SourceFolder(request).keep();
  } catch (const Error& error) {
    return not_kept(error);
  }
}

}  // namespace ce::runtime::cuda
