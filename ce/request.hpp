#pragma once
/// \file
/// A call as the rooms below see it. Not installed.

#include "ce/operations.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce {

struct Request {
  generator::Problem problem;
  Arguments arguments{};  ///< workspace, parts and status are not set
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

}  // namespace ce
