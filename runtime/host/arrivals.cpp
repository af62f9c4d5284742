#include "runtime/host/arrivals.hpp"

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

bool is_awaited(const Arrival& arrival) { return !arrival.copies.empty() && !arrival.waiting.empty(); }

bool overlap(const Copy& a, const Copy& b) { return a.to < b.to + b.bytes && b.to < a.to + a.bytes; }

}  // namespace

void Arrivals::init(const ThreadState& thread, unsigned long long& word, int count, Place place) {
  require_shared(thread, &word, sizeof word, "initialises an arrival", place);
  const auto is_this = [&](const Arrival& arrival) { return arrival.word == &word; };
  if (std::ranges::any_of(arrivals_, is_this))
    throw report_.mistake(thread, "initialises an arrival for a second time", place);
  if (count < 1) throw report_.mistake(thread, fmt::format("initialises an arrival of {}", count), place);
  word = mark | arrivals_.size();
  arrivals_.push_back({.word = &word, .block = thread.block, .count = count, .pending = count});
}

Arrivals::Woken Arrivals::arrive(const ThreadState& thread, const unsigned long long& word, Place place) {
  return arrive(thread, find_own(thread, word, place), place);
}

Arrivals::Woken Arrivals::expect(const ThreadState& thread, const unsigned long long& word, int bytes,
                                 Place place) {
  if (bytes < 1) throw report_.mistake(thread, fmt::format("announces {} bytes", bytes), place);
  Arrival& arrival = find_own(thread, word, place);
  arrival.announced += bytes;
  return arrive(thread, arrival, place);
}

void Arrivals::send(const ThreadState& thread, void* to, const void* words, int bytes,
                    const unsigned long long& word, Place place) {
  Copy copy{.started = place, .to = static_cast<std::byte*>(to), .bytes = static_cast<std::size_t>(bytes)};
  if (reinterpret_cast<std::uintptr_t>(to) % copy.bytes != 0)
    throw report_.mistake(
        thread, fmt::format("sends to an address that is not a multiple of {} bytes", bytes), place);
  std::memcpy(copy.sent.data(), words, copy.bytes);
  start(thread, find(thread, word, place), copy, "sends");
}

Arrivals::Woken Arrivals::arrive(const ThreadState& thread, Arrival& arrival, Place place) const {
  if (arrival.pending == 0)
    throw report_.mistake(thread, fmt::format("is one more than the {} of an arrival", arrival.count), place);
  --arrival.pending;
  return end_phase_if_complete(arrival);
}

Arrivals::Woken Arrivals::load(const ThreadState& thread, void* to, const void* from, int bytes,
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
  const Copy copy{.started = place,
                  .to = static_cast<std::byte*>(to),
                  .from = static_cast<const std::byte*>(from),
                  .bytes = static_cast<std::size_t>(bytes)};
  require_shared(thread, to, copy.bytes, "starts a bulk load to memory", place);
  Arrival& arrival = find_own(thread, word, place);
  if (copy.bytes > 0) start(thread, arrival, copy, "starts a bulk load");
  return arrive(thread, arrival, place);
}

void Arrivals::start(const ThreadState& thread, Arrival& arrival, const Copy& copy,
                     std::string_view what) const {
  require_free(thread, copy, what);
  arrival.copies.push_back(copy);
  write_nan({copy.to, copy.bytes});
}

bool Arrivals::wait(const ThreadState& thread, const unsigned long long& word, int parity, Place place) {
  Arrival& arrival = find_own(thread, word, place);
  if (parity != 0 && parity != 1)
    throw report_.mistake(thread, fmt::format("waits for a phase of parity {}", parity), place);
  if ((arrival.phase & 1) != static_cast<std::uint64_t>(parity)) return false;
  arrival.waiting.push_back(&thread);
  return true;
}

std::optional<Arrivals::Woken> Arrivals::land_one(Random& random) {
  const auto count = static_cast<std::uint32_t>(std::ranges::count_if(arrivals_, is_awaited));
  if (count == 0) return std::nullopt;
  std::uint32_t skipped = random.below(count);
  const auto chosen = std::ranges::find_if(
      arrivals_, [&](const Arrival& arrival) { return is_awaited(arrival) && skipped-- == 0; });
  land(*chosen, take_any(chosen->copies, random));
  return end_phase_if_complete(*chosen);
}

void Arrivals::land_all(const host_abi::Block& block) {
  for (Arrival& arrival : arrivals_)
    if (arrival.block == &block)
      for (const Copy& copy : std::exchange(arrival.copies, {})) {
        if (copy.from == nullptr)
          throw report_.error(
              block, fmt::format("returned before what was sent to it at {} had landed", text(copy.started)));
        land(arrival, copy);
      }
}

std::string Arrivals::progress(const ThreadState& waiting) const {
  const auto awaited = std::ranges::find_if(arrivals_, [&](const Arrival& arrival) {
    return std::ranges::find(arrival.waiting, &waiting) != arrival.waiting.end();
  });
  const std::string arrivals =
      fmt::format("{} of {} arrivals", awaited->count - awaited->pending, awaited->count);
  return awaited->announced > 0 ? fmt::format("{}, {} bytes not sent", arrivals, awaited->announced)
                                : arrivals;
}

Arrival& Arrivals::find(const ThreadState& thread, const unsigned long long& word, Place place) {
  const std::size_t index = word & ~mark_bits;
  if ((word & mark_bits) != mark || index >= arrivals_.size() || arrivals_[index].word != &word)
    throw report_.mistake(thread, "uses an arrival that is not initialised", place);
  return arrivals_[index];
}

Arrival& Arrivals::find_own(const ThreadState& thread, const unsigned long long& word, Place place) {
  require_shared(thread, &word, sizeof word, "uses an arrival", place);
  return find(thread, word, place);
}

void Arrivals::require_shared(const ThreadState& thread, const void* data, std::size_t bytes,
                              std::string_view what, Place place) const {
  if (!shared_.contains(static_cast<std::size_t>(thread.block->rank), data, bytes))
    throw report_.mistake(thread, fmt::format("{} that is not in its block's shared memory", what), place);
}

/// Two copies to the same memory land in either order.
void Arrivals::require_free(const ThreadState& thread, const Copy& copy, std::string_view what) const {
  for (const Arrival& arrival : arrivals_)
    for (const Copy& other : arrival.copies)
      if (overlap(copy, other))
        throw report_.mistake(
            thread, fmt::format("{} to where that of {} has not landed yet,", what, text(other.started)),
            copy.started);
}

void Arrivals::land(Arrival& arrival, const Copy& copy) const {
  const bool untouched = is_nan({copy.to, copy.bytes});
  std::memcpy(copy.to, copy.from == nullptr ? copy.sent.data() : copy.from, copy.bytes);
  if (copy.from == nullptr) arrival.announced -= static_cast<std::int64_t>(copy.bytes);
  if (!untouched)
    throw report_.error(*arrival.block,
                        fmt::format("the destination of the {} started at {} was written to before it landed",
                                    copy.from == nullptr ? "send" : "bulk load", text(copy.started)));
}

Arrivals::Woken Arrivals::end_phase_if_complete(Arrival& arrival) const {
  if (arrival.pending > 0 || !arrival.copies.empty() || arrival.announced > 0) return {};
  if (arrival.announced < 0)
    throw report_.error(*arrival.block, fmt::format("{} bytes more were sent to it than an arrival announced",
                                                    -arrival.announced));
  arrival.pending = arrival.count;
  ++arrival.phase;
  return std::exchange(arrival.waiting, {});
}

}  // namespace ce::runtime::host
