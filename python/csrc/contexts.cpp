#include "python/csrc/contexts.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "python/csrc/torch_memory.hpp"

namespace ce_torch {
namespace {

constexpr int most_devices = 64;

struct Options {
  ce_context_options values = CE_CONTEXT_OPTIONS_INIT;
  std::string database;
};

/// It is never destroyed: a thread may still call when the program ends.
class Contexts {
 public:
  static Contexts& get() {
    static auto* contexts = new Contexts;
    return *contexts;
  }

  [[nodiscard]] ce_context* of(int device) {
    if (device < host || device >= most_devices)
      throw std::runtime_error("ce: device is " + std::to_string(device) + "; expected a GPU's index below " +
                               std::to_string(most_devices));
    ce_context* known = contexts_[slot(device)].load(std::memory_order_acquire);
    return known != nullptr ? known : make(device);
  }

  void configure(const ce_context_options& options) {
    const std::lock_guard lock(mutex_);
    options_.database = options.database == nullptr ? "" : options.database;
    options_.values = options;
    for (std::size_t slot = 0; slot < contexts_.size(); ++slot)
      if (ce_context* old = contexts_[slot].exchange(nullptr)) {
        ce_stop_background(old);
        replaced_.emplace_back(slot, old);
      }
  }

  /// All contexts of a device, the replaced ones first.
  [[nodiscard]] std::vector<ce_context*> known(int device) {
    const std::lock_guard lock(mutex_);
    std::vector<ce_context*> all;
    for (const auto& [slot_of_device, context] : replaced_)
      if (slot_of_device == slot(device)) all.push_back(context);
    if (ce_context* context = contexts_[slot(device)].load()) all.push_back(context);
    return all;
  }

  void shut_down() {
    const std::lock_guard lock(mutex_);
    for (std::atomic<ce_context*>& context : contexts_) ce_context_destroy(context.exchange(nullptr));
    for (const auto& [slot_of_device, context] : replaced_) ce_context_destroy(context);
    replaced_.clear();
  }

  /// Runs in the child of fork(), which cannot use its parent's contexts. Another thread of the parent may have held
  /// the lock.
  static void forget() {
    Contexts& all = get();
    new (&all.mutex_) std::mutex;
    for (std::atomic<ce_context*>& context : all.contexts_) context = nullptr;
    all.replaced_.clear();
  }

 private:
  Contexts() { pthread_atfork(nullptr, nullptr, forget); }

  static std::size_t slot(int device) { return static_cast<std::size_t>(std::int64_t{device} + 1); }

  ce_context* make(int device) {
    const std::lock_guard lock(mutex_);
    std::atomic<ce_context*>& context = contexts_[slot(device)];
    if (ce_context* known = context.load()) return known;
    const std::string name = device == host ? "host" : "cuda:" + std::to_string(device);
    ce_context_options options = options_.values;
    options.device = name.c_str();
    options.database = options_.database.c_str();
    if (device != host) {
      options.allocate = allocate;
      options.release = release;
      options.allocator_state = reinterpret_cast<void*>(static_cast<std::intptr_t>(device));
    }
    ce_context* made = nullptr;
    require(ce_context_create(&options, &made));
    context.store(made, std::memory_order_release);
    return made;
  }

  std::mutex mutex_;  ///< guards everything but reads of contexts_
  Options options_;
  std::array<std::atomic<ce_context*>, most_devices + 1> contexts_{};
  std::vector<std::pair<std::size_t, ce_context*>> replaced_;  ///< with their slots
};

}  // namespace

ce_context* context_of(int device) { return Contexts::get().of(device); }

void require(ce_status status) {
  if (status == CE_STATUS_SUCCESS) return;
  const std::string message = std::string("ce: ") + ce_last_error();
  switch (status) {
    case CE_STATUS_INVALID_ARGUMENT: throw std::invalid_argument(message);
    case CE_STATUS_TARGET_OUT_OF_RANGE: throw std::out_of_range(message);
    case CE_STATUS_OUT_OF_HOST_MEMORY: throw std::bad_alloc();
    default: throw std::runtime_error(message);
  }
}

namespace {

struct LastRefusal {
  Refusal refusal = Refusal::none;
  std::string message;
};
thread_local LastRefusal last_refusal;

}  // namespace

void refuse(Refusal refusal, const std::string& message) {
  last_refusal = {refusal, "ce: " + message};
  if (refusal == Refusal::index_error) throw std::out_of_range(last_refusal.message);
  if (refusal == Refusal::out_of_memory) throw std::runtime_error(last_refusal.message);
  throw std::invalid_argument(last_refusal.message);
}

}  // namespace ce_torch

using namespace ce_torch;

int32_t ce_torch_last_refusal(const char** message) {
  *message = last_refusal.message.c_str();
  return static_cast<int32_t>(last_refusal.refusal);
}

ce_status ce_torch_configure(const ce_context_options* options) {
  Contexts::get().configure(*options);
  return CE_STATUS_SUCCESS;
}

ce_context* ce_torch_context(int32_t device) {
  try {
    return context_of(device);
  } catch (const std::exception&) {
    return nullptr;
  }
}

ce_status ce_torch_check(int32_t device) {
  for (ce_context* context : Contexts::get().known(device))
    if (const ce_status status = ce_check_all(context, nullptr); status != CE_STATUS_SUCCESS) return status;
  return CE_STATUS_SUCCESS;
}

int64_t ce_torch_allocated(int32_t device) { return allocated(device); }

void ce_torch_shutdown(void) { Contexts::get().shut_down(); }
