#include "runtime/cuda/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <type_traits>

#include "base/environment.hpp"
#include "base/made_once.hpp"
#include "ce/error.hpp"

namespace ce::runtime::cuda {
namespace {

#define CE_CUDA_TEXT_(name) #name
#define CE_CUDA_TEXT(name) CE_CUDA_TEXT_(name)

/// The first required symbol that the library lacks, or an empty string.
std::string bind(void* library, Driver& driver) {
  std::string missing;
  const auto find = [&](auto& member, const char* symbol, bool required) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, symbol));
    if (member == nullptr && required && missing.empty()) missing = symbol;
  };
  // Version 2 came with CUDA 12.8 and has the same signature as version 1, so an older driver's function works.
  find(driver.cuEventElapsedTime, "cuEventElapsedTime", false);
  const auto elapsed = driver.cuEventElapsedTime;
#define CE_CUDA_FIND_REQUIRED(name) find(driver.name, CE_CUDA_TEXT(name), true);
#define CE_CUDA_FIND_OPTIONAL(name) find(driver.name, CE_CUDA_TEXT(name), false);
  CE_CUDA_OPTIONAL(CE_CUDA_FIND_OPTIONAL)
  CE_CUDA_REQUIRED(CE_CUDA_FIND_REQUIRED)
#undef CE_CUDA_FIND_REQUIRED
#undef CE_CUDA_FIND_OPTIONAL
  if (driver.cuEventElapsedTime == nullptr && elapsed != nullptr) {
    driver.cuEventElapsedTime = elapsed;
    if (missing == CE_CUDA_TEXT(cuEventElapsedTime)) missing.clear();
  }
  return missing;
}

Driver::Opened open() {
  const std::string library_name = environment_variable("CE_LIBCUDA").value_or("libcuda.so.1");
  // Never closed: the driver runs threads and exit handlers of its own.
  void* library = dlopen(library_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return {nullptr,
            library_name == "libcuda.so.1"
                ? fmt::format("libcuda.so.1 cannot be loaded ({})", reason == nullptr ? "not found" : reason)
                : fmt::format("{}, which CE_LIBCUDA names instead of libcuda.so.1, cannot be loaded",
                              library_name)};
  }
  auto driver = std::make_unique<Driver>();
  if (const std::string missing = bind(library, *driver); !missing.empty())
    return {nullptr, fmt::format("the driver is too old: {} has no function {}", library_name, missing)};
  const CUresult result = driver->cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) return {nullptr, "cuInit: the machine has no GPU"};
  if (result != CUDA_SUCCESS) return {nullptr, fmt::format("cuInit: {}", driver->describe(result))};
  return {std::move(driver), {}};
}

}  // namespace

const Driver::Opened& Driver::get() {
  static constinit MadeOnce<Opened> opened;
  return opened.get(open);
}

std::string Driver::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return fmt::format("CUresult {}", static_cast<int>(result));
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

int Driver::version_number() const {
  int version = 0;
  CE_CUDA_CHECK(*this, cuDriverGetVersion(&version));
  return version;
}

std::string Driver::version() const {
  const int version = version_number();
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void Driver::fail(CUresult result, std::string_view call, SourceLocation where) const {
  fail(result, call, describe(result), where);
}

void Driver::fail(CUresult result, std::string_view call, std::string_view message,
                  SourceLocation where) const {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(call, result, message, where);
  throw DeviceError(call, static_cast<int>(result), message, where);
}

}  // namespace ce::runtime::cuda
