#include "tuner/kernel.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>

#include "ce/error.hpp"

namespace ce::tuner {

generator::Limits limits_of(const runtime::Model& model) {
  return {.capability = model.capability,
          .registers_per_multiprocessor = model.registers_per_multiprocessor,
          .shared_bytes_per_block = model.shared_bytes_per_block};
}

Kernel::Kernel(runtime::Device& device, std::span<const Image> images, generator::Program program)
    : device_(&device),
      config_(std::move(program.config)),
      partial_bytes_(program.partial_bytes),
      takes_rows_(program.takes_rows) {
  for (const Image& image : images) modules_.push_back(device.load(image));
  for (const generator::Step& step : program.steps) {
    const runtime::Module& module = *modules_[step.source];
    const runtime::Function function = module.function(step.entry);
    const runtime::Launch launch{.threads = step.threads,
                                 .cluster = step.cluster,
                                 .shared_bytes = step.shared_bytes,
                                 .overlaps = step.overlaps};
    const std::int64_t most = step.persistent ? device.resident_blocks(function, launch)
                                              : std::numeric_limits<std::uint32_t>::max();
    steps_.push_back({&module, function, launch, step.blocks, most, step.persistent});
  }
}

runtime::Launch Kernel::launch_of(const Step& step, const generator::Problem& problem,
                                  std::int64_t most_clusters) const {
  runtime::Launch launch = step.launch;
  std::int64_t most = step.most_blocks;
  if (step.persistent && most_clusters > 0)
    most = std::min(most, most_clusters * static_cast<std::int64_t>(launch.cluster));
  launch.blocks = static_cast<std::uint32_t>(std::min(step.blocks(config_, problem), most));
  return launch;
}

void Kernel::launch(const generator::Problem& problem, const Arguments& arguments, Stream stream,
                    std::int64_t most_clusters) const {
  device_->launch(launches(problem, most_clusters).all(), &arguments, sizeof arguments, stream);
}

Launches Kernel::launches(const generator::Problem& problem, std::int64_t most_clusters) const {
  Launches launches;
  for (const Step& step : steps_) launches.add({step.function, launch_of(step, problem, most_clusters)});
  return launches;
}

bool Kernel::fits(const generator::Problem& problem) const {
  return std::all_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    return step.most_blocks > 0 && device_->fits(step.function, launch_of(step, problem));
  });
}

runtime::Resources Kernel::resources() const {
  runtime::Resources most;
  for (const Step& step : steps_) {
    const runtime::Resources own = step.module->resources(step.function);
    most.registers = std::max(most.registers, own.registers);
    most.local_bytes = std::max(most.local_bytes, own.local_bytes);
    most.shared_bytes = std::max(most.shared_bytes, own.shared_bytes);
  }
  return most;
}

std::string Built::compile_key() const {
  std::string all;
  for (const std::string& key : keys) all += (all.empty() ? "" : " ") + key;
  return all;
}

namespace {

/// Held while a source is compiled. A child of fork() has another one: nobody would unlock its parent's there.
std::mutex& shared_sources() {
  struct OfProcess {
    explicit OfProcess(OfProcess* parent) : of_parent(parent) {}
    const pid_t process = ::getpid();
    OfProcess* const of_parent;
    std::mutex mutex;
  };
  static std::atomic<OfProcess*> latest = nullptr;
  OfProcess* known = latest.load();
  while (known == nullptr || known->process != ::getpid()) {
    auto own = std::make_unique<OfProcess>(known);
    if (latest.compare_exchange_strong(known, own.get())) known = own.release();
  }
  return known->mutex;
}

/// \param own  sources that belong to one config: the others are the same for all, and whoever comes first compiles them
Built build(runtime::Device& device, cache::Cache& cache, generator::Program program, std::size_t own) {
  Built built{.program = std::move(program), .compiler = device.compiler()};
  for (std::size_t i = 0; i < built.program.sources.size(); ++i) {
    const generator::Source& source = built.program.sources[i];
    const std::string& key = built.keys.emplace_back(generator::compile_key(source, built.compiler));
    const bool shared = i >= own;
    const auto lock = shared ? std::unique_lock(shared_sources()) : std::unique_lock<std::mutex>();
    auto image = cache.binary(key);
    if (!image) {
      image = device
                  .compile({.name = source.name,
                            .text = source.text,
                            .headers = source.headers,
                            .architecture_specific = source.architecture_specific})
                  .image;
      ++built.compiled;
      if (shared) cache.keep_binary(key, *image, {.compiler = built.compiler, .name = source.name});
    }
    built.images.push_back(std::move(*image));
  }
  return built;
}

}  // namespace

Built build(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
            const generator::Config& config) {
  return build(device, cache, generator::generate(problem, config), 1);
}

Built build_shared(runtime::Device& device, cache::Cache& cache, generator::Program program) {
  return build(device, cache, std::move(program), 0);
}

Fallback fallback(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
                  std::span<const generator::Config> ranked) {
  constexpr int most_to_pass_over = 3;
  std::optional<Kernel> first;
  std::exception_ptr refusal;
  int compiled = 0, passed_over = 0;
  for (const generator::Config& config : ranked) {
    if (passed_over == most_to_pass_over) break;
    try {
      const Built built = build(device, cache, problem, config);
      compiled += built.compiled;
      Kernel kernel = built.load(device);
      if (!kernel.fits(problem)) continue;
      if (built.compiled > 0) keep(cache, built);
      if (kernel.resources().local_bytes == 0) return {std::move(kernel), compiled};
      if (!first) first.emplace(std::move(kernel));
    } catch (const CompileError&) {
      if (first) break;  // it runs
      if (!refusal) refusal = std::current_exception();
    }
    ++passed_over;
  }
  if (first) return {*std::move(first), compiled};
  if (refusal) std::rethrow_exception(refusal);
  throw Unsupported(fmt::format("no config for {} fits {}", generator::title(problem), device.model().name));
}

void keep(cache::Cache& cache, const Built& built) {
  for (std::size_t i = 0; i < built.images.size(); ++i)
    cache.keep_binary(built.keys[i], built.images[i],
                      {.compiler = built.compiler, .name = built.program.sources[i].name});
}

std::optional<Built> find_built(cache::Cache& cache, const generator::Problem& problem,
                                const generator::Config& config, std::string_view compile_key) {
  Built built{.program = generator::generate(problem, config)};
  std::istringstream keys{std::string(compile_key)};
  for (std::string key; keys >> key;) {
    auto image = cache.binary(key);
    if (!image) return std::nullopt;
    built.images.push_back(std::move(*image));
    built.keys.push_back(std::move(key));
  }
  if (built.images.size() != built.program.sources.size()) return std::nullopt;
  return built;
}

}  // namespace ce::tuner
