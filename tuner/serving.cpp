#include "tuner/serving.hpp"

#include <array>

#include "tuner/verify/verify.hpp"

namespace ce::tuner {

std::string machine_of(const runtime::Device& device) {
  const runtime::Environment environment = device.environment();
  for (const char* name : {"uuid", "host"})
    if (const auto found = environment.find(name); found != environment.end()) return found->second;
  return device.model().key();
}

bool is_verified(const runtime::Device& device, const cache::Cache& cache, const Kernel& kernel) {
  return cache.is_verified(kernel.compile_key(), machine_of(device));
}

std::optional<std::string> verify_once(runtime::Device& device, cache::Cache& cache,
                                       const generator::Problem& problem, const Kernel& kernel,
                                       std::uint64_t seed) {
  if (is_verified(device, cache, kernel)) return std::nullopt;
  if (auto wrong = Verifier(device, problem, seed).mismatch(kernel)) return wrong;
  cache.keep_verified(std::array{kernel.compile_key()}, machine_of(device));
  return std::nullopt;
}

}  // namespace ce::tuner
