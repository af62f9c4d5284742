#include "runtime/cuda/timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "ce/error.hpp"
#include "ce/log.hpp"

namespace ce::runtime::cuda {
namespace {

constexpr const char* delay_text = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry ce_delay(.param .u64 nanoseconds)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [nanoseconds];
  mov.u64 %rd2, %globaltimer;
wait:
  nanosleep.u32 200;
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra wait;
  ret;
}
)";

constexpr double longest_delay_us = 5000;

}  // namespace

EventTimer::EventTimer(std::shared_ptr<const PrimaryContext> context, const Model& model, CUstream stream,
                       std::atomic<std::uint64_t>& launches)
    : context_(std::move(context)), stream_(stream), launches_(launches) {
  // Without the delay kernel, long kernels are still timed well.
  delay_module_ =
      load_own_ptx(context_, model, delay_text, "times of kernels below about 10 us include launch overhead");
  if (delay_module_) delay_ = delay_module_->function("ce_delay");
}

void EventTimer::delay(double microseconds) {
  if (!delay_module_) return;
  auto nanoseconds = static_cast<std::uint64_t>(1000 * microseconds);
  void* parameters[] = {&nanoseconds};
  CE_CUDA_CHECK(context_->driver(),
                cuLaunchKernel(handle_of(delay_), 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr));
  ++launches_;
}

/// Pads the stream with empty kernels so that, after a delay and before(), the next launch has this phase. before() is
/// assumed to launch as many kernels as the last time.
void EventTimer::line_up(std::uint64_t phase) {
  if (!delay_module_) return;
  while ((launches_ + 1 + launches_before_) % launch_phases != phase) delay(0);
}

std::vector<float> EventTimer::time(int samples, const std::function<void()>& before,
                                    const std::function<void()>& timed) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> times;
  if (samples <= 0) return times;
  times.reserve(static_cast<std::size_t>(samples));
  const Event start(context_->driver()), end(context_->driver());
  for (int i = 0; i < samples; ++i) {
    line_up(static_cast<std::uint64_t>(i) % launch_phases);
    delay(delay_us_);
    const auto begin = Clock::now();
    const std::uint64_t launched = launches_;
    before();
    launches_before_ = launches_ - launched;
    start.record(stream_);
    timed();
    end.record(stream_);
    const std::chrono::duration<double, std::micro> enqueueing = Clock::now() - begin;
    CE_CUDA_CHECK(context_->driver(), cuStreamSynchronize(stream_));
    times.push_back(end.since(start));
    // The delay rises at once and falls slowly: a host that was slow once may be slow again.
    delay_us_ = std::clamp(1.5 * enqueueing.count() + 20, delay_us_ / 2, longest_delay_us);
  }
  return times;
}

}  // namespace ce::runtime::cuda
