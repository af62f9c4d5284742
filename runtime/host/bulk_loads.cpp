#include "runtime/host/bulk_loads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/host/guard.hpp"

namespace ce::runtime::host {
namespace {

using host_abi::Place;

// The upper half of an initialised arrival's word, unlikely in data; the lower half is its index.
constexpr unsigned long long mark = 0xa1152ec7ull << 32;
constexpr unsigned long long mark_bits = 0xffffffffull << 32;

bool is_awaited(const BulkLoad& load) { return load.state == BulkLoad::State::under_way && load.waiting > 0; }

}  // namespace

void BulkLoads::init(const ThreadState& thread, unsigned long long& arrival, Place place) {
  require_shared(thread, &arrival, sizeof arrival, "initialises an arrival", place);
  const auto is_this = [&](const BulkLoad& load) { return load.arrival == &arrival; };
  if (std::ranges::any_of(loads_, is_this))
    throw report_.mistake(thread, "initialises an arrival for a second time", place);
  arrival = mark | loads_.size();
  loads_.push_back({.arrival = &arrival, .block = thread.block});
}

void BulkLoads::load(const ThreadState& thread, void* to, const void* from, int bytes,
                     const unsigned long long& arrival, Place place) {
  const std::pair<const char*, std::uintptr_t> multiples[] = {
      {"to an address", reinterpret_cast<std::uintptr_t>(to)},
      {"from an address", reinterpret_cast<std::uintptr_t>(from)},
      {"of a size", static_cast<std::uintptr_t>(bytes)}};
  for (const auto& [what, number] : multiples)
    if (number % 16 != 0)
      throw report_.mistake(
          thread, fmt::format("starts a bulk load {} that is not a multiple of 16 bytes", what), place);
  if (bytes < 0) throw report_.mistake(thread, fmt::format("starts a bulk load of {} bytes", bytes), place);
  const auto size = static_cast<std::size_t>(bytes);
  require_shared(thread, to, size, "starts a bulk load to memory", place);
  BulkLoad& load = find(thread, arrival, place);
  if (load.state != BulkLoad::State::not_started)
    throw report_.mistake(
        thread, fmt::format("starts a second bulk load on the arrival of that of {}", text(load.started)),
        place);
  load.state = BulkLoad::State::under_way;
  load.started = place;
  load.to = static_cast<std::byte*>(to);
  load.from = static_cast<const std::byte*>(from);
  load.bytes = size;
  write_nan({load.to, size});
}

bool BulkLoads::wait(ThreadState& thread, const unsigned long long& arrival, Place place) {
  BulkLoad& load = find(thread, arrival, place);
  if (load.state == BulkLoad::State::landed) return false;
  ++load.waiting;
  thread.bulk_load = index_of(load);
  return true;
}

const BulkLoad* BulkLoads::land_one(Random& random) {
  const auto count = static_cast<std::uint32_t>(std::ranges::count_if(loads_, is_awaited));
  if (count == 0) return nullptr;
  std::uint32_t skipped = random.below(count);
  const auto chosen =
      std::ranges::find_if(loads_, [&](const BulkLoad& load) { return is_awaited(load) && skipped-- == 0; });
  land(*chosen);
  return &*chosen;
}

void BulkLoads::land_all(const host_abi::Block& block) {
  for (BulkLoad& load : loads_)
    if (load.block == &block && load.state == BulkLoad::State::under_way) land(load);
}

std::size_t BulkLoads::index_of(const BulkLoad& load) const {
  return static_cast<std::size_t>(&load - loads_.data());
}

BulkLoad& BulkLoads::find(const ThreadState& thread, const unsigned long long& arrival, Place place) {
  require_shared(thread, &arrival, sizeof arrival, "uses an arrival", place);
  const std::size_t index = arrival & ~mark_bits;
  if ((arrival & mark_bits) != mark || index >= loads_.size() || loads_[index].arrival != &arrival)
    throw report_.mistake(thread, "uses an arrival that is not initialised", place);
  return loads_[index];
}

void BulkLoads::require_shared(const ThreadState& thread, const void* data, std::size_t bytes,
                               const char* what, Place place) const {
  if (!shared_.contains(static_cast<std::size_t>(thread.block->rank), data, bytes))
    throw report_.mistake(thread, fmt::format("{} that is not in its block's shared memory", what), place);
}

void BulkLoads::land(BulkLoad& load) const {
  const bool untouched = is_nan({load.to, load.bytes});
  if (load.bytes > 0) std::memcpy(load.to, load.from, load.bytes);
  load.state = BulkLoad::State::landed;
  if (!untouched)
    throw report_.error(
        *load.block,
        fmt::format("the destination of the bulk load started at {} was written to before it landed",
                    text(load.started)));
}

}  // namespace ce::runtime::host
