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

#include "ce/base/floating_environment.hpp"
#include "ce/context.hpp"
#include "ce/device_name.hpp"
#include "runtime/cuda/device.hpp"

namespace ce {
namespace {

/// A Context for each device, made on first use. Finding one takes no lock.
class DefaultContexts {
 public:
  Context& current() {
    const std::size_t index = index_of_thread();
    if (Context* known = contexts_[index].load(std::memory_order_acquire)) return *known;
    const std::lock_guard lock(making_);
    Context* made = contexts_[index].load(std::memory_order_relaxed);
    if (made == nullptr) {
      if (index == gpus_ && !chosen_) warn_of_host_device();
      made = new Context(ContextOptions{.device = name_of(index)});
      contexts_[index].store(made, std::memory_order_release);
    }
    return *made;
  }

  void stop_background() {
    for (const std::atomic<Context*>& context : contexts_)
      if (Context* made = context.load(std::memory_order_acquire)) made->stop_background();
  }

 private:
  /// GPUs by ordinal; behind them what CE_DEVICE names, or the host.
  [[nodiscard]] std::size_t index_of_thread() const {
    if (chosen_) return gpus_;
    if (const auto ordinal = runtime::current_cuda_device()) return static_cast<std::size_t>(*ordinal);
    return 0;  // GPU 0, or behind no GPUs the host
  }
  [[nodiscard]] std::string name_of(std::size_t index) const {
    return index < gpus_ ? fmt::format("cuda:{}", index) : chosen_.value_or("host");
  }

  const std::optional<std::string> chosen_ = device_of_environment();
  /// Not asked for where CE_DEVICE names another: in a child of fork() a driver that its parent used says nothing.
  const std::size_t gpus_ = chosen_ ? 0 : static_cast<std::size_t>(runtime::cuda_device_count());
  std::vector<std::atomic<Context*>> contexts_{gpus_ + 1};
  std::mutex making_;
};

/// Never destroyed, and neither are its Contexts: the driver may be gone before the last static is.
std::atomic<DefaultContexts*> of_process = nullptr;

/// A child of fork() makes its own. Its parent's, whose threads are not there, stay as they are.
[[maybe_unused]] const int watching_forks_of_defaults =
    ::pthread_atfork(nullptr, nullptr, [] { of_process.store(nullptr, std::memory_order_release); });

/// Threads that meet here at first may each make one, of which one stays: they have no Contexts yet.
DefaultContexts& default_contexts() {
  if (DefaultContexts* made = of_process.load(std::memory_order_acquire)) return *made;
  const DefaultFloatingEnvironment environment;  // of the driver, which may be started here
  auto own = std::make_unique<DefaultContexts>();
  DefaultContexts* first = nullptr;
  if (of_process.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel)) return *own.release();
  return *first;
}

void stop_background() {
  if (DefaultContexts* made = of_process.load(std::memory_order_acquire)) made->stop_background();
}

}  // namespace

Context& default_context() {
  Context& current = default_contexts().current();
  // After the driver's own, and so called before it: no thread may tune while it goes.
  static std::atomic_flag registered;
  if (!registered.test_and_set()) std::atexit(stop_background);
  return current;
}

}  // namespace ce
