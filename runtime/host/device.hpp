#pragma once
/// \file
/// The host as a device: it runs the same kernels, compiled by the system's C++ compiler, with each thread as a fiber.
/// It shows whether a kernel is right. Its times say nothing about a GPU.

#include <memory>

#include "runtime/device.hpp"

namespace ce::runtime {

/// Always succeeds; only compile() and compiler() need a C++ compiler (CE_HOST_COMPILER, else c++, g++ or clang++). The
/// order in which threads run follows from a seed, CE_HOST_SEED or a fixed one, so every run can be repeated. Launches
/// are synchronous and ignore their stream. \throws InvalidArgument if CE_HOST_SEED or CE_COMPILE_TIMEOUT is not a
/// number
[[nodiscard]] std::unique_ptr<Device> open_host_device();

}  // namespace ce::runtime
