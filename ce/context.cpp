#include "ce/context.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/environment.hpp"
#include "base/floating_environment.hpp"
#include "ce/check_options.hpp"
#include "ce/context_impl.hpp"
#include "ce/counters.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "ce/known_call.hpp"
#include "ce/linear_losses.hpp"
#include "ce/policy.hpp"
#include "ce/stats_file.hpp"

namespace ce {
namespace {

using generator::Problem;

cache::Cache open_cache(const std::string& path) {
  return cache::Cache::open_layered(path.empty() ? cache::Cache::default_path()
                                                 : std::filesystem::path(path));
}

std::unique_ptr<runtime::Device> open_device(const ContextOptions& options) {
  const auto& [allocate, release, state] = options.allocator;
  std::unique_ptr<runtime::Device> device = ce::open_device(options.device);
  device->use({.allocate = allocate, .release = release, .state = state});
  return device;
}

tuner::Settings settings_for(const runtime::Device& device, const ContextOptions& options) {
  tuner::Settings settings = tuner::Settings::for_device(device.model());
  if (options.scratch_bytes > 0) settings.scratch_bytes = options.scratch_bytes;
  if (const std::optional<double> seconds = options.tuning_seconds) {
    constexpr double longest = 1e9;  // clocks can add this many seconds
    settings.budget_s = *seconds < longest ? *seconds : 0;
  }
  return settings;
}

Policy policy_for(const ContextOptions& options) {
  if (options.policy) return *options.policy;
  return policy_of_environment().value_or(Policy::tune);
}

bool takes_any_order(const ContextOptions& options) {
  return number_of_environment("CE_NONDETERMINISTIC_PRODUCTS", 0, 0, 1) == 1 ||
         options.nondeterministic_products;
}

template <AnyOperation Operation>
constinit thread_local KnownCalls<Operation> known_calls;
/// The default Context among this thread's calls.
constinit thread_local Context* latest_default = nullptr;

/// The number of the latest Context; each Context has its own.
constinit std::atomic<std::uint64_t> latest_number = 0;
/// Contexts up to this number belong to processes that forked this one: their threads, and locks of these threads, do
/// not exist here.
constinit std::atomic<std::uint64_t> latest_of_parents = 0;

bool is_of_parent(std::uint64_t number) noexcept {
  return number <= latest_of_parents.load(std::memory_order_relaxed);
}

template <AnyOperation... Operations>
void forget_known_calls() noexcept {
  (known_calls<Operations>.forget_all(), ...);
}

/// Called after fork(), so that calls of known problems need not check which process they are in.
void forget_parents() noexcept {
  latest_of_parents.store(latest_number.load());
  latest_default = nullptr;
  forget_known_calls<Softmax, LogSoftmax, SoftmaxBackward, LogSoftmaxBackward, CrossEntropy,
                     CrossEntropyBackward, CrossEntropyShard, CrossEntropyMerge, CrossEntropyShardBackward,
                     CrossEntropyExchange>();
}
[[maybe_unused]] const int watching_forks = ::pthread_atfork(nullptr, nullptr, forget_parents);

}  // namespace

Context::Impl::Impl(const ContextOptions& given)
    : number(++latest_number),
      device(open_device(given)),
      cache(open_cache(given.database)),
      chooser(*device, cache, settings_for(*device, given), policy_for(given)),
      workspaces(*device, given.capture_bytes),
      statuses(*device),
      linear(*device, cache, policy_for(given) == Policy::tune, settings_for(*device, given).budget_s,
             takes_any_order(given)),
      capture_bytes(given.capture_bytes) {
  start_stats_file();
}

/// All arguments except those that depend on the stream: scratch memory and status.
template <AnyOperation Operation>
Request Context::Impl::bind(const Operation& operation, const typename Operation::Tensors& tensors) {
  require_own_process();
  return bind_named(operation, tensors, *device);
}

void Context::Impl::require_own_process() const {
  if (is_of_parent(number))
    throw Unsupported(
        "this Context belongs to the parent process, which forked this one, and a forked process lacks the "
        "Context's threads; create a new Context in this process, or call ce::run(), which creates one");
}

/// Finds scratch memory and status, then launches.
void Context::Impl::launch_anew(BoundKernel& kernel, Stream stream) {
  const runtime::Session session(*device);
  kernel.make_ready(stream, workspaces, statuses);
  launch_ready(kernel, stream);
}

/// A call without rows: it launches nothing, but a mean of nothing is NaN, and a sum of nothing is 0, with a divisor too.
bool Context::Impl::launch_empty(const Request& request, Stream stream) {
  const Problem& problem = request.problem;
  if (problem.rows != 0) return false;
  if (problem.reduction == Reduction::none) return true;
  constexpr unsigned char nan_byte = 0xff;  // all bits set is NaN in every dtype
  using Flags = generator::CrossEntropyFlags;
  for (void* reduced : {request.arguments.loss, generator::output_of<&Flags::z_loss_out>(request.arguments)})
    if (reduced != nullptr)
      device->fill(reduced, problem.reduction == Reduction::mean && !problem.has.divisor ? nan_byte : 0,
                   static_cast<std::size_t>(size_of(problem.loss_dtype)), stream);
  return true;
}

void* Context::Impl::memory_of_ranks(Stream stream, const void* output, std::int64_t words) {
  std::call_once(ranks_began, [&] {
    if (stream != nullptr && device->capturing(stream))
      throw Unsupported(
          "the first call with classes shared by ranks is being captured into a graph, but it must allocate "
          "memory; make one such call before the capture");
    of_ranks.emplace(*device, capture_bytes);
  });
  return of_ranks->get(stream, output, 4 * words).memory;
}

// ---- Memory --------------------------------------------------------------------------------------------

struct Memory::Impl {
  std::uint64_t context;
  runtime::Device* device;
  runtime::Buffer buffer;
};

namespace {

void require_host_memory(const char* name, const void* data, std::size_t bytes) {
  if (data == nullptr && bytes > 0)
    throw InvalidArgument(name, "null", fmt::format("{} bytes of host memory", bytes));
}

}  // namespace

Memory::Memory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Memory::Memory(Memory&&) noexcept = default;
Memory& Memory::operator=(Memory&&) noexcept = default;
/// In a child of fork() the memory is leaked, like its Context.
Memory::~Memory() {
  if (impl_ && is_of_parent(impl_->context)) static_cast<void>(impl_.release());
}

void* Memory::data() const noexcept { return impl_->buffer.data(); }
std::size_t Memory::bytes() const noexcept { return impl_->buffer.size(); }
void Memory::upload(const void* from) {
  require_host_memory("from", from, bytes());
  impl_->device->upload(data(), from, bytes());
}

void Memory::download(void* to) const {
  require_host_memory("to", to, bytes());
  impl_->device->download(to, data(), bytes());
}

// ---- Plan ----------------------------------------------------------------------------------------------

struct Plan::Impl {
  Impl(Context::Impl& its_context, const PlanTable::Entry& entry, const Request& request)
      : context(its_context), call(std::in_place_type<BoundKernel>, entry, request) {}
  Impl(Context::Impl& its_context, const Request& without_rows) : context(its_context), call(without_rows) {}

  Context::Impl& context;
  const std::variant<BoundKernel, Request> call;  ///< without rows, nothing is launched

  /// The kernel with scratch memory for one thread and stream: the first that ran.
  struct Ready {
    const void* thread;
    BoundKernel kernel;
  };
  enum class Progress { none, writing, done };
  mutable std::atomic<Progress> progress = Progress::none;
  mutable std::optional<Ready> ready;

  /// A separate function, out of the way of calls that are ready.
  [[gnu::noinline]] void launch_anew(Stream stream) const {
    BoundKernel kernel = std::get<BoundKernel>(call);
    context.launch_anew(kernel, stream);
    auto none = Progress::none;
    if (kernel.is_ready_on(stream) && progress.compare_exchange_strong(none, Progress::writing)) {
      ready = {.thread = this_thread(), .kernel = kernel};
      progress.store(Progress::done, std::memory_order_release);
    }
  }
};

void Plan::run(Stream stream) const {
  count_known_call();
  counting_errors([&] { launch(stream); });
}

void Plan::launch(Stream stream) const {
  const Impl& plan = *impl_;
  Context::Impl& context = plan.context;
  context.require_own_process();
  const auto* bound = std::get_if<BoundKernel>(&plan.call);
  if (bound == nullptr) return static_cast<void>(context.launch_empty(std::get<Request>(plan.call), stream));
  if (bound->is_ready_everywhere()) return context.launch_ready(*bound, stream);
  if (plan.progress.load(std::memory_order_acquire) == Impl::Progress::done &&
      plan.ready->thread == this_thread() && plan.ready->kernel.is_ready_on(stream))
    return context.launch_ready(plan.ready->kernel, stream);
  plan.launch_anew(stream);
}

const Choice& Plan::choice() const noexcept {
  const auto* bound = std::get_if<BoundKernel>(&impl_->call);
  return bound == nullptr ? impl_->context.empty : bound->choice();
}

// ---- Context -------------------------------------------------------------------------------------------

Context::Context(const ContextOptions& options) {
  const DefaultFloatingEnvironment environment;
  check_options(options);
  impl_ = std::make_unique<Impl>(options);
}
/// In a child of fork() it is leaked: the threads of the parent do not exist there.
Context::~Context() {
  const DefaultFloatingEnvironment environment;
  if (impl_ && is_of_parent(impl_->number)) static_cast<void>(impl_.release());
  impl_.reset();
}

template <AnyOperation Operation>
const Choice& Context::run(const Operation& operation, const typename Operation::Tensors& tensors,
                           Stream stream) {
  KnownCalls<Operation>& known = known_calls<Operation>;
  KnownCall<Operation>* call = known.find(impl_->number, operation, tensors, *impl_->device);
  if (call == nullptr) return run_unknown(operation, tensors, stream);
  count_known_call();
  return counting_errors([&]() -> const Choice& {
    impl_->launch(call->kernel, stream);
    return call->kernel.choice();
  });
}

/// The default Context that this thread used last is still the right one if its CUDA context is current.
template <AnyOperation Operation>
const Choice& run(const Operation& operation, const typename Operation::Tensors& tensors, Stream stream) {
  if (latest_default != nullptr)
    if (const runtime::Session session(*latest_default->impl_->device, runtime::Session::WhereCurrent{});
        session)
      return latest_default->run(operation, tensors, stream);
  latest_default = &default_context();
  return latest_default->run(operation, tensors, stream);
}

template <AnyOperation Operation>
const Choice& Context::run_unknown(const Operation& operation, const typename Operation::Tensors& tensors,
                                   Stream stream) {
  const DefaultFloatingEnvironment environment;
  count_call();
  return counting_errors([&]() -> const Choice& {
    const Request request = impl_->bind(operation, tensors);
    if (impl_->launch_empty(request, stream)) return impl_->empty;
    BoundKernel kernel(impl_->chooser.choose(request.problem, stream), request);
    impl_->launch_anew(kernel, stream);
    const Choice& choice = kernel.choice();
    if (!choice.provisional) known_calls<Operation>.add(impl_->number, tensors, {operation, tensors, kernel});
    return choice;
  });
}

template <AnyOperation Operation>
Plan Context::prepare(const Operation& operation, const typename Operation::Tensors& tensors, Stream stream) {
  const DefaultFloatingEnvironment environment;
  count_call();
  return counting_errors([&] {
    const Request request = impl_->bind(operation, tensors);
    if (request.problem.rows == 0) return Plan(std::make_shared<const Plan::Impl>(*impl_, request));
    const PlanTable::Entry& entry = impl_->chooser.choose(request.problem, stream);
    return Plan(std::make_shared<const Plan::Impl>(*impl_, entry, request));
  });
}

// Also instantiated for ranks.cpp.
#define CE_INSTANTIATE(Operation)                                                                      \
  template Request Context::Impl::bind<Operation>(const Operation&, const Operation::Tensors&);        \
  template const Choice& Context::run<Operation>(const Operation&, const Operation::Tensors&, Stream); \
  template const Choice& run<Operation>(const Operation&, const Operation::Tensors&, Stream);          \
  template Plan Context::prepare<Operation>(const Operation&, const Operation::Tensors&, Stream)
CE_INSTANTIATE(Softmax);
CE_INSTANTIATE(LogSoftmax);
CE_INSTANTIATE(SoftmaxBackward);
CE_INSTANTIATE(LogSoftmaxBackward);
CE_INSTANTIATE(CrossEntropy);
CE_INSTANTIATE(CrossEntropyBackward);
CE_INSTANTIATE(CrossEntropyShard);
CE_INSTANTIATE(CrossEntropyMerge);
CE_INSTANTIATE(CrossEntropyShardBackward);
CE_INSTANTIATE(CrossEntropyExchange);
#undef CE_INSTANTIATE

void Context::use(std::string_view key, std::string_view config) {
  impl_->require_own_process();
  impl_->chooser.use(std::string(key), std::string(config));
}

namespace {

void require_not_captured(const runtime::Device& device, Stream stream) {
  if (device.capturing(stream))
    throw Unsupported(
        "Context::check() has to wait for the stream, but the stream is being captured into a graph; call it "
        "after the capture");
}

}  // namespace

void Context::Impl::wait_to_check(Stream stream) {
  require_own_process();
  require_not_captured(*device, stream);
  device->synchronize(stream);
}

void Context::check(Stream stream) {
  impl_->wait_to_check(stream);
  throw_if_any(impl_->statuses.take(stream));
  impl_->peer_memories.check();
}

void Context::check(const Communicator& communicator, Stream stream) {
  impl_->require_own_process();
  require_not_captured(*impl_->device, stream);
  wait_for_ranks(*impl_->device, communicator, stream);
  throw_if_any(impl_->statuses.take(stream));
  impl_->peer_memories.check();
}

void Context::check() {
  impl_->wait_to_check(nullptr);
  throw_if_any(impl_->statuses.take_all());
  impl_->peer_memories.check();
}

void Context::stop_background() {
  if (is_of_parent(impl_->number)) return;
  impl_->chooser.stop_background();
  impl_->cache.checkpoint();
}

void Context::scale_gradient(const Tensor& grad, const ConstTensor& upstream, Stream stream) {
  const DefaultFloatingEnvironment environment;
  impl_->require_own_process();
  try {
    impl_->scaling.run(grad, upstream, stream);
  } catch (const InvalidArgument& error) {
    throw error.in("scale_gradient");
  }
}

namespace {

/// Adds the operation's name to errors about its arguments.
template <class Call>
decltype(auto) as_linear(const Call& call) {
  try {
    return call();
  } catch (const InvalidArgument& error) {
    throw error.in(LinearCrossEntropy::name);
  }
}

}  // namespace

const Choice& Context::run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                           Stream stream) {
  const DefaultFloatingEnvironment environment;
  impl_->require_own_process();
  return as_linear([&]() -> const Choice& { return impl_->linear.run(*this, operation, tensors, stream); });
}

void Context::run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                  const Shard& shard, Stream stream) {
  const DefaultFloatingEnvironment environment;
  impl_->require_own_process();
  as_linear([&] { impl_->linear.run(*this, operation, tensors, shard, stream); });
}

LinearSchedule Context::schedule(const LinearCrossEntropy& operation,
                                 const LinearCrossEntropy::Tensors& tensors) {
  const DefaultFloatingEnvironment environment;
  impl_->require_own_process();
  return as_linear([&] { return impl_->linear.schedule(operation, tensors); });
}

LinearSchedule Context::schedule(const LinearCrossEntropy& operation,
                                 const LinearCrossEntropy::Tensors& tensors, const Shard& shard) {
  const DefaultFloatingEnvironment environment;
  impl_->require_own_process();
  return as_linear([&] { return impl_->linear.schedule(operation, tensors, shard); });
}

const Choice& run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                  Stream stream) {
  return default_context().run(operation, tensors, stream);
}

void run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors, const Shard& shard,
         Stream stream) {
  default_context().run(operation, tensors, shard, stream);
}

PeerMemory Context::peer_memory(const PeerMemory::Options& options) {
  impl_->require_own_process();
  try {
    return PeerMemory(std::make_unique<PeerMemory::Impl>(*impl_->device, impl_->peer_memories, options));
  } catch (const InvalidArgument& error) {
    throw error.in("peer_memory");
  }
}

Memory Context::allocate(std::size_t bytes) {
  impl_->require_own_process();
  runtime::Device& device = *impl_->device;
  return Memory(
      std::make_unique<Memory::Impl>(Memory::Impl{impl_->number, &device, runtime::Buffer(device, bytes)}));
}
void Context::synchronize(Stream stream) {
  impl_->require_own_process();
  impl_->device->synchronize(stream);
}

std::string Context::device_name() const { return impl_->device->name(); }
int Context::compiled() const noexcept {
  return impl_->chooser.compiled() + impl_->scaling.compiled() + impl_->linear.compiled();
}

}  // namespace ce
