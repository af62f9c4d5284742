#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/floating_environment.hpp"
#include "ce/check_options.hpp"
#include "ce/context.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "runtime/cuda/device.hpp"

namespace ce {
namespace {

/// A Context for each device, created at first use. Finding one takes no lock.
class DefaultContexts {
 public:
  explicit DefaultContexts(const ContextOptions& options) : options_(options) {}

  Context& current() {
    const std::size_t index = index_of_thread();
    if (Context* known = contexts_[index].load(std::memory_order_acquire)) return *known;
    const std::lock_guard lock(making_);
    Context* made = contexts_[index].load(std::memory_order_relaxed);
    if (made == nullptr) {
      if (index == gpus_ && !chosen_) warn_of_host_device();
      ContextOptions options = options_;
      options.device = name_of(index);
      made = new Context(options);
      contexts_[index].store(made, std::memory_order_release);
    }
    return *made;
  }

  void stop_background() {
    for (const std::atomic<Context*>& context : contexts_)
      if (Context* made = context.load(std::memory_order_acquire)) made->stop_background();
  }

 private:
  [[nodiscard]] static std::optional<std::string> chosen_by(const ContextOptions& options) {
    return options.device.empty() ? device_of_environment() : options.device;
  }
  /// GPUs by ordinal, then the device in the options or CE_DEVICE, or the host.
  [[nodiscard]] std::size_t index_of_thread() const {
    if (chosen_) return gpus_;
    if (const auto ordinal = runtime::current_cuda_device()) return static_cast<std::size_t>(*ordinal);
    return 0;  // GPU 0, or the host if there are no GPUs
  }
  [[nodiscard]] std::string name_of(std::size_t index) const {
    return index < gpus_ ? fmt::format("cuda:{}", index) : chosen_.value_or("host");
  }

  const ContextOptions options_;
  const std::optional<std::string> chosen_ = chosen_by(options_);
  /// Not called if another device is chosen: in a child of fork() a driver that the parent used gives no valid answer.
  const std::size_t gpus_ = chosen_ ? 0 : static_cast<std::size_t>(runtime::cuda_device_count());
  std::vector<std::atomic<Context*>> contexts_{gpus_ + 1};
  std::mutex making_;
};

/// The default Contexts of a process: options alone, until the first use.
struct Defaults {
  ContextOptions options = {};
  std::optional<DefaultContexts> contexts = std::nullopt;
  Defaults* configured = nullptr;  ///< replaced options, which a thread may still be reading
};

/// Never destroyed, like its Contexts: the driver may be gone before the last static is destroyed. Null: no options,
/// and not used yet.
std::atomic<Defaults*> of_process = nullptr;

/// A child of fork() creates its own. Its parent's, whose threads do not exist there, stay as they are.
[[maybe_unused]] const int watching_forks_of_defaults = ::pthread_atfork(nullptr, nullptr, [] {
  const Defaults* of_parent = of_process.load(std::memory_order_acquire);
  if (of_parent != nullptr && of_parent->contexts)
    of_process.store(of_parent->configured, std::memory_order_release);
});

/// The Contexts of this process if it has used one, else null.
DefaultContexts* used_contexts(Defaults* defaults) {
  return defaults != nullptr && defaults->contexts ? &*defaults->contexts : nullptr;
}

/// Threads that meet here at first may each create one, of which the first stays: they have no Contexts yet.
DefaultContexts& default_contexts() {
  Defaults* seen = of_process.load(std::memory_order_acquire);
  if (DefaultContexts* used = used_contexts(seen)) return *used;
  const DefaultFloatingEnvironment environment;  // for the driver, which may be started here
  for (;;) {
    auto own = std::make_unique<Defaults>();
    if (seen != nullptr) own->options = seen->options;
    own->contexts.emplace(own->options);
    own->configured = seen;
    if (of_process.compare_exchange_strong(seen, own.get(), std::memory_order_acq_rel))
      return *own.release()->contexts;
    if (DefaultContexts* used = used_contexts(seen)) return *used;
  }
}

void stop_background() {
  if (DefaultContexts* used = used_contexts(of_process.load(std::memory_order_acquire)))
    used->stop_background();
}

}  // namespace

Context& default_context() {
  Context& current = default_contexts().current();
  // Registered after the driver's handler, and so called before it: no thread may tune while the driver ends.
  static std::atomic_flag registered;
  if (!registered.test_and_set()) std::atexit(stop_background);
  return current;
}

void configure_default_context(const ContextOptions& options) {
  const DefaultFloatingEnvironment environment;
  check_options(options);
  auto own = std::make_unique<Defaults>();
  own->options = options;
  own->configured = of_process.load(std::memory_order_acquire);
  do {
    if (used_contexts(own->configured) != nullptr)
      throw Unsupported(
          "configure_default_context(): an earlier call has already used the default Context; configure it "
          "before the first call");
  } while (!of_process.compare_exchange_weak(own->configured, own.get(), std::memory_order_acq_rel));
  static_cast<void>(own.release());
}

}  // namespace ce
