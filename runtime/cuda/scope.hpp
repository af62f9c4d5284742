#pragma once
/// \file
/// Makes a device's context current on a thread, and restores the previous one.

#include <optional>

#include "runtime/cuda/driver.hpp"
#include "runtime/device.hpp"

namespace ce::runtime::cuda {

/// A device's primary context, which the runtime API and PyTorch use, too. It is retained here, so that it lives as
/// long as anything loaded into it.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, CUdevice device) : driver_(driver), device_(device) {
    CE_CUDA_CHECK(driver_, cuDevicePrimaryCtxRetain(&context_, device_));
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  // At process exit the driver may be gone already; then there is nothing to release.
  ~PrimaryContext() { static_cast<void>(driver_.cuDevicePrimaryCtxRelease(device_)); }

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] CUcontext handle() const noexcept { return context_; }

 private:
  const Driver& driver_;
  CUdevice device_;
  CUcontext context_ = nullptr;
};

/// The context that this thread has made current and not left yet; null if not known.
inline constinit thread_local const PrimaryContext* entered = nullptr;

/// Like enter(), but only if the context is current already; otherwise it enters nothing.
[[nodiscard]] inline std::optional<Entry> enter_where_current(const PrimaryContext& context) {
  if (entered == &context) return Entry::inside;
  CUcontext current = nullptr;
  CE_CUDA_CHECK(context.driver(), cuCtxGetCurrent(&current));
  if (current != context.handle()) return std::nullopt;
  entered = &context;
  return Entry::current;
}

/// Makes a context current unless it is current already. Makes no driver call on a thread that is inside already.
/// \returns the argument of leave()
[[nodiscard]] inline Entry enter(const PrimaryContext& context) {
  if (const std::optional<Entry> entry = enter_where_current(context)) return *entry;
  CE_CUDA_CHECK(context.driver(), cuCtxPushCurrent(context.handle()));
  entered = &context;
  return Entry::pushed;
}

/// Restores what was current before.
inline void leave(const PrimaryContext& context, Entry entry) noexcept {
  if (entry == Entry::inside) return;
  entered = nullptr;  // an outer scope of another context asks the driver again
  CUcontext popped = nullptr;
  if (entry == Entry::pushed) static_cast<void>(context.driver().cuCtxPopCurrent(&popped));
}

/// Calls enter(), and leave() at its end.
class ContextScope {
 public:
  explicit ContextScope(const PrimaryContext& context) : context_(context), entry_(enter(context)) {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() { leave(context_, entry_); }

 private:
  const PrimaryContext& context_;
  Entry entry_;
};

/// A ContextScope for calls that allocate, load or wait. While any thread captures a stream in global mode, the driver
/// refuses those calls on every thread and invalidates that capture. A thread avoids this by declaring, as here, that
/// it touches no captured stream.
class BlockingScope {
 public:
  explicit BlockingScope(const PrimaryContext& context) : context_(context), driver_(context.driver()) {
    CE_CUDA_CHECK(driver_, cuThreadExchangeStreamCaptureMode(&mode_));
  }
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;
  ~BlockingScope() { static_cast<void>(driver_.cuThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  ContextScope context_;
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace ce::runtime::cuda
