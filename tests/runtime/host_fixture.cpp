#include "tests/runtime/host_fixture.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"

namespace ce::runtime::testing {

std::unique_ptr<Device> open_with_seed(std::uint64_t seed) {
  const ScopedEnvironment environment("CE_HOST_SEED", std::to_string(seed).c_str());
  return open_host_device();
}

CompileRequest request(std::string text, std::vector<std::string> options) {
  CompileRequest request{.name = "kernel", .text = std::move(text), .options = std::move(options)};
  for (const char* name :
       {"device/device.cuh", "device/host.cuh", "device/half.cuh", "device/host_abi.cuh"}) {
    std::ifstream file(std::filesystem::path(CE_TEMPLATE_DIR) / name);
    EXPECT_TRUE(file.is_open()) << name;
    request.headers[name] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return request;
}

std::string place_of(std::string_view text, std::string_view marker) {
  const std::size_t at = text.find(marker);
  EXPECT_NE(at, std::string_view::npos) << marker;
  return "kernel.cu:" + std::to_string(1 + std::ranges::count(text.substr(0, at), '\n'));
}

FloatKernel::FloatKernel(Device& device, const std::string& text, std::vector<std::string> options)
    : FloatKernel(device, device.compile(request(text, std::move(options)))) {}

FloatKernel::FloatKernel(Device& device, const Binary& binary)
    : device_(device), module_(device.load(binary.image)), function_(module_->function("k")) {}

std::vector<float> FloatKernel::operator()(const Launch& launch) const {
  std::vector<float> values(std::size_t{launch.blocks} * launch.threads);
  const Buffer out(device_, values.size() * sizeof(float));
  const void* arguments = out.data();
  device_.launch(function_, launch, &arguments, sizeof arguments, nullptr);
  device_.download(values.data(), out.data(), out.size());
  return values;
}

std::string device_error(const FloatKernel& kernel, const Launch& launch) {
  try {
    (void)kernel(launch);
  } catch (const DeviceError& error) {
    return error.what();
  }
  ADD_FAILURE() << "the launch did not fail";
  return "";
}

Binary compiled(std::string text, std::vector<std::string> options) {
  return open_host_device()->compile(request(std::move(text), std::move(options)));
}

std::string failure_of(const std::string& text, const Launch& launch) {
  const auto device = open_with_seed(7);
  std::string message = device_error(FloatKernel(*device, text), launch);
  for (const char* part : {"launch of k", "CE_HOST_SEED=7"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  return message;
}

}  // namespace ce::runtime::testing
