// Softmax and log_softmax, and their backward.

#include <string>
#include <utility>
#include <vector>

#include "ce/ce.h"
#include "python/csrc/call.hpp"
#include "python/csrc/contexts.hpp"
#include "python/csrc/operators.hpp"
#include "python/csrc/tensor.hpp"

namespace ce_torch {
namespace {

struct SoftmaxNames {
  static constexpr const char* name = "softmax";
  using Tensors = ce_softmax_tensors;
  static constexpr Tensors none = CE_SOFTMAX_TENSORS_INIT;
  static constexpr auto run = ce_softmax;
};
struct LogSoftmaxNames {
  static constexpr const char* name = "log_softmax";
  using Tensors = ce_log_softmax_tensors;
  static constexpr Tensors none = CE_LOG_SOFTMAX_TENSORS_INIT;
  static constexpr auto run = ce_log_softmax;
};
struct SoftmaxBackwardNames {
  static constexpr const char* name = "softmax_backward";
  using Tensors = ce_softmax_backward_tensors;
  static constexpr Tensors none = CE_SOFTMAX_BACKWARD_TENSORS_INIT;
  static constexpr auto run = ce_softmax_backward;
};
struct LogSoftmaxBackwardNames {
  static constexpr const char* name = "log_softmax_backward";
  using Tensors = ce_log_softmax_backward_tensors;
  static constexpr Tensors none = CE_LOG_SOFTMAX_BACKWARD_TENSORS_INIT;
  static constexpr auto run = ce_log_softmax_backward;
};

template <class Names>
void run_softmax(Tensor&& input, const Tensor& output, std::size_t dim) {
  if (output.elements() == 0) return;
  RowPlan plan{.operation = Names::name, .dim = dim, .any_order = true};
  const Output written(output, "out", plan);
  const Input read(std::move(input), "input", plan);
  typename Names::Tensors tensors = Names::none;
  tensors.input = &read.rows();
  tensors.output = &written.rows();
  require(Names::run(context_of(output.device()), nullptr, &tensors, stream_of(output), nullptr));
  written.finish();
}

/// (Tensor input, int dim) -> Tensor
template <class Names>
void softmax(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor given = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), given, Names::name);
  Tensor output = Tensor::empty_like(given);
  run_softmax<Names>(std::move(given), output, dim);
  give_back(stack, output);
}

/// (Tensor input, int dim, Tensor(a!) out) -> ()
template <class Names>
void softmax_out(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor given = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), given, Names::name);
  const Tensor output = arguments.tensor();
  require_same_device(output, "out", given);
  require_same_sizes(output, given, Names::name, "out");
  run_softmax<Names>(std::move(given), output, dim);
}

/// (Tensor(a!) self, int dim) -> ()
template <class Names>
void softmax_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  const Tensor given = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), given, Names::name);
  if (given.elements() == 0) return;
  RowPlan plan{.operation = Names::name, .dim = dim, .any_order = true};
  const Output written(given, "self", plan, Output::Content::is_read);
  typename Names::Tensors tensors = Names::none;
  tensors.input = tensors.output = &written.rows();
  require(Names::run(context_of(given.device()), nullptr, &tensors, stream_of(given), nullptr));
  written.finish();
}

template <class Names>
void run_softmax_backward(Tensor&& output_grad, Tensor&& output, const Tensor& input_grad, std::size_t dim) {
  if (input_grad.elements() == 0) return;
  require_same_device(output_grad, "grad_output", output);
  require_same_sizes(output_grad, output, Names::name, "grad_output");
  RowPlan plan{.operation = Names::name, .dim = dim, .any_order = true};
  const Output written(input_grad, "grad_input", plan);
  const Input result(std::move(output), "output", plan);
  const Input grad(std::move(output_grad), "grad_output", plan);
  typename Names::Tensors tensors = Names::none;
  tensors.output = &result.rows();
  tensors.output_grad = &grad.rows();
  tensors.input_grad = &written.rows();
  require(Names::run(context_of(input_grad.device()), nullptr, &tensors, stream_of(input_grad), nullptr));
  written.finish();
}

/// (Tensor grad_output, Tensor output, int dim) -> Tensor
template <class Names>
void softmax_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor grad = arguments.tensor(), output = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), output, Names::name);
  Tensor input_grad = Tensor::empty_like(output);
  run_softmax_backward<Names>(std::move(grad), std::move(output), input_grad, dim);
  give_back(stack, input_grad);
}

/// (Tensor grad_output, Tensor output, int dim, Tensor(a!) grad_input) -> ()
template <class Names>
void softmax_backward_out(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor grad = arguments.tensor(), output = arguments.tensor();
  const std::size_t dim = dimension(arguments.integer(), output, Names::name);
  const Tensor input_grad = arguments.tensor();
  require_same_device(input_grad, "grad_input", output);
  require_same_sizes(input_grad, output, Names::name, "grad_input");
  run_softmax_backward<Names>(std::move(grad), std::move(output), input_grad, dim);
}

template <class Forward, class Backward>
void add_softmax(std::vector<Operator>& all) {
  const auto add = [&all](const std::string& name, const char* arguments, const char* returns, Boxed boxed) {
    all.push_back({name, arguments, returns, boxed, boxed});
  };
  const std::string forward = Forward::name, backward = Backward::name;
  add(forward, "Tensor input, int dim", "Tensor", softmax<Forward>);
  add(forward + "_out", "Tensor input, int dim, Tensor(a!) out", "()", softmax_out<Forward>);
  add(forward + "_", "Tensor(a!) self, int dim", "()", softmax_in_place<Forward>);
  add(backward, "Tensor grad_output, Tensor output, int dim", "Tensor", softmax_backward<Backward>);
  add(backward + "_out", "Tensor grad_output, Tensor output, int dim, Tensor(a!) grad_input", "()",
      softmax_backward_out<Backward>);
}

}  // namespace

std::vector<Operator> softmax_operators() {
  std::vector<Operator> all;
  add_softmax<SoftmaxNames, SoftmaxBackwardNames>(all);
  add_softmax<LogSoftmaxNames, LogSoftmaxBackwardNames>(all);
  return all;
}

}  // namespace ce_torch
