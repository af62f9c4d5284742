#pragma once
/// \file
/// Scratch memory of linear layers' losses. Not installed.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device.hpp"

namespace ce {

/// Scratch memory for each stream, as much as its largest call needs.
class LinearWorkspaces {
 public:
  explicit LinearWorkspaces(runtime::Device& device) : device_(device) {}

  /// The thread that holds it is the only one that enqueues calls with this memory.
  class Lent {
   public:
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

   private:
    friend class LinearWorkspaces;
    std::unique_lock<std::mutex> lock_;
    std::byte* data_ = nullptr;
  };
  /// \param group  a rank's communicator: ranks in threads wait for each other while they hold their memory
  /// \throws OutOfMemory, Unsupported if the stream is captured and has no such memory yet
  [[nodiscard]] Lent get(Stream stream, std::int64_t bytes, const void* group = nullptr);

 private:
  struct Key {
    Stream stream;
    const void* thread;  ///< for streams that differ between threads
    const void* group;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Entry {
    std::mutex mutex;  ///< guards the members below
    runtime::Buffer buffer;
    std::vector<runtime::Buffer> captured;  ///< too small now, but graphs may use them
    bool in_graphs = false;
  };

  runtime::Device& device_;
  std::mutex mutex_;  ///< guards the members below
  std::map<Key, std::unique_ptr<Entry>> entries_;
};

}  // namespace ce
