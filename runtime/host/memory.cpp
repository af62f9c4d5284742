#include "runtime/host/memory.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <new>
#include <span>

#include "ce/error.hpp"
#include "runtime/device.hpp"
#include "runtime/host/guard.hpp"

namespace ce::runtime::host {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t zone_bytes = 256;

std::span<std::byte> zone_before(std::byte* data) { return {data - zone_bytes, zone_bytes}; }
std::span<std::byte> zone_behind(std::byte* data, std::size_t bytes) { return {data + bytes, zone_bytes}; }

void free_block(std::byte* data) noexcept {
  ::operator delete (data - zone_bytes, std::align_val_t{alignment});
}

}  // namespace

Memory::~Memory() {
  for (const auto& [data, bytes] : sizes_) free_block(data);
}

void* Memory::allocate(std::size_t bytes) {
  void* block = nullptr;
  if (bytes < std::numeric_limits<std::size_t>::max() / 2)
    block = ::operator new (bytes + 2 * zone_bytes, std::align_val_t{alignment}, std::nothrow);
  if (block == nullptr) throw OutOfMemory("allocate", 0, fmt::format("no memory for {} bytes", bytes));
  std::byte* const data = static_cast<std::byte*>(block) + zone_bytes;
  std::memset(data, 0xff, bytes);
  write_guard(zone_before(data));
  write_guard(zone_behind(data, bytes));
  const std::lock_guard lock(mutex_);
  sizes_.emplace(data, bytes);
  return data;
}

void Memory::release(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  if (sizes_.erase(static_cast<std::byte*>(data)) > 0) free_block(static_cast<std::byte*>(data));
}

std::optional<std::size_t> Memory::find_overrun() {
  const std::lock_guard lock(mutex_);
  std::optional<std::size_t> found;
  for (const auto& [data, bytes] : sizes_) {
    for (const std::span<std::byte> zone : {zone_before(data), zone_behind(data, bytes)}) {
      if (guard_is_intact(zone)) continue;
      write_guard(zone);
      found = bytes;
    }
  }
  return found;
}

}  // namespace ce::runtime::host
