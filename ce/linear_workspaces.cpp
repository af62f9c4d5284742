#include "ce/linear_workspaces.hpp"

#include <fmt/format.h>

#include <utility>

#include "ce/error.hpp"
#include "ce/workspaces.hpp"

namespace ce {
namespace {

/// Whether the stream is CU_STREAM_PER_THREAD.
bool is_stream_of_thread(Stream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) == 2; }

}  // namespace

LinearWorkspaces::Lent LinearWorkspaces::get(Stream stream, std::int64_t bytes, const void* group) {
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& known =
        entries_[{stream, is_stream_of_thread(stream) ? this_thread() : nullptr, group}];
    if (known == nullptr) known = std::make_unique<Entry>();
    entry = known.get();
  }
  Lent lent;
  lent.lock_ = std::unique_lock(entry->mutex);
  const bool capturing = stream != nullptr && device_.capturing(stream);
  const auto wanted = static_cast<std::size_t>(bytes);
  if (entry->buffer.size() < wanted) {
    if (capturing)
      throw Unsupported(
          fmt::format("the call is being captured into a graph and cannot allocate the {} bytes of scratch "
                      "memory that it needs: set LinearCrossEntropy::Tensors::workspace, or make the same "
                      "call on this stream once before the capture",
                      bytes));
    if (entry->in_graphs) {
      entry->captured.push_back(std::move(entry->buffer));
      entry->in_graphs = false;
    } else if (entry->buffer.size() > 0) {
      device_.synchronize(stream);  // waiting does not matter: the shape is new, and must be tuned anyway
    }
    entry->buffer = {};
    entry->buffer = runtime::Buffer(device_, wanted);
  }
  entry->in_graphs |= capturing;
  lent.data_ = entry->buffer.bytes();
  return lent;
}

}  // namespace ce
