#include "ce/linear_kernels.hpp"

namespace ce {
namespace {

generator::Problem size_of_launch(const LinearArguments& arguments) {
  return {.rows = arguments.rows, .columns = arguments.columns};
}

}  // namespace

void LinearKernels::convert(const void* from, DType from_dtype, void* to, DType to_dtype,
                            std::int64_t elements, Stream stream) {
  if (elements == 0) return;
  const LinearArguments arguments{.input = from, .output = to, .rows = elements};
  launch(Convert{from_dtype, to_dtype}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::divisor(const generator::LinearDivisor& which, const LinearArguments& arguments,
                            Stream stream) {
  launch(which, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::sum_losses(DType loss, const LinearArguments& arguments, Stream stream) {
  launch(SumLosses{loss}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::sum_columns(DType element, const LinearArguments& arguments, Stream stream) {
  launch(SumColumns{element}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::places(DType target, const LinearArguments& arguments, Stream stream) {
  launch(Places{target}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::gather(int unit_bytes, const LinearArguments& arguments, Stream stream) {
  launch(MoveRows{unit_bytes, false}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::scatter(int unit_bytes, const LinearArguments& arguments, Stream stream) {
  launch(MoveRows{unit_bytes, true}, {.rows = arguments.tokens, .columns = arguments.columns}, arguments,
         stream);
}

void LinearKernels::take_statistics(const generator::LinearStatistics& which, const ProductTile& tile,
                                    const LinearStatisticsArguments& arguments, std::int64_t blocks,
                                    Stream stream) {
  launch(TakeStatistics{which, tile.columns, tile.stages, tile.cluster, tile.turns}, {.rows = blocks},
         arguments, stream);
}

namespace {

generator::Problem size_of_launch(const LinearExponentialsArguments& arguments) {
  return {.rows = arguments.call.rows, .columns = arguments.columns};
}

}  // namespace

void LinearKernels::find_references(const generator::LinearStatistics& which,
                                    const LinearExponentialsArguments& arguments, Stream stream) {
  launch(Step{generator::LinearStep::reference, which}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::find_factors(const generator::LinearFactors& which,
                                 const LinearExponentialsArguments& arguments, Stream stream) {
  launch(which, size_of_launch(arguments), arguments, stream);
  launch(Step{generator::LinearStep::scale, which.statistics}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::make_hidden_gradient(const generator::LinearStatistics& which,
                                         const LinearExponentialsArguments& arguments, Stream stream) {
  launch(Step{generator::LinearStep::hidden_gradient, which}, size_of_launch(arguments), arguments, stream);
}

void LinearKernels::add_targets(const generator::LinearStatistics& which, DType weight_grad,
                                const LinearExponentialsArguments& arguments, Stream stream) {
  launch(Step{generator::LinearStep::order, which}, size_of_launch(arguments), arguments, stream);
  launch(AddTargets{which, weight_grad}, size_of_launch(arguments), arguments, stream);
}

generator::Program LinearKernels::program_of(const Key& key) {
  struct Maker {
    generator::Program operator()(const Convert& convert) const {
      return generator::linear_convert(convert.from, convert.to);
    }
    generator::Program operator()(const generator::LinearDivisor& divisor) const {
      return generator::linear_divisor(divisor);
    }
    generator::Program operator()(const SumLosses& sum) const { return generator::linear_loss_sum(sum.loss); }
    generator::Program operator()(const SumColumns& sum) const {
      return generator::linear_column_sums(sum.element);
    }
    generator::Program operator()(const Places& places) const {
      return generator::linear_places(places.target);
    }
    generator::Program operator()(const MoveRows& move) const {
      return move.scatters ? generator::linear_scatter(move.unit_bytes)
                           : generator::linear_gather(move.unit_bytes);
    }
    generator::Program operator()(const TakeStatistics& take) const {
      return generator::linear_statistics(take.which, {take.columns, take.stages, take.cluster, take.turns});
    }
    generator::Program operator()(const Step& step) const {
      return generator::linear_step(step.step, step.which);
    }
    generator::Program operator()(const generator::LinearFactors& factors) const {
      return generator::linear_factors(factors);
    }
    generator::Program operator()(const AddTargets& add) const {
      return generator::linear_weight_gradient(add.which, add.gradient);
    }
  };
  return std::visit(Maker{}, key);
}

template <class Arguments>
void LinearKernels::launch(const Key& key, const generator::Problem& size, const Arguments& arguments,
                           Stream stream) {
  const tuner::Kernel* kernel = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const tuner::Kernel>& known = kernels_[key];
    if (known == nullptr) {
      const generator::Program program = tuner::build_shared(device_, cache_, program_of(key));
      compiled_ += program.compiled;
      known = std::make_unique<const tuner::Kernel>(device_, program);
    }
    kernel = known.get();
  }
  kernel->launch(size, arguments, stream);
}

}  // namespace ce
