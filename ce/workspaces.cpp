#include "ce/workspaces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ce/error.hpp"

namespace ce {
namespace {

constexpr std::int64_t granule = 256;

/// Memory reserved for outputs, and the most for one of them: enough for `split` with some rows.
constexpr std::int64_t output_bytes = std::int64_t{1} << 20, most_output_bytes = std::int64_t{384} << 10;

constexpr std::int64_t rounded_up(std::int64_t bytes) { return (bytes + granule - 1) / granule * granule; }

}  // namespace

Workspaces::Workspaces(runtime::Device& device, std::int64_t capture_bytes)
    : device_(device),
      set_aside_(device, std::size_t{output_bytes} + static_cast<std::size_t>(capture_bytes)),
      for_captures_{set_aside_.bytes() + output_bytes, capture_bytes},
      for_outputs_{set_aside_.bytes(), output_bytes} {
  device_.fill(set_aside_.data(), 0, set_aside_.size(), device_.trial_stream());
  device_.synchronize(device_.trial_stream());
}

/// No other thread asks for the same key, which includes the thread.
Workspaces::Lent Workspaces::add(const Key& key, std::int64_t bytes) {
  const auto& [stream, thread, output] = key;
  // The default stream cannot be captured: if a capture forbids its use, the launch that follows fails.
  const bool capturing = stream != nullptr && device_.capturing(stream);
  const bool may_own = bytes <= most_output_bytes && takes_outputs_.load(std::memory_order_relaxed);
  const Key of_stream{stream, thread, nullptr};
  if (!capturing && !may_own)
    if (const Entry* known = find(of_stream, bytes)) return {known->memory, false};

  const std::lock_guard lock(mutex_);
  if (capturing) {
    if (Workspace* memory = cut(for_captures_, bytes)) return {memory, remember(key, memory, bytes)};
    throw Unsupported(
        fmt::format("this captured call needs {2} bytes, but of the {0} bytes reserved for captured calls "
                    "only {1} are left; raise ContextOptions::capture_bytes",
                    static_cast<std::int64_t>(set_aside_.size()) - output_bytes, for_captures_.bytes, bytes));
  }
  if (may_own) {
    if (Workspace* memory = cut(for_outputs_, bytes)) return {memory, remember(key, memory, bytes)};
    takes_outputs_ = false;
  }
  return {grow(of_stream, bytes), false};
}

/// \returns null if too little is left
Workspace* Workspaces::cut(Range& range, std::int64_t bytes) noexcept {
  const std::int64_t taken = rounded_up(bytes);
  if (taken > range.bytes) return nullptr;
  range.bytes -= taken;
  return reinterpret_cast<Workspace*>(std::exchange(range.next, range.next + taken));
}

/// \returns false if there are too many entries of outputs already
bool Workspaces::remember(const Key& key, Workspace* memory, std::int64_t bytes) {
  if (key.output != nullptr) {
    if (of_outputs_ == most_of_outputs) return false;
    if (++of_outputs_ == most_of_outputs) takes_outputs_ = false;
  }
  std::atomic<const Entry*>& head = slot(key);
  entries_.push_back({key, memory, bytes, head.load(std::memory_order_relaxed)});
  head.store(&entries_.back(), std::memory_order_release);
  return true;
}

Workspace* Workspaces::grow(const Key& of_stream, std::int64_t bytes) {
  const Entry* outgrown = find(of_stream, 0);
  // Doubling bounds the memory that is too small now to as much again.
  const std::int64_t size = rounded_up(std::max(bytes, outgrown != nullptr ? 2 * outgrown->bytes : 0));
  runtime::Buffer larger(device_, static_cast<std::size_t>(size));
  device_.fill(larger.data(), 0, larger.size(), of_stream.stream);
  auto* memory = static_cast<Workspace*>(of_streams_.emplace_back(std::move(larger)).data());
  remember(of_stream, memory, size);
  return memory;
}

}  // namespace ce
