#pragma once
/// \file
/// Kernels written in a test, compiled for the host device and run there.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.hpp"
#include "tests/environment.hpp"

namespace ce::runtime::testing {

using test::ScopedEnvironment;

[[nodiscard]] std::unique_ptr<Device> open_with_seed(std::uint64_t seed);

/// A kernel's text with the folder templates/ as its headers.
[[nodiscard]] CompileRequest request(std::string text, std::vector<std::string> options = {});

/// The line, from 1, of the first occurrence: "kernel.cu:7".
[[nodiscard]] std::string place_of(std::string_view text, std::string_view marker);

/// A compiled kernel `k` of which each thread writes one f32 to `arguments.out`.
class FloatKernel {
 public:
  FloatKernel(Device& device, const std::string& text, std::vector<std::string> options = {});
  FloatKernel(Device& device, const Binary& binary);

  /// out[blocks x threads] after a launch.
  [[nodiscard]] std::vector<float> operator()(const Launch& launch) const;

 private:
  Device& device_;
  std::unique_ptr<Module> module_;
  Function function_;
};

/// The message of the DeviceError of a launch; a test failure when there is none.
[[nodiscard]] std::string device_error(const FloatKernel& kernel, const Launch& launch);

[[nodiscard]] Binary compiled(std::string text, std::vector<std::string> options = {});

/// The message of a launch that must fail, with a seed that it must name.
[[nodiscard]] std::string failure_of(const std::string& text, const Launch& launch);

}  // namespace ce::runtime::testing
