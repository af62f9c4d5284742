#pragma once
/// \file
/// The internal form of a call. Not installed.

#include <cstddef>
#include <cstring>

#include "ce/context.hpp"
#include "ce/error.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"
#include "generator/operations/cross_entropy_rules.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce {

/// A checked call. Apart from `arguments` and the properties that ce/known_call.hpp compares, it does not depend on the
/// tensors' addresses.
struct Request {
  generator::Problem problem;
  Arguments arguments{};  ///< workspace, partials and status are not set
};

/// Checks options and tensors completely and turns them into a Request.
/// \throws InvalidArgument
[[nodiscard]] Request bind(const Softmax& operation, const Softmax::Tensors& tensors,
                           const runtime::Device& device);
[[nodiscard]] Request bind(const LogSoftmax& operation, const LogSoftmax::Tensors& tensors,
                           const runtime::Device& device);
[[nodiscard]] Request bind(const SoftmaxBackward& operation, const SoftmaxBackward::Tensors& tensors,
                           const runtime::Device& device);
[[nodiscard]] Request bind(const LogSoftmaxBackward& operation, const LogSoftmaxBackward::Tensors& tensors,
                           const runtime::Device& device);
[[nodiscard]] Request bind(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors,
                           const runtime::Device& device);
[[nodiscard]] Request bind(const CrossEntropyBackward& operation,
                           const CrossEntropyBackward::Tensors& tensors, const runtime::Device& device);

[[nodiscard]] Request bind(const CrossEntropyShard& operation, const CrossEntropyShard::Tensors& tensors,
                           const runtime::Device& device);
[[nodiscard]] Request bind(const CrossEntropyMerge& operation, const CrossEntropyMerge::Tensors& tensors,
                           const runtime::Device& device);
[[nodiscard]] Request bind(const CrossEntropyShardBackward& operation,
                           const CrossEntropyShardBackward::Tensors& tensors, const runtime::Device& device);
[[nodiscard]] Request bind(const CrossEntropyExchange& operation,
                           const CrossEntropyExchange::Tensors& tensors, const runtime::Device& device);

/// bind() whose errors name the operation.
/// \throws InvalidArgument
template <AnyOperation Operation>
[[nodiscard]] Request bind_named(const Operation& operation, const typename Operation::Tensors& tensors,
                                 const runtime::Device& device) {
  try {
    return bind(operation, tensors, device);
  } catch (const InvalidArgument& error) {
    throw error.in(Operation::name);
  }
}

/// Sets the addresses of a call's tensors; null for those not given.
inline void set_addresses(const Softmax::Tensors& tensors, Arguments& arguments) noexcept {
  arguments.input = tensors.input.data;
  arguments.output = tensors.output.data;
}
inline void set_addresses(const LogSoftmax::Tensors& tensors, Arguments& arguments) noexcept {
  arguments.input = tensors.input.data;
  arguments.output = tensors.output.data;
}
inline void set_addresses(const SoftmaxBackward::Tensors& tensors, Arguments& arguments) noexcept {
  arguments.input = tensors.output_grad.data;
  arguments.second = tensors.output.data;
  arguments.output = tensors.input_grad.data;
}
inline void set_addresses(const LogSoftmaxBackward::Tensors& tensors, Arguments& arguments) noexcept {
  arguments.input = tensors.output_grad.data;
  arguments.second = tensors.output.data;
  arguments.output = tensors.input_grad.data;
}

/// Addresses of the logits, their targets and the weights of classes.
template <class Tensors>
void set_logits_addresses(const Tensors& tensors, Arguments& arguments) noexcept {
  const bool probabilities = is_floating(tensors.target.dtype);
  arguments.input = tensors.logits.data;
  arguments.second = probabilities ? tensors.target.data : nullptr;
  arguments.target = probabilities ? nullptr : tensors.target.data;
  arguments.weight = tensors.weight.data;
}
/// Sets the addresses of the optional inputs and outputs. An input may share the member of an output that cannot be
/// asked for together with it.
template <class Tensors>
void set_optional_addresses(const Tensors& tensors, Arguments& arguments) noexcept {
  generator::for_each_optional_tensor<Tensors>([&](const auto& row, auto member) {
    if (const void* data = (tensors.*member).data; data != nullptr)
      std::memcpy(reinterpret_cast<std::byte*>(&arguments) + argument_of(row), &data, sizeof data);
  });
}

inline void set_addresses(const CrossEntropy::Tensors& tensors, Arguments& arguments) noexcept {
  set_logits_addresses(tensors, arguments);
  arguments.output = tensors.grad.data;
  arguments.upstream = tensors.upstream.data;
  arguments.loss = tensors.loss.data;
  set_optional_addresses(tensors, arguments);
}
inline void set_addresses(const CrossEntropyBackward::Tensors& tensors, Arguments& arguments) noexcept {
  set_logits_addresses(tensors, arguments);
  arguments.output = tensors.grad.data;
  arguments.upstream = tensors.upstream.data;
  // The outputs of forward kernels.
  using Flags = generator::CrossEntropyFlags;
  generator::output_of<&Flags::lse_out>(arguments) = const_cast<void*>(tensors.lse.data);
  generator::output_of<&Flags::entropy_out>(arguments) = const_cast<void*>(tensors.entropy.data);
  set_optional_addresses(tensors, arguments);
}

inline void set_addresses(const CrossEntropyShard::Tensors& tensors, Arguments& arguments) noexcept {
  set_logits_addresses(tensors, arguments);
  arguments.statistics_out = static_cast<unsigned*>(tensors.statistics.data);
  set_optional_addresses(tensors, arguments);
}
inline void set_addresses(const CrossEntropyShardBackward::Tensors& tensors, Arguments& arguments) noexcept {
  set_logits_addresses(tensors, arguments);
  arguments.output = tensors.grad.data;
  arguments.statistics = static_cast<const unsigned*>(tensors.statistics.data);
  arguments.upstream = tensors.upstream.data;
  set_optional_addresses(tensors, arguments);
}
inline void set_addresses(const CrossEntropyMerge::Tensors& tensors, Arguments& arguments) noexcept {
  arguments.statistics = static_cast<const unsigned*>(tensors.statistics.data);
  arguments.statistics_out = static_cast<unsigned*>(tensors.merged.data);
  arguments.target = tensors.target.data;
  arguments.weight = tensors.weight.data;
  arguments.loss = tensors.loss.data;
  set_optional_addresses(tensors, arguments);
}

}  // namespace ce
