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

Kernel::Kernel(runtime::Device& device, const generator::Program& program)
    : device_(&device),
      config_(program.config),
      compile_key_(program.compile_key()),
      partial_bytes_(program.partial_bytes),
      takes_rows_(program.takes_rows) {
  for (const generator::Source& source : program.sources) modules_.push_back(device.load(source.binary));
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

std::span<const runtime::KernelLaunch> Kernel::launches(const generator::Problem& problem, Launches& room,
                                                        std::int64_t most_clusters) const {
  std::size_t count = 0;
  for (const Step& step : steps_) room.at(count++) = {step.function, launch_of(step, problem, most_clusters)};
  return {room.data(), count};
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

namespace {

/// Locked while a source is compiled. A child of fork() gets its own: no thread there would unlock its parent's.
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

/// \param own  sources that belong to one config; the others are shared by all, and the first caller compiles them
generator::Program build(runtime::Device& device, cache::Cache& cache, generator::Program program,
                         std::size_t own) {
  const std::string compiler = device.compiler();
  for (generator::Source& source : program.sources) {
    source.compiler = compiler;
    source.compile_key = generator::compile_key(source, compiler);
    const bool shared = &source >= program.sources.data() + own;
    const auto lock = shared ? std::unique_lock(shared_sources()) : std::unique_lock<std::mutex>();
    if (auto known = cache.binary(source.compile_key)) {
      source.binary = *std::move(known);
      continue;
    }
    source.binary = device
                        .compile({.name = source.name,
                                  .text = source.text,
                                  .headers = source.headers,
                                  .architecture_specific = source.architecture_specific})
                        .image;
    ++program.compiled;
    if (shared) keep(cache, std::span(&source, 1));
  }
  return program;
}

}  // namespace

generator::Program build(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
                         const generator::Config& config) {
  return build(device, cache, generator::generate(problem, config), 1);
}

generator::Program build_shared(runtime::Device& device, cache::Cache& cache, generator::Program program) {
  return build(device, cache, std::move(program), 0);
}

Unsupported no_config_fits(const generator::Problem& problem, const runtime::Device& device) {
  return Unsupported(fmt::format("no config for {} fits {}", generator::title(problem), device.model().name));
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
      const generator::Program program = build(device, cache, problem, config);
      compiled += program.compiled;
      Kernel kernel(device, program);
      if (!kernel.fits(problem)) continue;
      if (program.compiled > 0) keep(cache, program.sources);
      if (kernel.resources().local_bytes == 0) return {std::move(kernel), compiled};
      if (!first) first.emplace(std::move(kernel));
    } catch (const CompileError&) {
      if (first) break;  // this one runs
      if (!refusal) refusal = std::current_exception();
    }
    ++passed_over;
  }
  if (first) return {*std::move(first), compiled};
  if (refusal) std::rethrow_exception(refusal);
  throw no_config_fits(problem, device);
}

void keep(cache::Cache& cache, std::span<const generator::Source> sources) {
  for (const generator::Source& source : sources)
    cache.keep_binary(source.compile_key, source.binary, {.compiler = source.compiler, .name = source.name});
}

std::optional<generator::Program> find_built(cache::Cache& cache, const generator::Problem& problem,
                                             const generator::Config& config, std::string_view compile_key) {
  generator::Program program = generator::generate(problem, config);
  std::istringstream keys{std::string(compile_key)};
  for (generator::Source& source : program.sources) {
    if (!(keys >> source.compile_key)) return std::nullopt;
    auto binary = cache.binary(source.compile_key);
    if (!binary) return std::nullopt;
    source.binary = *std::move(binary);
  }
  if (std::string more; !(keys >> more).fail()) return std::nullopt;  // the key names other sources
  return program;
}

}  // namespace ce::tuner
