#include "ce/workspaces.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ce/base/error.hpp"

namespace ce {
namespace {

constexpr std::int64_t granule = 256;

/// Takes less time than the thread's id.
const void* this_thread() noexcept {
  static thread_local char its_own = 0;
  return &its_own;
}

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + granule - 1) / granule * granule; }

}  // namespace

Workspaces::Workspaces(runtime::Device& device, std::int64_t capture_bytes)
    : device_(device), reserve_(device, static_cast<std::size_t>(capture_bytes)) {
  device_.fill(reserve_.data(), 0, reserve_.size(), device_.trial_stream());
  device_.synchronize(device_.trial_stream());
}

Workspace* Workspaces::from_reserve(std::int64_t bytes) {
  const auto size = static_cast<std::int64_t>(reserve_.size());
  if (reserve_used_ + bytes > size)
    throw Unsupported(
        fmt::format("the {} bytes set aside for captured calls are used up and this one needs {} more; "
                    "raise ContextOptions::capture_bytes",
                    size, bytes));
  void* memory = reserve_.bytes() + reserve_used_;
  reserve_used_ += rounded_up(bytes);
  return static_cast<Workspace*>(memory);
}

std::atomic<Workspaces::Entry*>& Workspaces::slot(const Key& key) noexcept {
  const auto mixed =
      reinterpret_cast<std::uintptr_t>(key.first) * 31 + reinterpret_cast<std::uintptr_t>(key.second);
  return heads_[(mixed * 0x9e3779b97f4a7c15u >> 32) % slots];
}

Workspaces::Entry* Workspaces::find(const Key& key) noexcept {
  Entry* entry = slot(key).load(std::memory_order_acquire);
  while (entry != nullptr && entry->key != key) entry = entry->next;
  return entry;
}

Workspace* Workspaces::grow(const Key& key, Stream stream, std::int64_t bytes) {
  Entry* entry = find(key);  // another thread may have been here meanwhile
  const runtime::Buffer* outgrown =
      entry != nullptr ? entry->memory.load(std::memory_order_relaxed) : nullptr;
  const std::int64_t had = outgrown != nullptr ? static_cast<std::int64_t>(outgrown->size()) : 0;
  if (had >= bytes) return static_cast<Workspace*>(outgrown->data());
  // Doubling bounds what outgrown buffers hold to as much again.
  auto larger = std::make_unique<runtime::Buffer>(
      device_, static_cast<std::size_t>(rounded_up(std::max(bytes, 2 * had))));
  device_.fill(larger->data(), 0, larger->size(), stream);
  const runtime::Buffer& added = *buffers_.emplace_back(std::move(larger));
  if (entry == nullptr) {
    std::atomic<Entry*>& head = slot(key);
    entry = entries_.emplace_back(std::make_unique<Entry>(key, head.load(std::memory_order_relaxed))).get();
    entry->memory.store(&added, std::memory_order_relaxed);
    head.store(entry, std::memory_order_release);
  } else {
    entry->memory.store(&added, std::memory_order_release);
  }
  return static_cast<Workspace*>(added.data());
}

Workspace* Workspaces::get(Stream stream, std::int64_t bytes) {
  // The default stream cannot be captured: where a capture forbids its use, the launch that follows fails.
  const bool capturing = stream != nullptr && device_.capturing(stream);
  const Key key{stream, this_thread()};
  if (!capturing)
    if (Entry* entry = find(key)) {
      const runtime::Buffer& memory = *entry->memory.load(std::memory_order_acquire);
      if (static_cast<std::int64_t>(memory.size()) >= bytes) return static_cast<Workspace*>(memory.data());
    }
  const std::lock_guard lock(mutex_);
  return capturing ? from_reserve(bytes) : grow(key, stream, bytes);
}

}  // namespace ce
