#include "ce/context.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "cache/cache.hpp"
#include "ce/base/error.hpp"
#include "ce/chooser.hpp"
#include "ce/device_name.hpp"
#include "ce/request.hpp"
#include "ce/workspaces.hpp"

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

}  // namespace

struct Context::Impl {
  explicit Impl(const ContextOptions& given)
      : device(open_device(given.device)),
        cache(open_cache(given.database)),
        chooser(*device, cache, settings_for(*device, given), given.policy),
        workspaces(*device, given.capture_bytes),
        status(*device, sizeof(TargetStatus)) {
    device->upload(status.data(), &no_bad_target, sizeof no_bad_target);
  }

  void launch(const Chosen& chosen, const Request& request, Stream stream);
  bool launch_empty(const Request& request, Stream stream);

  std::unique_ptr<runtime::Device> device;
  cache::Cache cache;
  Chooser chooser;
  Workspaces workspaces;
  runtime::Buffer status;
  const Choice empty{
      .config = "", .origin = Origin::fallback, .reason = "no rows: nothing to launch", .key = ""};
};

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
  const Chosen& chosen = impl_->chooser.choose(request.problem, stream);
  impl_->launch(chosen, request, stream);
  return chosen.choice;
}

template <AnyOperation Operation>
Plan Context::prepare(const Operation& operation, const typename Operation::Tensors& tensors, Stream stream) {
  const Request request = bind(operation, tensors, *impl_->device);
  const Chosen* chosen =
      request.problem.rows == 0 ? nullptr : &impl_->chooser.choose(request.problem, stream);
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
int Context::compiled() const noexcept { return impl_->chooser.compiled(); }

}  // namespace ce
