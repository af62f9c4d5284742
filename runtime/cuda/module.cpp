#include "runtime/cuda/module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "ce/error.hpp"

namespace ce::runtime::cuda {

int attribute_of(const Driver& driver, CUfunction_attribute which, CUfunction function) {
  int value = 0;
  CE_CUDA_CHECK(driver, cuFuncGetAttribute(&value, which, function));
  return value;
}

CudaModule::CudaModule(std::shared_ptr<const PrimaryContext> context, const Model& model,
                       std::span<const std::byte> image)
    : context_(std::move(context)),
      shared_bytes_per_block_(model.shared_bytes_per_block),
      capability_(model.capability) {
  const Driver& driver = context_->driver();
  const BlockingScope scope(*context_);
  // The driver takes no length: it reads a cubin's length from its header, and PTX up to a NUL.
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (text.empty() || (!text.starts_with("\177ELF") && text.back() != '\0'))
    throw DeviceError("cuModuleLoadDataEx", 0, "the image is neither a cubin nor PTX that ends with a NUL");
  std::array<char, 4096> log = {};
  std::array options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // The driver takes a number in place of the second pointer.
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(std::uintptr_t{log.size() - 1})};
  const CUresult result =
      driver.cuModuleLoadDataEx(&handle_, image.data(), options.size(), options.data(), values.data());
  if (result != CUDA_SUCCESS)
    driver.fail(result, fmt::format("cuModuleLoadDataEx({} bytes)", image.size()),
                fmt::format("{}{}{}", driver.describe(result), log[0] == '\0' ? "" : "\n", log.data()));
}

CudaModule::~CudaModule() {
  try {
    const BlockingScope scope(*context_);
    static_cast<void>(context_->driver().cuModuleUnload(handle_));
  } catch (const Error&) {
    // After the driver has shut down, or a fault has destroyed the context, the module is gone, too.
  }
}

Function CudaModule::function(std::string_view entry) const {
  const Driver& driver = context_->driver();
  const BlockingScope scope(*context_);
  const std::string name(entry);
  CUfunction function = nullptr;
  if (const CUresult result = driver.cuModuleGetFunction(&function, handle_, name.c_str());
      result != CUDA_SUCCESS)
    driver.check(result, fmt::format("cuModuleGetFunction(\"{}\")", name));
  const int shared_bytes =
      shared_bytes_per_block_ - attribute_of(driver, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
  CE_CUDA_CHECK(driver,
                cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes));
  if (capability_ >= 90) {
    // Not every such GPU supports clusters above 8; fits() rejects them there.
    const CUresult result =
        driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (result != CUDA_SUCCESS)
      log_once(LogLevel::debug,
               "clusters of more than 8 blocks are not possible: " + driver.describe(result));
  }
  return {function};
}

Resources CudaModule::resources(Function function) const {
  const Driver& driver = context_->driver();
  const ContextScope scope(*context_);
  const CUfunction handle = handle_of(function);
  return {.registers = attribute_of(driver, CU_FUNC_ATTRIBUTE_NUM_REGS, handle),
          .local_bytes = attribute_of(driver, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, handle),
          .shared_bytes = attribute_of(driver, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle)};
}

std::unique_ptr<const CudaModule> load_own_ptx(const std::shared_ptr<const PrimaryContext>& context,
                                               const Model& model, const std::string& text,
                                               std::string_view consequence) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.c_str());
  try {
    return std::make_unique<const CudaModule>(context, model, std::span(bytes, text.size() + 1));
  } catch (const DeviceError& error) {
    constexpr std::array without_compiler = {CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
                                             CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                                             CUDA_ERROR_JIT_COMPILATION_DISABLED};
    if (std::ranges::find(without_compiler, error.code()) == without_compiler.end()) throw;
    log_once(LogLevel::info, fmt::format("{}: {}", consequence, error.what()));
    return nullptr;
  }
}

}  // namespace ce::runtime::cuda
