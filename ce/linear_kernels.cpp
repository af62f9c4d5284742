#include "ce/linear_kernels.hpp"

namespace ce {

void LinearKernels::convert(const void* from, DType from_dtype, void* to, DType to_dtype,
                            std::int64_t elements, Stream stream) {
  if (elements == 0) return;
  launch(generator::linear_convert(from_dtype, to_dtype), {.input = from, .output = to, .rows = elements},
         stream);
}

void LinearKernels::divisor(const generator::LinearDivisor& which, const LinearArguments& arguments,
                            Stream stream) {
  launch(generator::linear_divisor(which), arguments, stream);
}

void LinearKernels::sum_losses(DType loss, const LinearArguments& arguments, Stream stream) {
  launch(generator::linear_loss_sum(loss), arguments, stream);
}

void LinearKernels::sum_columns(DType element, const LinearArguments& arguments, Stream stream) {
  launch(generator::linear_column_sums(element), arguments, stream);
}

void LinearKernels::take_statistics(const generator::LinearStatistics& which, const ProductTile& tile,
                                    const LinearStatisticsArguments& arguments, std::int64_t blocks,
                                    Stream stream) {
  launch(generator::linear_statistics(which, tile), {.rows = blocks}, arguments, stream);
}

void LinearKernels::launch(const generator::Program& program, const LinearArguments& arguments,
                           Stream stream) {
  launch(program, {.rows = arguments.rows, .columns = arguments.columns}, arguments, stream);
}

template <class Arguments>
void LinearKernels::launch(const generator::Program& program, const generator::Problem& size,
                           const Arguments& arguments, Stream stream) {
  const tuner::Kernel* kernel = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const tuner::Kernel>& known = kernels_[program.sources.front().name];
    if (known == nullptr) {
      const tuner::Built built = tuner::build_shared(device_, cache_, program);
      compiled_ += built.compiled;
      known = std::make_unique<const tuner::Kernel>(built.load(device_));
    }
    kernel = known.get();
  }
  device_.launch(kernel->launches(size).all(), &arguments, sizeof arguments, stream);
}

}  // namespace ce
