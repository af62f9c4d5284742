#pragma once
/// \file
/// Scratch memory of calls, by stream. Not installed.

#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device.hpp"
#include "templates/arguments.cuh"

namespace ce {

/// Calls on one stream run one after the other and share a workspace; calls that are captured into a graph
/// get one of their own each, because nobody knows next to what the graph will run. Memory is zero when it is
/// handed out first, and the kernels leave it so. None is freed before this object: a graph may still point
/// to it.
class Workspaces {
 public:
  /// \param capture_bytes  set aside for captured calls
  Workspaces(runtime::Device& device, std::int64_t capture_bytes);

  /// \throws DeviceError when memory is short, Unsupported when what was set aside for captured calls is used
  /// up
  [[nodiscard]] Workspace* get(Stream stream, std::int64_t bytes);

 private:
  /// The per-thread default stream is another one in each thread.
  using Key = std::pair<Stream, std::thread::id>;
  [[nodiscard]] static Key key_of(Stream stream);
  [[nodiscard]] Workspace* from_reserve(std::int64_t bytes);

  runtime::Device& device_;
  std::mutex mutex_;
  std::map<Key, runtime::Buffer> by_stream_;
  std::vector<runtime::Buffer> outgrown_;
  runtime::Buffer reserve_;
  std::int64_t reserve_used_ = 0;
};

}  // namespace ce
