#include "ce/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <mutex>
#include <utility>

#include "cache/cache.hpp"
#include "ce/base/error.hpp"
#include "ce/base/log.hpp"
#include "ce/device_name.hpp"
#include "ce/plan_table.hpp"
#include "ce/request.hpp"
#include "ce/workspaces.hpp"
#include "generator/source.hpp"
#include "tuner/tuner.hpp"

namespace ce {
namespace {

using generator::Problem;

cache::Cache open_cache(const std::filesystem::path& path) {
  return cache::Cache::open(path.empty() ? cache::Cache::default_path() : path);
}

tuner::Settings settings_for(const runtime::Device& device, const ContextOptions& options) {
  tuner::Settings settings = tuner::Settings::for_device(device.model());
  if (options.scratch_bytes > 0) settings.scratch_bytes = options.scratch_bytes;
  return settings;
}

/// To the boundary that vector accesses need.
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

constexpr TargetStatus no_bad_target{0, std::numeric_limits<long long>::max()};

std::string sentence(const tuner::Report& report, const runtime::Device& device) {
  int wrong = 0;
  for (const auto& [reason, count] : report.quarantined) wrong += count;
  return fmt::format(
      "tuned {} on {}: {} configs ({} quarantined), winner {}, {:.4g} GB/s, {:.1f}% of the ceiling, "
      "took {:.1f} s",
      generator::title(report.problem), device.model().name, report.configs, wrong, report.winner, report.gbs,
      report.share() * 100, report.seconds);
}

}  // namespace

std::string_view name(Origin origin) noexcept {
  switch (origin) {
    case Origin::tuned: return "tuned";
    case Origin::database: return "database";
    case Origin::nearest: return "nearest";
    case Origin::fallback: return "fallback";
  }
  return "?";
}

struct Context::Impl {
  explicit Impl(const ContextOptions& given)
      : options(given),
        device(open_device(given.device)),
        cache(open_cache(given.database)),
        tuner(*device, cache, settings_for(*device, given)),
        workspaces(*device, given.capture_bytes),
        status(*device, sizeof(TargetStatus)) {
    device->upload(status.data(), &no_bad_target, sizeof no_bad_target);
  }

  const Chosen& choose(const Problem& problem, Stream stream);
  std::unique_ptr<Chosen> from_database(const Problem& problem);
  std::unique_ptr<Chosen> from_tuning(const Problem& problem);
  std::unique_ptr<Chosen> without_tuning(const Problem& problem);
  std::unique_ptr<Chosen> load(const Problem& problem, const tuner::Built& built, Choice choice);

  void launch(const Chosen& chosen, const Request& request, Stream stream);
  bool launch_empty(const Request& request, Stream stream);

  ContextOptions options;
  std::unique_ptr<runtime::Device> device;
  cache::Cache cache;
  std::mutex
      tuning;  ///< guards the tuner, and makes threads that meet the same new problem wait for one answer
  tuner::Tuner tuner;
  PlanTable plans;
  Workspaces workspaces;
  runtime::Buffer status;
  std::atomic<int> compiled = 0;
  const Choice empty{
      .config = "", .origin = Origin::fallback, .reason = "no rows: nothing to launch", .key = ""};
};

const Chosen& Context::Impl::choose(const Problem& problem, Stream stream) {
  const Problem bucket = generator::bucketed(problem);
  const Chosen* known = plans.find(bucket);
  if (known != nullptr && !known->provisional) return *known;
  generator::validate(problem);
  const bool may_tune = options.policy == Policy::tune && !device->capturing(stream);
  if (known != nullptr && !may_tune) return *known;

  const std::lock_guard lock(tuning);
  known = plans.find(bucket);  // another thread may have been here meanwhile
  if (known != nullptr && (!known->provisional || !may_tune)) return *known;
  std::unique_ptr<Chosen> chosen = from_database(problem);
  if (!chosen) chosen = may_tune ? from_tuning(problem) : without_tuning(problem);
  return plans.put(bucket, std::move(chosen));
}

std::unique_ptr<Chosen> Context::Impl::load(const Problem& problem, const tuner::Built& built,
                                            Choice choice) {
  compiled += built.compiled;
  if (built.compiled > 0) keep(cache, built);
  choice.config = generator::to_text(built.program.config);
  choice.key = tuner.key(problem).id();
  return std::make_unique<Chosen>(Chosen{built.load(*device), std::move(choice)});
}

std::unique_ptr<Chosen> Context::Impl::from_database(const Problem& problem) {
  const auto decision = tuner.known_winner(problem);
  if (!decision) return nullptr;
  const generator::Config config = generator::parse_config(decision->winner.config);
  auto built = tuner::find_built(cache, problem, config, decision->winner.measurement.compile_key);
  if (!built) built = tuner::build(*device, cache, problem, config);
  return load(problem, *built, {.origin = Origin::database, .reason = decision->reason});
}

std::unique_ptr<Chosen> Context::Impl::from_tuning(const Problem& problem) {
  const tuner::Report report = tuner.tune(problem);
  compiled += report.compiled;
  log(LogLevel::info, sentence(report, *device));
  const tuner::Built built = tuner::build(*device, cache, problem, generator::parse_config(report.winner));
  return load(problem, built, {.origin = Origin::tuned, .reason = report.reason});
}

std::unique_ptr<Chosen> Context::Impl::without_tuning(const Problem& problem) {
  const std::string why =
      options.policy == Policy::tune ? "the stream is being captured" : "the policy is lookup";
  const generator::Limits limits = tuner::limits_of(device->model());
  std::unique_ptr<Chosen> chosen;
  if (const auto near = tuner.nearest_winner(problem))
    chosen = load(problem, tuner::build(*device, cache, problem, *near),
                  {.origin = Origin::nearest, .reason = "won for the nearest known problem; " + why});
  else
    chosen = load(problem, tuner::build(*device, cache, problem, generator::safe_default(problem, limits)),
                  {.origin = Origin::fallback, .reason = "the safe default: nothing is known and " + why});
  chosen->provisional = true;
  return chosen;
}

void Context::Impl::launch(const Chosen& chosen, const Request& request, Stream stream) {
  Arguments arguments = request.arguments;
  arguments.status = static_cast<TargetStatus*>(status.data());
  const std::int64_t own = generator::workspace_bytes(request.problem), parts = chosen.kernel.part_bytes();
  if (own > 0 || parts > 0 || chosen.kernel.takes_rows()) {
    // Parts lie behind the head of a workspace in any case: its counters are zero between calls.
    const std::int64_t start = aligned(std::max(own, std::int64_t{sizeof(Workspace)}));
    arguments.workspace = workspaces.get(stream, start + parts);
    arguments.parts = reinterpret_cast<std::byte*>(arguments.workspace) + start;
  }
  chosen.kernel.launch(request.problem, arguments, stream);
}

/// A call without rows: nothing to launch, but a mean of nothing is NaN and a sum of nothing is 0.
bool Context::Impl::launch_empty(const Request& request, Stream stream) {
  const Problem& problem = request.problem;
  if (problem.rows != 0) return false;
  if (problem.reduction == Reduction::none) return true;
  constexpr unsigned char nan_byte = 0xff;  // all bits set is NaN in every dtype
  for (void* reduced : {request.arguments.loss, request.arguments.z_loss})
    if (reduced != nullptr)
      device->fill(reduced, problem.reduction == Reduction::mean ? nan_byte : 0,
                   static_cast<std::size_t>(size_of(problem.loss_dtype)), stream);
  return true;
}

// ---- Memory --------------------------------------------------------------------------------------------

struct Memory::Impl {
  runtime::Device* device;
  runtime::Buffer buffer;
};

Memory::Memory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Memory::Memory(Memory&&) noexcept = default;
Memory& Memory::operator=(Memory&&) noexcept = default;
Memory::~Memory() = default;

void* Memory::data() const noexcept { return impl_->buffer.data(); }
std::size_t Memory::bytes() const noexcept { return impl_->buffer.size(); }
void Memory::upload(const void* from) { impl_->device->upload(data(), from, bytes()); }
void Memory::download(void* to) const { impl_->device->download(to, data(), bytes()); }

// ---- Plan ----------------------------------------------------------------------------------------------

struct Plan::Impl {
  Context::Impl* context;
  const Chosen* chosen;  ///< null when there are no rows
  Request request;
};

void Plan::run(Stream stream) const {
  if (impl_->chosen == nullptr)
    impl_->context->launch_empty(impl_->request, stream);
  else
    impl_->context->launch(*impl_->chosen, impl_->request, stream);
}

const Choice& Plan::choice() const noexcept {
  return impl_->chosen == nullptr ? impl_->context->empty : impl_->chosen->choice;
}

// ---- Context -------------------------------------------------------------------------------------------

Context::Context(const ContextOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Context::~Context() = default;

template <AnyOperation Operation>
const Choice& Context::run(const Operation& operation, const typename Operation::Tensors& tensors,
                           Stream stream) {
  const Request request = bind(operation, tensors, *impl_->device);
  if (impl_->launch_empty(request, stream)) return impl_->empty;
  const Chosen& chosen = impl_->choose(request.problem, stream);
  impl_->launch(chosen, request, stream);
  return chosen.choice;
}

template <AnyOperation Operation>
Plan Context::prepare(const Operation& operation, const typename Operation::Tensors& tensors, Stream stream) {
  const Request request = bind(operation, tensors, *impl_->device);
  const Chosen* chosen = request.problem.rows == 0 ? nullptr : &impl_->choose(request.problem, stream);
  return Plan(std::make_shared<const Plan::Impl>(Plan::Impl{impl_.get(), chosen, request}));
}

#define CE_INSTANTIATE(Operation)                                                                      \
  template const Choice& Context::run<Operation>(const Operation&, const Operation::Tensors&, Stream); \
  template Plan Context::prepare<Operation>(const Operation&, const Operation::Tensors&, Stream)
CE_INSTANTIATE(Softmax);
CE_INSTANTIATE(LogSoftmax);
CE_INSTANTIATE(SoftmaxBackward);
CE_INSTANTIATE(LogSoftmaxBackward);
CE_INSTANTIATE(CrossEntropy);
CE_INSTANTIATE(CrossEntropyBackward);
#undef CE_INSTANTIATE

void Context::check(Stream stream) {
  if (impl_->device->capturing(stream))
    throw Unsupported("Context::check() has to wait for the stream, which is being captured into a graph");
  TargetStatus found{};
  impl_->device->download(&found, impl_->status.data(), sizeof found, stream);
  impl_->device->synchronize(stream);
  if (found.count == 0) return;
  impl_->device->upload(impl_->status.data(), &no_bad_target, sizeof no_bad_target);
  throw TargetOutOfRange(found.count, found.first_row);
}

Memory Context::allocate(std::size_t bytes) {
  runtime::Device& device = *impl_->device;
  return Memory(std::make_unique<Memory::Impl>(Memory::Impl{&device, runtime::Buffer(device, bytes)}));
}
void Context::synchronize(Stream stream) { impl_->device->synchronize(stream); }

std::string Context::device_name() const { return impl_->device->name(); }
int Context::compiled() const noexcept { return impl_->compiled; }

}  // namespace ce
