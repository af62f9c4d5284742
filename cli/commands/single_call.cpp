#include "cli/commands/single_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "ce/error.hpp"
#include "ce/request.hpp"
#include "ce/statuses.hpp"
#include "cli/commands/config_choice.hpp"
#include "cli/tensor_files.hpp"
#include "templates/arguments.cuh"
#include "tuner/kernel.hpp"
#include "tuner/serving.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;

constexpr Stream stream = nullptr;

/// The tensors of the call in device memory. An output that overwrites an input shares its memory.
class DeviceTensors {
 public:
  DeviceTensors(runtime::Device& device, std::span<const NamedTensor> tensors, const TensorBytes& inputs)
      : device_(device) {
    for (const NamedTensor& tensor : tensors) {
      if (tensor.over.empty()) memory_.emplace(tensor.name, runtime::Buffer(device, tensor.bytes()));
      const runtime::Buffer& buffer = memory_.at(tensor.over.empty() ? tensor.name : tensor.over);
      views_[tensor.name] = {
          .data = buffer.data(), .dtype = tensor.dtype, .rows = tensor.rows, .columns = tensor.columns};
      if (!tensor.written) device.upload(buffer.data(), inputs.at(tensor.name).data(), tensor.bytes());
    }
  }

  /// A view without data if the call has no such tensor.
  [[nodiscard]] Tensor operator[](std::string_view name) const {
    const auto found = views_.find(name);
    return found == views_.end() ? Tensor{} : found->second;
  }

  [[nodiscard]] std::vector<std::byte> download(const NamedTensor& tensor) const {
    std::vector<std::byte> bytes(tensor.bytes());
    device_.download(bytes.data(), views_.at(tensor.name).data, bytes.size());
    return bytes;
  }

 private:
  runtime::Device& device_;
  std::map<std::string, runtime::Buffer> memory_;
  std::map<std::string, Tensor, std::less<>> views_;
};

template <class CrossEntropyOrBackward>
CrossEntropyOrBackward operation_of(const Problem& problem, const Amounts& amounts) {
  CrossEntropyOrBackward operation{.ignore_index = amounts.ignore_index, .reduction = problem.reduction};
  for (std::size_t i = 0; i < amounts.of_options.values.size(); ++i)
    operation.*generator::cross_entropy_options.at(i).of<CrossEntropyOrBackward>() =
        amounts.of_options.values[i];
  return operation;
}

template <class Forward>
Request forward_request(const DeviceTensors& t, const runtime::Device& device) {
  return bind(Forward{}, {.input = t["input"], .output = t["output"]}, device);
}

template <class Backward>
Request backward_request(const DeviceTensors& t, const runtime::Device& device) {
  return bind(Backward{},
              {.output = t["output"], .output_grad = t["output_grad"], .input_grad = t["input_grad"]},
              device);
}

template <class Tensors>
Tensors with_optional(Tensors tensors, const DeviceTensors& t) {
  generator::for_each_optional_tensor<Tensors>(
      [&](const auto& row, auto member) { tensors.*member = t[row.tensor]; });
  return tensors;
}

/// Converts options and tensors to the library's types, and makes the call.
Request request_of(const Problem& problem, const Amounts& amounts, const DeviceTensors& t,
                   const runtime::Device& device) {
  switch (problem.operation) {
    case Operation::softmax: return forward_request<Softmax>(t, device);
    case Operation::log_softmax: return forward_request<LogSoftmax>(t, device);
    case Operation::softmax_backward: return backward_request<SoftmaxBackward>(t, device);
    case Operation::log_softmax_backward: return backward_request<LogSoftmaxBackward>(t, device);
    case Operation::cross_entropy:
      return bind(operation_of<CrossEntropy>(problem, amounts),
                  with_optional(CrossEntropy::Tensors{.logits = t["logits"],
                                                      .target = t["target"],
                                                      .weight = t["weight"],
                                                      .upstream = t["upstream"],
                                                      .loss = t["loss"],
                                                      .grad = t["grad"]},
                                t),
                  device);
    case Operation::cross_entropy_backward:
      return bind(operation_of<CrossEntropyBackward>(problem, amounts),
                  with_optional(CrossEntropyBackward::Tensors{.logits = t["logits"],
                                                              .target = t["target"],
                                                              .weight = t["weight"],
                                                              .lse = t["lse"],
                                                              .upstream = t["upstream"],
                                                              .grad = t["grad"],
                                                              .entropy = t["entropy"]},
                                t),
                  device);
    case Operation::cross_entropy_shard:
    case Operation::cross_entropy_merge:
    case Operation::cross_entropy_shard_backward:
    case Operation::cross_entropy_exchange:
    case Operation::copy:
    case Operation::read:
    case Operation::add: break;
  }
  throw InvalidArgument("--op", generator::name(problem.operation),
                        "an operation of include/ce/operations.hpp, on all classes of one rank");
}

void launch(runtime::Device& device, const tuner::Kernel& kernel, const Request& request) {
  const auto bytes = static_cast<std::size_t>(
      std::max(generator::workspace_bytes(request.problem), std::int64_t{sizeof(Workspace)}));
  const runtime::Buffer workspace(device, bytes),
      partials(device, static_cast<std::size_t>(std::max<std::int64_t>(kernel.partial_bytes(), 1)));
  device.fill(workspace.data(), 0, workspace.size(), stream);
  Statuses statuses(device);

  Arguments arguments = request.arguments;
  arguments.workspace = static_cast<Workspace*>(workspace.data());
  arguments.partials = partials.data();
  arguments.status = statuses.of(stream, request.problem.operation);
  kernel.launch(request.problem, arguments, stream);
  device.synchronize(stream);
  throw_if_any(statuses.take(stream));
}

}  // namespace

tuner::Kernel kernel_of(runtime::Device& device, cache::Cache& cache, const Problem& problem,
                        const generator::Config& config, Verify verify) {
  require_serves(config, problem, device.model());
  tuner::Kernel kernel(device, tuner::build(device, cache, problem, config));
  if (!kernel.fits(problem)) throw not_serving(config, problem, device.model(), "it does not fit the device");
  if (verify == Verify::once)
    if (const auto wrong = tuner::verify_once(device, cache, problem, kernel, tuner::Settings{}.seed))
      throw Error(ErrorKind::verification,
                  fmt::format("the answer of {} for {} is wrong on this machine: {}",
                              generator::to_text(config), generator::title(problem), *wrong));
  return kernel;
}

TensorBytes call_once(runtime::Device& device, const Problem& problem, const Amounts& amounts,
                      const KernelChoice& choose, const TensorBytes& inputs) {
  const std::vector<NamedTensor> tensors = tensors_of(problem);
  const DeviceTensors memory(device, tensors, inputs);
  const Request request = [&] {
    try {
      return request_of(problem, amounts, memory, device);
    } catch (const InvalidArgument& error) {
      throw of_option(error);
    }
  }();
  launch(device, choose(request.problem), request);
  TensorBytes outputs;
  for (const NamedTensor& tensor : tensors)
    if (tensor.written) outputs[tensor.name] = memory.download(tensor);
  return outputs;
}

}  // namespace ce::cli
