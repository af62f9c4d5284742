#include "ce/rank_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "ce/error.hpp"
#include "ce/peer_memory.hpp"

namespace ce {
namespace {

/// Why a rank cannot go on, or empty if it can.
using Words = std::array<char, 256>;

/// A message that is equal on every rank: that of the first rank that cannot go on, or an empty one.
std::string first_refusal(runtime::Device& device, const Communicator& communicator, std::string_view own,
                          Stream stream) {
  Words words{};
  std::copy_n(own.begin(), std::min(own.size(), words.size() - 1), words.begin());
  const std::vector<std::byte> all =
      gather_from_ranks(device, communicator, std::as_bytes(std::span(words)), stream);
  for (std::size_t rank = 0; rank < all.size() / sizeof words; ++rank) {
    std::memcpy(words.data(), all.data() + rank * sizeof words, sizeof words);
    if (words.front() != 0) return fmt::format("rank {}: {}", rank, words.data());
  }
  return {};
}

}  // namespace

void gather(const Communicator& communicator, const void* send, void* receive, std::size_t bytes,
            Stream stream) {
  if (const char* wrong = communicator.all_gather(communicator.state, send, receive, bytes, stream))
    throw DeviceError(fmt::format("the all-gather of rank {}", communicator.rank), 0, wrong);
}

void wait_for_ranks(runtime::Device& device, const Communicator& communicator, Stream stream) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto fail = [&](const std::string& words) {
    throw DeviceError(fmt::format("the all-gather of rank {}", communicator.rank), 0, words);
  };
  const auto look = [&] {
    if (communicator.failure != nullptr)
      if (const char* wrong = communicator.failure(communicator.state)) fail(wrong);
  };
  constexpr std::chrono::milliseconds without_pause{2}, pause{1};
  while (!device.is_idle(stream)) {
    look();
    const auto waited = Clock::now() - begin;
    if (std::chrono::duration<double>(waited).count() > communicator.patience)
      fail(fmt::format("not every rank took part within {:g} s", communicator.patience));
    if (waited > without_pause) std::this_thread::sleep_for(pause);
  }
  look();
}

std::vector<std::byte> gather_from_ranks(runtime::Device& device, const Communicator& communicator,
                                         std::span<const std::byte> own, Stream stream) {
  const std::size_t bytes = own.size(), ranks = static_cast<std::size_t>(communicator.size);
  auto memory = std::make_unique<runtime::Buffer>(device, (ranks + 1) * bytes);
  std::byte* const mine = memory->bytes() + ranks * bytes;
  device.upload(mine, own.data(), bytes);
  return unless_ranks_fail(memory, [&] {
    gather(communicator, mine, memory->data(), bytes, stream);
    wait_for_ranks(device, communicator, stream);
    std::vector<std::byte> all(ranks * bytes);
    device.download(all.data(), memory->data(), all.size());
    return all;
  });
}

RankExchanges::Found RankExchanges::get(runtime::Device& device, PeerMemories& of_context,
                                        const Communicator& communicator, std::int64_t bytes, Stream stream,
                                        bool fixed) {
  OfCommunicator& own = of(communicator);
  if (!own.why_not.empty()) return {.view = {}, .why = own.why_not};
  if (!own.memories.empty() && own.memories.back().view().bytes >= bytes)
    return {.view = own.memories.back().view(), .why = {}};
  if (fixed)
    return {.view = {},
            .why = "the call is being captured into a graph, and needs more memory than ce allocated before"};

  // Each step continues only if all ranks can, so that none waits for one that gave up.
  std::unique_ptr<PeerMemory> memory;
  std::string refusal;
  std::vector<std::byte> description(PeerMemory::description_bytes);
  try {
    memory.reset(new PeerMemory(std::make_unique<PeerMemory::Impl>(
        device, of_context,
        PeerMemory::Options{.rank = communicator.rank, .ranks = communicator.size, .bytes = bytes})));
    std::ranges::copy(memory->description(), description.begin());
  } catch (const Error& error) {
    refusal = error.what();
  }
  own.why_not = unless_ranks_fail(memory, [&] {
    const std::vector<std::byte> all = gather_from_ranks(device, communicator, description, stream);
    if (refusal.empty()) try {
        memory->connect(all);
      } catch (const Error& error) {
        refusal = error.what();
      }
    // Once a rank has data from all ranks, it knows that the memory of all is ready.
    return first_refusal(device, communicator, refusal, stream);
  });
  if (!own.why_not.empty()) return {.view = {}, .why = own.why_not};
  own.memories.push_back(std::move(*memory));
  return {.view = own.memories.back().view(), .why = {}};
}

void RankExchanges::give_up(const Communicator& communicator) noexcept {
  OfCommunicator& own = of(communicator);
  if (!own.memories.empty()) own.memories.back().give_up();
}

}  // namespace ce
