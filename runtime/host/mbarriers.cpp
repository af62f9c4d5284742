#include "runtime/host/mbarriers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/host/guard.hpp"

namespace ce::runtime::host {
namespace {

using host_abi::Place;

// The upper half of an initialised barrier's word, which is unlikely in data; the lower half is its index.
constexpr unsigned long long mark = 0xa1152ec7ull << 32;
constexpr unsigned long long mark_bits = 0xffffffffull << 32;

bool is_awaited(const Mbarrier& barrier) { return !barrier.copies.empty() && !barrier.waiting.empty(); }

bool overlap(const Copy& a, const Copy& b) { return a.to < b.to + b.bytes && b.to < a.to + a.bytes; }

}  // namespace

void Mbarriers::init(const ThreadState& thread, unsigned long long& word, int count, Place place) {
  require_shared(thread, &word, sizeof word, "initialises an mbarrier", place);
  const auto is_this = [&](const Mbarrier& barrier) { return barrier.word == &word; };
  if (std::ranges::any_of(mbarriers_, is_this))
    throw report_.mistake(thread, "initialises an mbarrier for a second time", place);
  if (count < 1)
    throw report_.mistake(thread, fmt::format("initialises an mbarrier for {} arrivals", count), place);
  word = mark | mbarriers_.size();
  mbarriers_.push_back({.word = &word, .block = thread.block, .count = count, .pending = count});
}

Mbarriers::Woken Mbarriers::arrive(const ThreadState& thread, const unsigned long long& word, Place place) {
  return arrive(thread, find_own(thread, word, place), place);
}

Mbarriers::Woken Mbarriers::expect(const ThreadState& thread, const unsigned long long& word, int bytes,
                                   Place place) {
  if (bytes < 1) throw report_.mistake(thread, fmt::format("announces {} bytes", bytes), place);
  Mbarrier& barrier = find_own(thread, word, place);
  barrier.announced += bytes;
  return arrive(thread, barrier, place);
}

void Mbarriers::send(const ThreadState& thread, void* to, const void* words, int bytes,
                     const unsigned long long& word, Place place) {
  Copy copy{.started = place, .to = static_cast<std::byte*>(to), .bytes = static_cast<std::size_t>(bytes)};
  if (reinterpret_cast<std::uintptr_t>(to) % copy.bytes != 0)
    throw report_.mistake(
        thread, fmt::format("sends to an address that is not a multiple of {} bytes", bytes), place);
  std::memcpy(copy.sent.data(), words, copy.bytes);
  start(thread, find(thread, word, place), copy, "sends");
}

Mbarriers::Woken Mbarriers::arrive(const ThreadState& thread, Mbarrier& barrier, Place place) const {
  if (barrier.pending == 0)
    throw report_.mistake(
        thread, fmt::format("arrives at an mbarrier that already has all its {} arrivals", barrier.count),
        place);
  --barrier.pending;
  return end_phase_if_complete(barrier);
}

Mbarriers::Woken Mbarriers::load(const ThreadState& thread, void* to, const void* from, int bytes,
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
  Mbarrier& barrier = find_own(thread, word, place);
  if (copy.bytes > 0) start(thread, barrier, copy, "starts a bulk load");
  return arrive(thread, barrier, place);
}

void Mbarriers::start(const ThreadState& thread, Mbarrier& barrier, const Copy& copy,
                      std::string_view what) const {
  require_free(thread, copy, what);
  barrier.copies.push_back(copy);
  write_nan({copy.to, copy.bytes});
}

bool Mbarriers::wait(const ThreadState& thread, const unsigned long long& word, int parity, Place place) {
  if (test(thread, word, parity, place)) return false;
  find_own(thread, word, place).waiting.push_back(&thread);
  return true;
}

bool Mbarriers::test(const ThreadState& thread, const unsigned long long& word, int parity, Place place) {
  const Mbarrier& barrier = find_own(thread, word, place);
  if (parity != 0 && parity != 1)
    throw report_.mistake(thread, fmt::format("waits for a phase of parity {}", parity), place);
  return (barrier.phase & 1) != static_cast<std::uint64_t>(parity);
}

std::optional<Mbarriers::Woken> Mbarriers::land_one(Random& random) {
  const auto count = static_cast<std::uint32_t>(std::ranges::count_if(mbarriers_, is_awaited));
  if (count == 0) return std::nullopt;
  std::uint32_t skipped = random.below(count);
  const auto chosen = std::ranges::find_if(
      mbarriers_, [&](const Mbarrier& barrier) { return is_awaited(barrier) && skipped-- == 0; });
  land(*chosen, take_any(chosen->copies, random));
  return end_phase_if_complete(*chosen);
}

void Mbarriers::land_all(const host_abi::Block& block) {
  for (Mbarrier& barrier : mbarriers_)
    if (barrier.block == &block)
      for (const Copy& copy : std::exchange(barrier.copies, {})) {
        if (copy.from == nullptr)
          throw report_.error(
              block, fmt::format("returned before what was sent to it at {} had landed", text(copy.started)));
        land(barrier, copy);
      }
}

std::string Mbarriers::progress(const ThreadState& waiting) const {
  const auto awaited = std::ranges::find_if(mbarriers_, [&](const Mbarrier& barrier) {
    return std::ranges::find(barrier.waiting, &waiting) != barrier.waiting.end();
  });
  const std::string arrivals =
      fmt::format("{} of {} arrivals", awaited->count - awaited->pending, awaited->count);
  return awaited->announced > 0 ? fmt::format("{}, {} bytes not sent", arrivals, awaited->announced)
                                : arrivals;
}

Mbarrier& Mbarriers::find(const ThreadState& thread, const unsigned long long& word, Place place) {
  const std::size_t index = word & ~mark_bits;
  if ((word & mark_bits) != mark || index >= mbarriers_.size() || mbarriers_[index].word != &word)
    throw report_.mistake(thread, "uses an mbarrier that is not initialised", place);
  return mbarriers_[index];
}

Mbarrier& Mbarriers::find_own(const ThreadState& thread, const unsigned long long& word, Place place) {
  require_shared(thread, &word, sizeof word, "uses an mbarrier", place);
  return find(thread, word, place);
}

void Mbarriers::require_shared(const ThreadState& thread, const void* data, std::size_t bytes,
                               std::string_view what, Place place) const {
  if (!shared_.contains(static_cast<std::size_t>(thread.block->rank), data, bytes))
    throw report_.mistake(thread, fmt::format("{} that is not in its block's shared memory", what), place);
}

/// Two copies to the same memory would land in either order.
void Mbarriers::require_free(const ThreadState& thread, const Copy& copy, std::string_view what) const {
  for (const Mbarrier& barrier : mbarriers_)
    for (const Copy& other : barrier.copies)
      if (overlap(copy, other))
        throw report_.mistake(thread,
                              fmt::format("{} to memory where the transfer started at {} has not landed yet,",
                                          what, text(other.started)),
                              copy.started);
}

void Mbarriers::land(Mbarrier& barrier, const Copy& copy) const {
  const bool untouched = is_nan({copy.to, copy.bytes});
  std::memcpy(copy.to, copy.from == nullptr ? copy.sent.data() : copy.from, copy.bytes);
  if (copy.from == nullptr) barrier.announced -= static_cast<std::int64_t>(copy.bytes);
  if (!untouched)
    throw report_.error(*barrier.block,
                        fmt::format("the destination of the {} started at {} was written to before it landed",
                                    copy.from == nullptr ? "send" : "bulk load", text(copy.started)));
}

Mbarriers::Woken Mbarriers::end_phase_if_complete(Mbarrier& barrier) const {
  if (barrier.pending > 0 || !barrier.copies.empty() || barrier.announced > 0) return {};
  if (barrier.announced < 0)
    throw report_.error(
        *barrier.block,
        fmt::format("{} bytes more were sent to it than an mbarrier announced", -barrier.announced));
  barrier.pending = barrier.count;
  ++barrier.phase;
  return std::exchange(barrier.waiting, {});
}

}  // namespace ce::runtime::host
