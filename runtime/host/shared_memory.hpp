#pragma once
/// \file
/// Shared memory of the blocks that run together.

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "runtime/host/guard.hpp"

namespace ce::runtime::host {

/// A piece for each block, aligned to 128 bytes, with a guard zone behind it.
class SharedMemory {
 public:
  /// All of it NaN, as contents that no thread has written yet.
  void start(std::size_t blocks, std::size_t bytes) {
    bytes_ = bytes;
    stride_ = (bytes + guard_bytes + alignment - 1) / alignment * alignment;
    if (memory_.size() < blocks * stride_ + alignment) memory_.resize(blocks * stride_ + alignment);
    void* base = memory_.data();
    std::size_t space = memory_.size();
    base_ = static_cast<std::byte*>(std::align(alignment, blocks * stride_, base, space));
    for (std::size_t block = 0; block < blocks; ++block) {
      std::memset(base_ + block * stride_, 0xff, bytes);
      write_guard(guard(block));
    }
  }
  [[nodiscard]] unsigned char* of(std::size_t block) const {
    return reinterpret_cast<unsigned char*>(base_ + block * stride_);
  }
  [[nodiscard]] std::span<std::byte> guard(std::size_t block) const {
    return {base_ + block * stride_ + bytes_, stride_ - bytes_};
  }

 private:
  static constexpr std::size_t alignment = 128;
  static constexpr std::size_t guard_bytes = 1024;
  std::vector<std::byte> memory_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0, stride_ = 0;
};

}  // namespace ce::runtime::host
