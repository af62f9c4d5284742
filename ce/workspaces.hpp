#pragma once
/// \file
/// Scratch memory of calls, by stream. Not installed.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce {

/// Calls of one thread on one stream run one after the other and share a workspace. Those of another thread may come
/// between the kernels of a call, which leave each other what they know there, so each thread has its own. Calls that
/// are captured into a graph get one each, because nobody knows next to what the graph will run. Memory is zero when
/// it is handed out first, and the kernels leave it so. None is freed before this object: a graph may still point to
/// it. A call that finds its memory large enough takes no lock.
class Workspaces {
 public:
  /// \param capture_bytes  set aside for captured calls
  Workspaces(runtime::Device& device, std::int64_t capture_bytes);

  /// \throws DeviceError when memory is short, Unsupported when what was set aside for captured calls is used
  /// up
  [[nodiscard]] Workspace* get(Stream stream, std::int64_t bytes);

 private:
  using Key = std::pair<Stream, const void*>;  ///< of a thread, what is its own as long as it lives
  struct Entry {
    Entry(const Key& k, Entry* n) : key(k), next(n) {}
    Key key;
    std::atomic<const runtime::Buffer*> memory = nullptr;
    Entry* next;
  };
  static constexpr std::size_t slots = 256;

  [[nodiscard]] std::atomic<Entry*>& slot(const Key& key) noexcept;
  [[nodiscard]] Entry* find(const Key& key) noexcept;
  [[nodiscard]] Workspace* grow(const Key& key, Stream stream, std::int64_t bytes);
  [[nodiscard]] Workspace* from_reserve(std::int64_t bytes);

  runtime::Device& device_;
  std::array<std::atomic<Entry*>, slots> heads_{};  ///< entries are never removed
  std::mutex mutex_;                                ///< guards all below, and adding to the above
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<runtime::Buffer>> buffers_;  ///< those in use, and outgrown ones
  runtime::Buffer reserve_;
  std::int64_t reserve_used_ = 0;
};

}  // namespace ce
