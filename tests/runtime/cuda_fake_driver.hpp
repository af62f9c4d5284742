#pragma once
/// \file
/// What a test sees of the driver in cuda_fake_driver.cpp.

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

/// A number that threads may change at once. Orders nothing, so that it hides no race from a sanitizer.
template <class T>
class Relaxed {
 public:
  Relaxed(T value = {}) : value_(value) {}
  Relaxed(const Relaxed& other) : value_(static_cast<T>(other)) {}
  Relaxed& operator=(const Relaxed& other) { return *this = static_cast<T>(other); }
  Relaxed& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator T() const { return value_.load(std::memory_order_relaxed); }
  void operator++() { value_.fetch_add(1, std::memory_order_relaxed); }
  void operator--() { value_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  std::atomic<T> value_;
};

/// What the driver holds and what was asked of it. Counts are of live things.
struct FakeCuda {
  Relaxed<int> primary_contexts = 0, modules = 0, allocations = 0, streams = 0, events = 0;
  Relaxed<int> pushed = 0, popped = 0;
  Relaxed<int> synchronised = 0;
  Relaxed<int> launches = 0;
  Relaxed<std::uint32_t> blocks = 0, threads = 0, cluster = 0, shared_bytes = 0;  ///< of the last launch
  Relaxed<std::uint64_t> argument = 0;  ///< the first 8 bytes of its parameter; 0 without one
  Relaxed<std::uint64_t> lines = 0;     ///< that "ce_reset_eviction_priority" was told of last
  Relaxed<int> delays = 0;              ///< launches of "ce_delay"
  Relaxed<std::uint64_t> delay_ns = 0;  ///< of the last one
  double clock_us = 0;                  ///< advances by 5 with each launch of "work"
  int capability = 90;
  int next_launch_result = 0;
  bool global_capture = false;       ///< as if some thread captured a stream in global mode
  bool legacy_stream_waits = false;  ///< a stream that waits for the default stream is being captured
  void* captured_stream = nullptr;   ///< a stream that is being captured
  int ptx_result = 0;                ///< of what is no cubin
};

/// The calls that one thread has made, by name.
struct FakeCalls {
  std::array<const char*, 64> names{};
  std::size_t count = 0;

  void add(const char* name) noexcept {
    if (count < names.size()) names[count++] = name;
  }
  [[nodiscard]] std::vector<std::string_view> list() const { return {names.begin(), names.begin() + count}; }
};

/// Granules of 2 MiB whose addresses stand for memory of the first GPU, managed, pinned, and of the second.
/// All else is memory that CUDA does not know.
enum FakeGranule : std::uint64_t { of_gpu_0 = 1, managed = 2, pinned = 3, of_gpu_1 = 4 };
[[nodiscard]] inline void* fake_address(FakeGranule granule, std::uint64_t offset = 0) {
  return reinterpret_cast<void*>((granule << 21) + offset);
}

/// What the library exports: the state of the driver, and the calls of the calling thread.
using FakeCudaState = FakeCuda& (*)();
using FakeCudaCalls = FakeCalls& (*)();

/// Of the library with that path. \throws std::runtime_error where it is not the fake driver
template <class Export>
[[nodiscard]] auto& fake_cuda_export(const char* path, const char* symbol) {
  void* library = dlopen(path, RTLD_NOW);
  void* found = library == nullptr ? nullptr : dlsym(library, symbol);
  if (found == nullptr) throw std::runtime_error("no fake driver");
  return reinterpret_cast<Export>(found)();
}
[[nodiscard]] inline FakeCuda& fake_cuda(const char* path) {
  return fake_cuda_export<FakeCudaState>(path, "ce_fake_cuda");
}
[[nodiscard]] inline FakeCalls& fake_cuda_calls(const char* path) {
  return fake_cuda_export<FakeCudaCalls>(path, "ce_fake_cuda_calls");
}
