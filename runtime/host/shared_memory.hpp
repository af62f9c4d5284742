#pragma once
/// \file
/// Shared memory of the blocks that run together.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/host/guard.hpp"

namespace ce::runtime::host {

/// One allocation for each block, aligned to 128 bytes, with a guard zone behind it.
class SharedMemory {
 public:
  /// Fills all of it with NaN, as contents that no thread has written yet.
  void start(std::size_t blocks, std::size_t bytes) {
    bytes_ = bytes;
    stride_ = (bytes + guard_bytes + alignment - 1) / alignment * alignment;
    if (memory_.size() < blocks * stride_ + alignment) memory_.resize(blocks * stride_ + alignment);
    void* base = memory_.data();
    std::size_t space = memory_.size();
    base_ = static_cast<std::byte*>(std::align(alignment, blocks * stride_, base, space));
    for (std::size_t block = 0; block < blocks; ++block) {
      write_nan(all_of(block));
      write_guard(guard(block));
    }
  }
  [[nodiscard]] unsigned char* of(std::size_t block) const {
    return reinterpret_cast<unsigned char*>(base_ + block * stride_);
  }
  [[nodiscard]] std::span<std::byte> all_of(std::size_t block) const {
    return {base_ + block * stride_, bytes_};
  }
  /// Whether all these bytes belong to the block's shared memory.
  [[nodiscard]] bool contains(std::size_t block, const void* data, std::size_t bytes) const {
    const auto start = reinterpret_cast<std::uintptr_t>(base_ + block * stride_);
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    return at >= start && bytes <= bytes_ && at - start <= bytes_ - bytes;
  }
  /// The address of the same object in another block's shared memory.
  [[nodiscard]] void* counterpart(const void* data, std::size_t block, std::size_t other) const {
    return base_ + other * stride_ + (static_cast<const std::byte*>(data) - (base_ + block * stride_));
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
