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

bool is_awaited(const Arrival& arrival) { return arrival.loading && !arrival.waiting.empty(); }

}  // namespace

void BulkLoads::init(const ThreadState& thread, unsigned long long& word, int count, Place place) {
  require_shared(thread, &word, sizeof word, "initialises an arrival", place);
  const auto is_this = [&](const Arrival& arrival) { return arrival.word == &word; };
  if (std::ranges::any_of(arrivals_, is_this))
    throw report_.mistake(thread, "initialises an arrival for a second time", place);
  if (count < 1) throw report_.mistake(thread, fmt::format("initialises an arrival of {}", count), place);
  word = mark | arrivals_.size();
  arrivals_.push_back({.word = &word, .block = thread.block, .count = count, .pending = count});
}

BulkLoads::Woken BulkLoads::end_phase_if_complete(Arrival& arrival) {
  if (arrival.pending > 0 || arrival.loading) return {};
  arrival.pending = arrival.count;
  ++arrival.phase;
  return std::exchange(arrival.waiting, {});
}

BulkLoads::Woken BulkLoads::arrive(const ThreadState& thread, const unsigned long long& word, Place place) {
  Arrival& arrival = find(thread, word, place);
  if (arrival.pending == 0)
    throw report_.mistake(thread, fmt::format("is one more than the {} of an arrival", arrival.count), place);
  --arrival.pending;
  return end_phase_if_complete(arrival);
}

BulkLoads::Woken BulkLoads::load(const ThreadState& thread, void* to, const void* from, int bytes,
                                 const unsigned long long& word, Place place) {
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
  Arrival& arrival = find(thread, word, place);
  if (arrival.loading)
    throw report_.mistake(
        thread, fmt::format("starts a second bulk load on the arrival of that of {}", text(arrival.started)),
        place);
  arrival.loading = size > 0;
  arrival.started = place;
  arrival.to = static_cast<std::byte*>(to);
  arrival.from = static_cast<const std::byte*>(from);
  arrival.bytes = size;
  write_nan({arrival.to, size});
  return arrive(thread, word, place);
}

bool BulkLoads::wait(const ThreadState& thread, const unsigned long long& word, int parity, Place place) {
  Arrival& arrival = find(thread, word, place);
  if ((arrival.phase & 1) != static_cast<std::uint64_t>(parity)) return false;
  arrival.waiting.push_back(&thread);
  return true;
}

std::optional<BulkLoads::Woken> BulkLoads::land_one(Random& random) {
  const auto count = static_cast<std::uint32_t>(std::ranges::count_if(arrivals_, is_awaited));
  if (count == 0) return std::nullopt;
  std::uint32_t skipped = random.below(count);
  const auto chosen = std::ranges::find_if(
      arrivals_, [&](const Arrival& arrival) { return is_awaited(arrival) && skipped-- == 0; });
  land(*chosen);
  return end_phase_if_complete(*chosen);
}

void BulkLoads::land_all(const host_abi::Block& block) {
  for (Arrival& arrival : arrivals_)
    if (arrival.block == &block && arrival.loading) land(arrival);
}

Arrival& BulkLoads::find(const ThreadState& thread, const unsigned long long& word, Place place) {
  require_shared(thread, &word, sizeof word, "uses an arrival", place);
  const std::size_t index = word & ~mark_bits;
  if ((word & mark_bits) != mark || index >= arrivals_.size() || arrivals_[index].word != &word)
    throw report_.mistake(thread, "uses an arrival that is not initialised", place);
  return arrivals_[index];
}

void BulkLoads::require_shared(const ThreadState& thread, const void* data, std::size_t bytes,
                               const char* what, Place place) const {
  if (!shared_.contains(static_cast<std::size_t>(thread.block->rank), data, bytes))
    throw report_.mistake(thread, fmt::format("{} that is not in its block's shared memory", what), place);
}

void BulkLoads::land(Arrival& arrival) const {
  const bool untouched = is_nan({arrival.to, arrival.bytes});
  std::memcpy(arrival.to, arrival.from, arrival.bytes);
  arrival.loading = false;
  if (!untouched)
    throw report_.error(
        *arrival.block,
        fmt::format("the destination of the bulk load started at {} was written to before it landed",
                    text(arrival.started)));
}

}  // namespace ce::runtime::host
