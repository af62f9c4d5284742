#pragma once
/// \file
/// The launches of a call, made without ce.

#include <memory>
#include <vector>

#include "cache/cache.hpp"
#include "ce/request.hpp"
#include "runtime/cuda/driver.hpp"
#include "tuner/kernel.hpp"

namespace ce::bench {

/// The steps of a problem's winner on GPU 0, each ready for one call of the driver.
class BareLaunch {
 public:
  /// \param request  of a problem whose winner and binaries the database has
  /// \throws NotFound where it has not
  BareLaunch(cache::Cache& cache, const Request& request);

  /// Calls the driver once for each step. The GPU's context must be current.
  void operator()(Stream stream) const;

 private:
  struct Step {
    CUfunction function;
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config;
  };
  class Recorder;

  const runtime::cuda::Driver& driver_ = *runtime::cuda::Driver::get().driver;
  std::shared_ptr<Recorder> recorder_;
  std::unique_ptr<tuner::Kernel> kernel_;
  runtime::Buffer scratch_;
  Arguments arguments_;
  std::vector<Step> steps_;
};

}  // namespace ce::bench
