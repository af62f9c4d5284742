#pragma once
/// \file
/// Errors that calls found in their targets, separated by stream. Not installed.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "ce/tensor.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce {

/// Rows whose target was neither a class nor ignore_index.
struct BadTargets {
  generator::Operation operation = generator::Operation::cross_entropy;  ///< operation of the first
  std::int64_t count = 0;
  /// The smallest row of the calls of one stream, and its target; nothing if a call was writing it meanwhile.
  std::optional<std::int64_t> first_row, first_target;
};

/// \throws TargetOutOfRange
void throw_if_any(const BadTargets& found);

/// A TargetStatus in device memory for each stream and operation. Streams do not share them, so no caller is told of
/// another stream's calls. Calls on the host device run on the calling thread, so a thread counts as a stream there, as
/// it does for CU_STREAM_PER_THREAD. Streams beyond `slots` share existing entries. A call on a known stream takes no
/// lock.
class Statuses {
 public:
  explicit Statuses(runtime::Device& device);

  /// The status in which the kernels of such a call count.
  [[nodiscard]] TargetStatus* of(Stream stream, generator::Operation operation) {
    const Key key = key_of(stream, operation);
    const Entry* known = find(key);
    return known != nullptr ? known->memory : add(key);
  }

  /// The errors of finished calls on the stream since the last take().
  [[nodiscard]] BadTargets take(Stream stream);
  /// The errors of finished calls on all streams.
  [[nodiscard]] BadTargets take_all();

 private:
  struct Key {
    Stream stream;
    const void* thread;  ///< null if calls of several threads run in the order of the stream
    generator::Operation operation;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    TargetStatus* memory;
    const Entry* next;
  };
  struct Slot {
    generator::Operation operation;
    std::int64_t reported = 0;  ///< count so far of which a caller knows
  };
  static constexpr std::size_t heads = 256, slots = 512;

  [[nodiscard]] Key key_of(Stream stream, generator::Operation operation) const noexcept;
  [[nodiscard]] std::atomic<const Entry*>& head(const Key& key) noexcept;
  [[nodiscard]] const Entry* find(const Key& key) noexcept;
  [[nodiscard]] TargetStatus* add(const Key& key);
  [[nodiscard]] TargetStatus* memory_of(std::size_t slot) noexcept {
    return static_cast<TargetStatus*>(memory_.data()) + slot;
  }
  void collect(std::size_t slot, BadTargets& found);
  [[nodiscard]] TargetStatus read_and_begin_anew(std::size_t slot);

  runtime::Device& device_;
  const bool by_thread_;
  runtime::Buffer memory_;                                ///< [slots]
  std::array<std::atomic<const Entry*>, heads> heads_{};  ///< lists, latest entry first; entries stay
  std::mutex mutex_;  ///< guards the members below, and additions to those above
  std::deque<Entry> entries_;
  std::deque<Slot> slots_;
};

}  // namespace ce
