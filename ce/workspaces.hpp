#pragma once
/// \file
/// Scratch memory of calls. Not installed.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce {

/// An address that identifies the thread as long as it lives. Faster than its id.
[[nodiscard]] inline const void* this_thread() noexcept {
  static thread_local char its_own = 0;
  return &its_own;
}

/// Calls share a workspace if they cannot run at the same time: those of one thread on one stream that write the same
/// output, including replays of graphs that they were captured into, because a caller that runs two of them at once
/// cannot get a right output. Calls of another thread may come between the kernels of a call, and would overwrite the
/// data that these pass on. So nothing needs to be known about a stream that a thread has used before for an output.
/// Otherwise, captured calls get memory of their own, since no call knows what its graph will run beside. If many
/// outputs or much memory are used, the calls of a thread on a stream that are not captured share a workspace. Memory
/// is zero when it is first handed out, and the kernels leave it zero. None is freed before this object: a graph may
/// still use it. A call whose memory is large enough takes no lock.
class Workspaces {
 public:
  /// \param capture_bytes  bytes reserved for captured calls
  Workspaces(runtime::Device& device, std::int64_t capture_bytes);

  struct Lent {
    Workspace* memory;
    bool stays;  ///< valid for later calls of this thread on the stream with the same output
  };
  /// \param output  an output that no other call may write at the same time
  /// \throws DeviceError when memory is short, Unsupported when the memory reserved for captured calls is used up
  [[nodiscard]] Lent get(Stream stream, const void* output, std::int64_t bytes) {
    const Key key{stream, this_thread(), output};
    if (const Entry* known = find(key, bytes)) return {known->memory, true};
    return add(key, bytes);
  }

 private:
  struct Key {
    Stream stream;
    const void* thread;  ///< this_thread()
    const void* output;  ///< null: all calls that are not captured and have no workspace of their own
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct alignas(64) Entry {  // one cache line of the processor
    Key key;
    Workspace* memory;
    std::int64_t bytes;
    const Entry* next;
  };
  /// The unused rest of reserved memory.
  struct Range {
    std::byte* next;
    std::int64_t bytes;
  };
  static constexpr std::size_t slots = 1024, most_of_outputs = 512;  // few, so that a lookup is fast

  [[nodiscard]] std::atomic<const Entry*>& slot(const Key& key) noexcept {
    std::uintptr_t mixed = 0;
    for (const void* part : {static_cast<const void*>(key.stream), key.thread, key.output})
      mixed = mixed * 31 + reinterpret_cast<std::uintptr_t>(part);
    return heads_[(mixed * 0x9e3779b97f4a7c15u >> 32) % slots];
  }
  [[nodiscard]] const Entry* find(const Key& key, std::int64_t bytes) noexcept {
    const Entry* entry = slot(key).load(std::memory_order_acquire);
    while (entry != nullptr && !(entry->key == key)) entry = entry->next;
    return entry != nullptr && entry->bytes >= bytes ? entry : nullptr;
  }
  [[nodiscard]] Lent add(const Key& key, std::int64_t bytes);
  [[nodiscard]] static Workspace* cut(Range& range, std::int64_t bytes) noexcept;
  bool remember(const Key& key, Workspace* memory, std::int64_t bytes);
  [[nodiscard]] Workspace* grow(const Key& of_stream, std::int64_t bytes);

  runtime::Device& device_;
  std::array<std::atomic<const Entry*>, slots> heads_{};  ///< lists, latest entry first; entries stay
  std::atomic<bool> takes_outputs_ = true;                ///< there are entries and memory for more outputs
  std::mutex mutex_;  ///< guards the members below, and additions to those above
  std::deque<Entry> entries_;
  std::size_t of_outputs_ = 0;  ///< number of entries for outputs
  std::vector<runtime::Buffer> of_streams_;
  runtime::Buffer set_aside_;
  Range for_captures_, for_outputs_;
};

}  // namespace ce
