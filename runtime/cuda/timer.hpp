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
  /// From `start` to this event, in microseconds; both have happened.
  [[nodiscard]] float since(const Event& start) const {
    float milliseconds = 0;
    CE_CUDA_CHECK(*driver_, cuEventElapsedTime(&milliseconds, start.handle_, handle_));
    return 1000 * milliseconds;
  }

 private:
  const Driver* driver_;
  CUevent handle_ = nullptr;
};

/// Takes samples one at a time, since what is enqueued behind a kernel makes it longer. Each comes after a kernel that
/// keeps the stream busy while the sample is being enqueued: otherwise the GPU waits between a start event and its
/// kernel for the host's next call, and a short kernel would be measured as the host's launch time. Which of four launches
/// it begins with moves a short kernel, too (docs/measuring.md has by how much), so samples begin with one after the other.
class EventTimer {
 public:
  /// \param launches  on the stream so far; code that launches something on it adds to them
  EventTimer(std::shared_ptr<const PrimaryContext> context, const Model& model, CUstream stream,
             std::atomic<std::uint64_t>& launches);

  /// As Device::time(). The context is current.
  [[nodiscard]] std::vector<float> time(int samples, const std::function<void()>& before,
                                        const std::function<void()>& timed);

 private:
  void delay(double microseconds);
  void line_up(std::uint64_t place);

  std::shared_ptr<const PrimaryContext> context_;
  CUstream stream_;
  std::unique_ptr<const CudaModule> delay_module_;  ///< null where the driver cannot compile PTX
  Function delay_;
  std::atomic<std::uint64_t>& launches_;
  std::uint64_t launches_before_ = 0;  ///< of before() of the last sample
  double delay_us_ = 500;              ///< before the next sample: longer than enqueueing it takes
};

}  // namespace ce::runtime::cuda
