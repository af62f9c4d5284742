#include "ce/workspaces.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ce/base/error.hpp"

namespace ce {
namespace {

/// CU_STREAM_PER_THREAD of cuda.h.
Stream per_thread_stream() { return reinterpret_cast<Stream>(std::uintptr_t{2}); }

constexpr std::int64_t granule = 256;

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + granule - 1) / granule * granule; }

}  // namespace

Workspaces::Workspaces(runtime::Device& device, std::int64_t capture_bytes)
    : device_(device), reserve_(device, static_cast<std::size_t>(capture_bytes)) {
  device_.fill(reserve_.data(), 0, reserve_.size(), device_.trial_stream());
  device_.synchronize(device_.trial_stream());
}

Workspaces::Key Workspaces::key_of(Stream stream) {
  return {stream, stream == per_thread_stream() ? std::this_thread::get_id() : std::thread::id{}};
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

Workspace* Workspaces::get(Stream stream, std::int64_t bytes) {
  const bool capturing = device_.capturing(stream);
  const std::lock_guard lock(mutex_);
  if (capturing) return from_reserve(bytes);
  runtime::Buffer& memory = by_stream_[key_of(stream)];
  if (static_cast<std::int64_t>(memory.size()) < bytes) {
    // Doubling bounds what outgrown buffers hold to as much again.
    runtime::Buffer larger(
        device_,
        static_cast<std::size_t>(rounded_up(std::max(bytes, 2 * static_cast<std::int64_t>(memory.size())))));
    device_.fill(larger.data(), 0, larger.size(), stream);
    if (memory.data() != nullptr) outgrown_.push_back(std::move(memory));
    memory = std::move(larger);
  }
  return static_cast<Workspace*>(memory.data());
}

}  // namespace ce
