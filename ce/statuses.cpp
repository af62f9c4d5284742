#include "ce/statuses.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "ce/error.hpp"
#include "ce/operations.hpp"
#include "ce/workspaces.hpp"

namespace ce {
namespace {

constexpr TargetStatus no_bad_target{0, std::numeric_limits<long long>::max()};

// cuda.h's handles of the default stream that all threads share and of each thread's own default stream.
const Stream legacy_stream = reinterpret_cast<Stream>(std::uintptr_t{1});
const Stream per_thread_stream = reinterpret_cast<Stream>(std::uintptr_t{2});

}  // namespace

void throw_if_any(const BadTargets& found) {
  if (found.count == 0) return;
  const bool forward = generator::has_losses(found.operation);
  throw TargetOutOfRange(forward ? CrossEntropy::name : CrossEntropyBackward::name, found.count,
                         found.first_row.value_or(-1), found.first_target);
}

Statuses::Statuses(runtime::Device& device)
    : device_(device), by_thread_(device.model().is_host()), memory_(device, slots * sizeof(TargetStatus)) {
  const std::vector<TargetStatus> none(slots, no_bad_target);
  device_.upload(memory_.data(), none.data(), slots * sizeof(TargetStatus));
}

Statuses::Key Statuses::key_of(Stream stream, generator::Operation operation) const noexcept {
  const bool of_thread = by_thread_ || stream == per_thread_stream;
  return {stream == legacy_stream ? nullptr : stream, of_thread ? this_thread() : nullptr, operation};
}

std::atomic<const Statuses::Entry*>& Statuses::head(const Key& key) noexcept {
  const std::uintptr_t mixed = reinterpret_cast<std::uintptr_t>(key.stream) * 31 +
                               reinterpret_cast<std::uintptr_t>(key.thread) +
                               static_cast<std::uintptr_t>(key.operation);
  return heads_[(mixed * 0x9e3779b97f4a7c15u >> 32) % heads];
}

const Statuses::Entry* Statuses::find(const Key& key) noexcept {
  const Entry* entry = head(key).load(std::memory_order_acquire);
  while (entry != nullptr && !(entry->key == key)) entry = entry->next;
  return entry;
}

TargetStatus* Statuses::add(const Key& key) {
  const std::lock_guard lock(mutex_);
  if (const Entry* known = find(key)) return known->memory;
  std::size_t slot = slots_.size();
  if (slot < slots) {
    slots_.push_back({.operation = key.operation});
  } else {
    // Shares an entry of the same operation, so that errors name it correctly; the first such entry exists by now.
    slot = entries_.size() % slots;
    while (slots_[slot].operation != key.operation) slot = (slot + 1) % slots;
  }
  std::atomic<const Entry*>& first = head(key);
  entries_.push_back({key, memory_of(slot), first.load(std::memory_order_relaxed)});
  first.store(&entries_.back(), std::memory_order_release);
  return entries_.back().memory;
}

/// Calls on other streams, or of other threads, may count meanwhile: the count is not reset, and only the first row is.
TargetStatus Statuses::read_and_begin_anew(std::size_t slot) {
  TargetStatus* const memory = memory_of(slot);
  if (by_thread_) {  // kernels count with atomic operations on the same memory
    const long long count = std::atomic_ref(memory->count).load();
    return {count, count == slots_[slot].reported
                       ? no_bad_target.first
                       : std::atomic_ref(memory->first).exchange(no_bad_target.first)};
  }
  TargetStatus found{};
  device_.download(&found, memory, sizeof found);
  if (found.count != slots_[slot].reported)
    device_.upload(&memory->first, &no_bad_target.first, sizeof no_bad_target.first);
  return found;
}

void Statuses::collect(std::size_t slot, BadTargets& found) {
  const TargetStatus status = read_and_begin_anew(slot);
  const std::int64_t count = status.count - std::exchange(slots_[slot].reported, status.count);
  if (count == 0) return;
  if (found.count == 0) found.operation = slots_[slot].operation;
  found.count += count;
  if (status.first == no_bad_target.first || found.first_row) return;
  found.operation = slots_[slot].operation;
  found.first_row = status.first >> bad_target_bits;
  found.first_target = (status.first & ((1ll << bad_target_bits) - 1)) + least_bad_target;
}

BadTargets Statuses::take(Stream stream) {
  const std::lock_guard lock(mutex_);
  BadTargets found;
  for (const auto operation :
       {generator::Operation::cross_entropy, generator::Operation::cross_entropy_merge,
        generator::Operation::cross_entropy_exchange, generator::Operation::cross_entropy_backward})
    if (const Entry* known = find(key_of(stream, operation)))
      collect(static_cast<std::size_t>(known->memory - memory_of(0)), found);
  return found;
}

BadTargets Statuses::take_all() {
  const std::lock_guard lock(mutex_);
  BadTargets found;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) collect(slot, found);
  return found;
}

}  // namespace ce
