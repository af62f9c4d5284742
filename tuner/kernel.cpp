#include "tuner/kernel.hpp"

#include <algorithm>

namespace ce::tuner {

generator::Limits limits_of(const runtime::Model& model) {
  return {.capability = model.capability,
          .registers_per_multiprocessor = model.registers_per_multiprocessor,
          .shared_bytes_per_block = model.shared_bytes_per_block};
}

Kernel::Kernel(runtime::Device& device, std::span<const std::byte> image, generator::Source source)
    : device_(&device), module_(device.load(image)), config_(std::move(source.config)) {
  for (const generator::Step& step : source.steps)
    steps_.push_back({module_->function(step.entry),
                      {.threads = step.threads, .shared_bytes = step.shared_bytes},
                      step.blocks});
}

void Kernel::launch(const generator::Problem& problem, const Arguments& arguments, Stream stream) const {
  for (const Step& step : steps_) {
    runtime::Launch launch = step.launch;
    launch.blocks = static_cast<std::uint32_t>(step.blocks(config_, problem));
    device_->launch(step.function, launch, &arguments, sizeof arguments, stream);
  }
}

bool Kernel::fits(const generator::Problem& problem) const {
  return std::all_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    runtime::Launch launch = step.launch;
    launch.blocks = static_cast<std::uint32_t>(step.blocks(config_, problem));
    return device_->fits(step.function, launch);
  });
}

runtime::Resources Kernel::resources() const {
  runtime::Resources most;
  for (const Step& step : steps_) {
    const runtime::Resources own = module_->resources(step.function);
    most.registers = std::max(most.registers, own.registers);
    most.local_bytes = std::max(most.local_bytes, own.local_bytes);
    most.shared_bytes = std::max(most.shared_bytes, own.shared_bytes);
  }
  return most;
}

Built build(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
            const generator::Config& config) {
  Built built{.source = generator::generate(problem, config)};
  const std::string compiler = device.compiler();
  built.compile_key = generator::compile_key(built.source, compiler);
  if (auto image = cache.binary(built.compile_key)) {
    built.image = std::move(*image);
    return built;
  }
  const std::string name = generator::code_text(problem) + " " + generator::to_text(config);
  built.image = device.compile({.name = name, .text = built.source.text, .headers = built.source.headers}).image;
  built.compiled = true;
  cache.keep_binary(built.compile_key, built.image, {.compiler = compiler, .name = name});
  return built;
}

}  // namespace ce::tuner
