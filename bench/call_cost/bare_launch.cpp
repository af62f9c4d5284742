#include "bench/call_cost/bare_launch.hpp"

#include "ce/error.hpp"
#include "generator/config.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/module.hpp"
#include "tests/tuner/device_decorator.hpp"
#include "tuner/tuner.hpp"

namespace ce::bench {

/// Keeps what a Kernel launches instead of launching it.
class BareLaunch::Recorder : public test::DeviceDecorator {
 public:
  Recorder() : DeviceDecorator(runtime::open_cuda_device(0)) {}
  void launch(std::span<const runtime::KernelLaunch> kernels, const void*, std::size_t, Stream) override {
    launches.assign(kernels.begin(), kernels.end());
  }
  std::vector<runtime::KernelLaunch> launches;
};

BareLaunch::BareLaunch(cache::Cache& cache, const Request& request)
    : recorder_(std::make_shared<Recorder>()), arguments_(request.arguments) {
  const generator::Problem& problem = request.problem;
  const tuner::Tuner tuner(*recorder_, cache, {});
  const auto known = tuner.known_winner(problem);
  const auto program =
      known ? tuner::find_built(cache, problem, known->winner.config, known->winner.measurement.compile_key)
            : std::nullopt;
  if (!program) throw NotFound("no winner with binaries for " + generator::title(problem));
  kernel_ = std::make_unique<tuner::Kernel>(*recorder_, *program);

  // Zeroed memory of each kind in a piece of its own, as large as any call here needs.
  constexpr std::size_t piece = std::size_t{1} << 20;
  scratch_ = runtime::Buffer(*recorder_, 3 * piece);
  recorder_->fill(scratch_.data(), 0, scratch_.size(), recorder_->trial_stream());
  recorder_->synchronize(recorder_->trial_stream());
  arguments_.workspace = reinterpret_cast<Workspace*>(scratch_.bytes());
  arguments_.partials = scratch_.bytes() + piece;
  arguments_.status = reinterpret_cast<TargetStatus*>(scratch_.bytes() + 2 * piece);

  kernel_->launch(problem, arguments_, nullptr);
  const bool can_overlap = recorder_->model().capability >= 90;
  for (const auto& [function, launch] : recorder_->launches) {
    Step& step = steps_.emplace_back();
    step.function = runtime::cuda::handle_of(function);
    step.config = {.gridDimX = launch.blocks,
                   .gridDimY = 1,
                   .gridDimZ = 1,
                   .blockDimX = launch.threads,
                   .blockDimY = 1,
                   .blockDimZ = 1,
                   .sharedMemBytes = launch.shared_bytes};
    if (launch.cluster > 1) {
      CUlaunchAttribute& cluster = step.attributes[step.config.numAttrs++];
      cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      cluster.value.clusterDim = {launch.cluster, 1, 1};
    }
    if (launch.overlaps && can_overlap) {
      CUlaunchAttribute& overlap = step.attributes[step.config.numAttrs++];
      overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      overlap.value.programmaticStreamSerializationAllowed = 1;
    }
  }
}

void BareLaunch::operator()(Stream stream) const {
  void* parameters[] = {const_cast<Arguments*>(&arguments_)};
  for (const Step& step : steps_) {
    CUlaunchConfig config = step.config;
    config.hStream = stream;
    config.attrs = const_cast<CUlaunchAttribute*>(step.attributes);
    if (config.numAttrs > 0)
      CE_CUDA_CHECK(driver_, cuLaunchKernelEx(&config, step.function, parameters, nullptr));
    else
      CE_CUDA_CHECK(driver_, cuLaunchKernel(step.function, config.gridDimX, 1, 1, config.blockDimX, 1, 1,
                                            config.sharedMemBytes, stream, parameters, nullptr));
  }
}

}  // namespace ce::bench
