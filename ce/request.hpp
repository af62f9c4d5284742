#pragma once
/// \file
/// A call as the rooms below see it. Not installed.

#include <array>

#include "ce/operations.hpp"
#include "ce/ranks.hpp"
#include "generator/operations/cross_entropy_rules.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce {

/// What a call asks for. Nothing in it depends on the addresses of the tensors beyond `arguments` and what
/// ce/known_call.hpp compares.
struct Request {
  generator::Problem problem;
  Arguments arguments{};  ///< workspace, partials and status are not set
};

/// Checks everything that can be known of options and tensors and turns them into a Request.
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

/// The optional inputs of a call, in the order of generator::cross_entropy_inputs; null for those that it cannot have.
inline std::array<const ConstTensor*, generator::cross_entropy_inputs.size()> inputs_of(
    const CrossEntropy::Tensors& tensors) noexcept {
  return {&tensors.row_weight,       &tensors.row_scale,    &tensors.divisor,
          &tensors.entropy_upstream, &tensors.lse_upstream, nullptr,
          &tensors.given_lse};
}
inline std::array<const ConstTensor*, generator::cross_entropy_inputs.size()> inputs_of(
    const CrossEntropyBackward::Tensors& tensors) noexcept {
  return {&tensors.row_weight,   &tensors.row_scale, &tensors.divisor, &tensors.entropy_upstream,
          &tensors.lse_upstream, &tensors.logprob,   nullptr};
}

inline std::array<const ConstTensor*, generator::cross_entropy_inputs.size()> inputs_of(
    const CrossEntropyMerge::Tensors& tensors) noexcept {
  return {&tensors.row_weight, &tensors.row_scale, &tensors.divisor, nullptr, nullptr, nullptr, nullptr};
}
inline std::array<const ConstTensor*, generator::cross_entropy_inputs.size()> inputs_of(
    const CrossEntropyShard::Tensors& tensors) noexcept {
  return {nullptr, &tensors.row_scale, nullptr, nullptr, nullptr, nullptr, nullptr};
}
inline std::array<const ConstTensor*, generator::cross_entropy_inputs.size()> inputs_of(
    const CrossEntropyShardBackward::Tensors& tensors) noexcept {
  return {&tensors.row_weight,
          &tensors.row_scale,
          &tensors.divisor,
          &tensors.entropy_upstream,
          &tensors.lse_upstream,
          nullptr,
          nullptr};
}

/// The addresses of a call's tensors: null what was not given.
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

/// Of the logits, their targets and the weights of classes.
template <class Tensors>
void set_logits_addresses(const Tensors& tensors, Arguments& arguments) noexcept {
  const bool probabilities = is_floating(tensors.target.dtype);
  arguments.input = tensors.logits.data;
  arguments.second = probabilities ? tensors.target.data : nullptr;
  arguments.target = probabilities ? nullptr : tensors.target.data;
  arguments.weight = tensors.weight.data;
}
/// Of what both operations on cross entropy read and write.
template <class Tensors>
void set_common_addresses(const Tensors& tensors, Arguments& arguments) noexcept {
  set_logits_addresses(tensors, arguments);
  arguments.output = tensors.grad.data;
  arguments.upstream = tensors.upstream.data;
  const auto floats = [](const ConstTensor& tensor) { return static_cast<const float*>(tensor.data); };
  arguments.row_weight = floats(tensors.row_weight);
  arguments.row_scale = floats(tensors.row_scale);
  arguments.divisor = floats(tensors.divisor);
  arguments.entropy_upstream = floats(tensors.entropy_upstream);
  arguments.lse_upstream = floats(tensors.lse_upstream);
  // Of a backward operation, whose kernels only read them.
  arguments.lse = const_cast<float*>(floats(tensors.lse));
  arguments.logprob = const_cast<float*>(floats(tensors.logprob));
  arguments.entropy = const_cast<float*>(floats(tensors.entropy));
}
inline void set_addresses(const CrossEntropy::Tensors& tensors, Arguments& arguments) noexcept {
  set_common_addresses(tensors, arguments);
  if (tensors.given_lse.data != nullptr)  // which kernels only read
    arguments.lse = const_cast<float*>(static_cast<const float*>(tensors.given_lse.data));
  arguments.loss = tensors.loss.data;
  arguments.z_loss = tensors.z_loss_out.data;
  arguments.argmax = static_cast<long long*>(tensors.argmax.data);
  arguments.hit = static_cast<unsigned char*>(tensors.hit.data);
}
inline void set_addresses(const CrossEntropyBackward::Tensors& tensors, Arguments& arguments) noexcept {
  set_common_addresses(tensors, arguments);
}

inline void set_addresses(const CrossEntropyShard::Tensors& tensors, Arguments& arguments) noexcept {
  set_logits_addresses(tensors, arguments);
  arguments.row_scale = static_cast<const float*>(tensors.row_scale.data);
  arguments.statistics_out = static_cast<unsigned*>(tensors.statistics.data);
}
inline void set_addresses(const CrossEntropyShardBackward::Tensors& tensors, Arguments& arguments) noexcept {
  set_logits_addresses(tensors, arguments);
  arguments.output = tensors.grad.data;
  arguments.statistics = static_cast<const unsigned*>(tensors.statistics.data);
  arguments.upstream = tensors.upstream.data;
  arguments.row_weight = static_cast<const float*>(tensors.row_weight.data);
  arguments.row_scale = static_cast<const float*>(tensors.row_scale.data);
  arguments.divisor = static_cast<const float*>(tensors.divisor.data);
  arguments.entropy_upstream = static_cast<const float*>(tensors.entropy_upstream.data);
  arguments.lse_upstream = static_cast<const float*>(tensors.lse_upstream.data);
}
inline void set_addresses(const CrossEntropyMerge::Tensors& tensors, Arguments& arguments) noexcept {
  arguments.statistics = static_cast<const unsigned*>(tensors.statistics.data);
  arguments.statistics_out = static_cast<unsigned*>(tensors.merged.data);
  arguments.target = tensors.target.data;
  arguments.weight = tensors.weight.data;
  arguments.loss = tensors.loss.data;
  arguments.z_loss = tensors.z_loss_out.data;
  arguments.lse = static_cast<float*>(tensors.lse.data);
  arguments.argmax = static_cast<long long*>(tensors.argmax.data);
  arguments.hit = static_cast<unsigned char*>(tensors.hit.data);
  arguments.logprob = static_cast<float*>(tensors.logprob.data);
  arguments.entropy = static_cast<float*>(tensors.entropy.data);
  arguments.row_weight = static_cast<const float*>(tensors.row_weight.data);
  arguments.row_scale = static_cast<const float*>(tensors.row_scale.data);
  arguments.divisor = static_cast<const float*>(tensors.divisor.data);
}

}  // namespace ce
