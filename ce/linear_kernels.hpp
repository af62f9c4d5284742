#pragma once
/// \file
/// The kernels that run around the products of LinearCrossEntropy. Not installed.

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <variant>

#include "cache/cache.hpp"
#include "ce/counters.hpp"
#include "generator/linear.hpp"
#include "runtime/device.hpp"
#include "templates/linear_arguments.cuh"
#include "templates/linear_exponentials_arguments.cuh"
#include "templates/linear_statistics_arguments.cuh"
#include "tuner/kernel.hpp"

namespace ce {

/// Creates each kernel at first use. Thread-safe. All methods enqueue on the stream.
/// \throws CompileError, Unsupported, DeviceError
class LinearKernels {
 public:
  LinearKernels(runtime::Device& device, cache::Cache& cache) : device_(device), cache_(cache) {}

  /// Converts `elements` elements to another dtype.
  void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t elements,
               Stream stream);
  /// \param arguments  target, weight, rows, columns, ignore_index, divisor, scaled_weight
  void divisor(const generator::LinearDivisor& which, const LinearArguments& arguments, Stream stream);
  /// \param arguments  losses, z_losses, rows, loss, z_loss
  void sum_losses(DType loss, const LinearArguments& arguments, Stream stream);
  /// \param arguments  input, output, rows, columns, stride, accumulates
  void sum_columns(DType element, const LinearArguments& arguments, Stream stream);
  /// \param arguments  target, rows, ignore_index, limit, places (with as many elements as columns), numbers, counted
  void places(DType target, const LinearArguments& arguments, Stream stream);
  /// \param unit_bytes  unit of columns and strides
  /// \param arguments   input, output, rows, columns, stride, output_stride, tokens, fill; places, and counted with
  /// limit, or null
  void gather(int unit_bytes, const LinearArguments& arguments, Stream stream);
  /// \param arguments  input, output, rows, columns, stride, output_stride, tokens, fill, numbers, first; counted with limit,
  ///                    or null
  void scatter(int unit_bytes, const LinearArguments& arguments, Stream stream);

  /// \param blocks  number of blocks in the launch
  void take_statistics(const generator::LinearStatistics& which, const ProductTile& tile,
                       const LinearStatisticsArguments& arguments, std::int64_t blocks, Stream stream);

  /// \param arguments  hidden, weight and the rows' members of call; writes reference
  void find_references(const generator::LinearStatistics& which, const LinearExponentialsArguments& arguments,
                       Stream stream);
  /// \param arguments  also exponentials, maxima and statistics; writes row_factor, target_factor, reference and scaled_hidden
  void find_factors(const generator::LinearFactors& which, const LinearExponentialsArguments& arguments,
                    Stream stream);
  /// \param arguments  also product; writes hidden_grad
  void make_hidden_gradient(const generator::LinearStatistics& which,
                            const LinearExponentialsArguments& arguments, Stream stream);
  /// \param arguments  writes order, and adds to weight_grad
  void add_targets(const generator::LinearStatistics& which, DType weight_grad,
                   const LinearExponentialsArguments& arguments, Stream stream);

  /// Number of compiler runs.
  [[nodiscard]] int compiled() const noexcept { return compiled_; }

 private:
  // Identifies a kernel without generating its text.
  struct Convert {
    DType from, to;
    friend auto operator<=>(const Convert&, const Convert&) = default;
  };
  struct SumLosses {
    DType loss;
    friend auto operator<=>(const SumLosses&, const SumLosses&) = default;
  };
  struct SumColumns {
    DType element;
    friend auto operator<=>(const SumColumns&, const SumColumns&) = default;
  };
  struct Places {
    DType target;
    friend auto operator<=>(const Places&, const Places&) = default;
  };
  struct MoveRows {
    int unit_bytes;
    bool scatters;
    friend auto operator<=>(const MoveRows&, const MoveRows&) = default;
  };
  struct TakeStatistics {
    generator::LinearStatistics which;
    int columns, stages, cluster;  ///< the members of the tile
    bool turns;
    friend auto operator<=>(const TakeStatistics&, const TakeStatistics&) = default;
  };
  struct Step {
    generator::LinearStep step;
    generator::LinearStatistics which;
    friend auto operator<=>(const Step&, const Step&) = default;
  };
  struct AddTargets {
    generator::LinearStatistics which;
    DType gradient;
    friend auto operator<=>(const AddTargets&, const AddTargets&) = default;
  };
  using Key = std::variant<Convert, generator::LinearDivisor, SumLosses, SumColumns, Places, MoveRows,
                           TakeStatistics, Step, generator::LinearFactors, AddTargets>;

  [[nodiscard]] static generator::Program program_of(const Key& key);
  template <class Arguments>
  void launch(const Key& key, const generator::Problem& size, const Arguments& arguments, Stream stream);

  runtime::Device& device_;
  cache::Cache& cache_;
  Compiled compiled_;
  std::mutex mutex_;  ///< guards the members below; kernels keep their addresses
  std::map<Key, std::unique_ptr<const tuner::Kernel>> kernels_;
};

}  // namespace ce
