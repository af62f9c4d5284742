#pragma once
/// \file
/// Times work on a stream with events.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/cuda/module.hpp"

namespace ce::runtime::cuda {

/// An event that can be timed; destroyed with its owner, in the current context.
class Event {
 public:
  explicit Event(const Driver& driver) : driver_(&driver) {
    CE_CUDA_CHECK(driver, cuEventCreate(&handle_, CU_EVENT_DEFAULT));
  }
  Event(Event&& other) noexcept : driver_(other.driver_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (handle_ != nullptr) static_cast<void>(driver_->cuEventDestroy(handle_));
  }

  void record(CUstream stream) const { CE_CUDA_CHECK(*driver_, cuEventRecord(handle_, stream)); }
  /// Microseconds from `start` to this event; both have completed.
  [[nodiscard]] float since(const Event& start) const {
    float milliseconds = 0;
    CE_CUDA_CHECK(*driver_, cuEventElapsedTime(&milliseconds, start.handle_, handle_));
    return 1000 * milliseconds;
  }

 private:
  const Driver* driver_;
  CUevent handle_ = nullptr;
};

/// Takes samples one at a time, since work that is enqueued behind a kernel makes it longer. A delay kernel before each
/// sample keeps the stream busy while the sample is being enqueued: otherwise the GPU would wait between a start event
/// and its kernel for the host's next call, and a short kernel's time would be the host's launch time. The time of a
/// short kernel also depends on its launch number modulo four (docs/measuring.md has the figures), so samples cycle
/// through the four phases.
class EventTimer {
 public:
  /// \param launches  launches on the stream so far; code that launches on it adds to the number
  EventTimer(std::shared_ptr<const PrimaryContext> context, const Model& model, CUstream stream,
             std::atomic<std::uint64_t>& launches);

  /// Implements Device::time(). The context must be current.
  [[nodiscard]] std::vector<float> time(int samples, const std::function<void()>& before,
                                        const std::function<void()>& timed);

 private:
  void delay(double microseconds);
  void line_up(std::uint64_t phase);

  std::shared_ptr<const PrimaryContext> context_;
  CUstream stream_;
  std::unique_ptr<const CudaModule> delay_module_;  ///< null if the driver cannot compile PTX
  Function delay_;
  std::atomic<std::uint64_t>& launches_;
  std::uint64_t launches_before_ = 0;  ///< launches by before() of the last sample
  double delay_us_ = 500;              ///< delay before the next sample: longer than enqueueing it
};

}  // namespace ce::runtime::cuda
