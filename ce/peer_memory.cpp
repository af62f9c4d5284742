#include "ce/peer_memory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include "base/digest.hpp"
#include "base/made_once.hpp"
#include "ce/error.hpp"
#include "generator/problem.hpp"
#include "templates/arguments.cuh"
#include "templates/exchange_layout.cuh"

namespace ce {
namespace {

static_assert(sizeof(PeerExchange) <= ExchangeLayout::distances());

/// One rank's description of its memory.
struct Description {
  std::array<char, 8> format;
  std::array<char, 16> host;      ///< identifies the host until it restarts
  std::uint64_t process, number;  ///< the number is random, since process ids are reused
  std::uint64_t device;           ///< identifies the GPU
  std::uint64_t address, bytes;
  runtime::MemoryHandle handle;  ///< for other processes

  [[nodiscard]] bool is_of_process(const Description& other) const {
    return process == other.process && number == other.number;
  }
};
static_assert(sizeof(Description) == PeerMemory::description_bytes);

constexpr std::array<char, 8> format{'c', 'e', 'p', 'e', 'e', 'r', 's', '1'};
constexpr int most_ranks = 1 << 16;
constexpr double longest_patience = 1e9;  // seconds

std::array<char, 16> this_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> name{};
  if (boot.empty()) static_cast<void>(::gethostname(name.data(), name.size() - 1));
  const std::string digits = digest({boot, name.data()});
  std::array<char, 16> host{};
  std::copy_n(digits.begin(), host.size(), host.begin());
  return host;
}

std::uint64_t number_of_process() {
  static constinit MadeOnce<std::uint64_t> number;
  return number.get([] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  });
}

/// Identifies the GPU: kernels of two ranks on one GPU may not run at the same time.
std::uint64_t number_of(const runtime::Device& device, const void* memory) {
  if (device.model().is_host()) return reinterpret_cast<std::uintptr_t>(memory);
  const runtime::Environment environment = device.environment();
  const auto uuid = environment.find("uuid");
  const std::string text = uuid == environment.end() ? device.name() : uuid->second;
  return std::stoull(digest({text}).substr(0, 15), nullptr, 16);
}

ExchangeLayout layout_for(int ranks) { return {.ranks = ranks, .words = 0}; }

void require_ranks(int ranks) {
  if (ranks < 1 || ranks > most_ranks)
    throw InvalidArgument("ranks", fmt::to_string(ranks), fmt::format("1 to {}", most_ranks));
}

void require_options(const PeerMemory::Options& options) {
  const auto& [rank, ranks, bytes, patience] = options;
  require_ranks(ranks);
  if (rank < 0 || rank >= ranks)
    throw InvalidArgument("rank", fmt::to_string(rank), fmt::format("0 to {}", ranks - 1));
  if (const std::int64_t least = layout_for(ranks).packets(); bytes < least)
    throw InvalidArgument("bytes", fmt::to_string(bytes), fmt::format("{} or more (see bytes_for())", least));
  if (!(patience > 0) || patience > longest_patience)
    throw InvalidArgument("patience", fmt::to_string(patience),
                          fmt::format("above 0, at most {:g} s", longest_patience));
}

}  // namespace

PeerMemory::Impl::Impl(runtime::Device& its_device, PeerMemories& those_of_context, const Options& given)
    : device(its_device), of_context(those_of_context), options(given), process(::getpid()) {
  require_options(given);
  const runtime::Session session(device);
  const auto bytes = static_cast<std::size_t>(options.bytes);
  memory = static_cast<std::byte*>(device.allocate(bytes));
  try {
    device.fill(memory, 0, bytes, device.trial_stream());
    device.synchronize(device.trial_stream());
    Description own{.format = format,
                    .host = this_host(),
                    .process = static_cast<std::uint64_t>(::getpid()),
                    .number = number_of_process(),
                    .device = number_of(device, memory),
                    .address = reinterpret_cast<std::uintptr_t>(memory),
                    .bytes = static_cast<std::uint64_t>(options.bytes),
                    .handle = {}};
    if (!device.model().is_host()) own.handle = device.share(memory);
    std::memcpy(description.data(), &own, sizeof own);
  } catch (...) {
    device.release(memory);
    throw;
  }
  of_context.add(*this);
}

PeerMemory::Impl::~Impl() {
  of_context.remove(*this);
  for (void* of_rank : opened) device.close_shared(of_rank);
  device.release(memory);
}

void PeerMemory::Impl::connect(std::span<const std::byte> descriptions) {
  const auto ranks = static_cast<std::size_t>(options.ranks),
             own_rank = static_cast<std::size_t>(options.rank);
  if (!distances.empty())
    throw InvalidArgument("descriptions", "given a second time", "only one call of connect()");
  if (descriptions.size() != ranks * description_bytes)
    throw InvalidArgument("descriptions", fmt::format("{} bytes", descriptions.size()),
                          fmt::format("{} for each of {} ranks", description_bytes, ranks));
  std::vector<Description> all(ranks);
  std::memcpy(all.data(), descriptions.data(), descriptions.size());
  if (std::memcmp(&all[own_rank], description.data(), description_bytes) != 0)
    throw InvalidArgument("descriptions", fmt::format("a different one for rank {}", own_rank),
                          "the descriptions of all ranks in their order, this rank's own included");
  const Description& own = all[own_rank];
  const auto unreachable = [](std::size_t rank, const std::string& why) {
    return Unsupported(fmt::format("rank {} cannot be reached: {}", rank, why));
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Description& of = all[rank];
    if (of.format != format)
      throw InvalidArgument("descriptions", fmt::format("in another format for rank {}", rank),
                            "what PeerMemory::description() of this version returns");
    if (of.bytes != own.bytes)
      throw InvalidArgument("bytes", fmt::format("{} on rank {}", of.bytes, rank),
                            fmt::format("{}, as on rank {}", own.bytes, own_rank));
    if (of.host != own.host) throw unreachable(rank, "it is on another host");
    if (rank != own_rank && of.device == own.device)
      throw unreachable(rank, "it uses the same GPU, and kernels of both may not run at the same time");
  }

  const runtime::Session session(device);
  std::vector<void*> now_open;
  std::vector<std::int64_t> to_ranks;
  try {
    for (const Description& of : all) {
      void* there = reinterpret_cast<void*>(of.address);
      if (!of.is_of_process(own))
        now_open.push_back(there = device.open_shared(of.handle));
      else if (there != memory)
        device.reach(there);
      to_ranks.push_back(static_cast<std::byte*>(there) - memory);
    }
  } catch (const Error& error) {
    for (void* of_rank : now_open) device.close_shared(of_rank);
    throw unreachable(to_ranks.size(), error.what());
  }
  opened = std::move(now_open);

  constexpr double nanoseconds = 1e9;
  const PeerExchange header{.rank = options.rank,
                            .calls = 0,
                            .missing = 0,
                            .lag = 0,
                            .patience = static_cast<unsigned long long>(options.patience * nanoseconds),
                            .lag_of_cluster = 0,
                            .reserved = 0};
  device.upload(memory, &header, sizeof header);
  device.upload(memory + ExchangeLayout::distances(), to_ranks.data(), 8 * ranks);
  distances = std::move(to_ranks);
}

/// Does what a kernel does that has waited too long, but for this rank.
void PeerMemory::Impl::give_up() noexcept {
  const auto missing = static_cast<unsigned>(1 + options.rank);
  for (const std::int64_t distance : distances) try {
      device.upload(memory + distance + offsetof(PeerExchange, missing), &missing, sizeof missing);
    } catch (const Error&) {  // thrown for a rank that has ended
    }
}

std::string PeerMemory::Impl::failure() const {
  PeerExchange header{};
  const runtime::Session session(device);
  device.download(&header, memory, sizeof header);
  if (header.missing == 0) return {};
  return fmt::format("rank {} did not take part within {:g} s", header.missing - 1, options.patience);
}

void PeerMemories::check() const {
  const std::lock_guard lock(mutex_);
  for (const PeerMemory::Impl* memory : all_)
    if (const std::string failure = memory->failure();
        !failure.empty() && !memory->is_reported.exchange(true))
      throw DeviceError(fmt::format("the exchange of rank {}", memory->options.rank), 0, failure);
}

std::int64_t PeerMemory::bytes_for(int ranks, std::int64_t rows, std::int64_t words) {
  require_ranks(ranks);
  constexpr std::int64_t most_rows = std::int64_t{1} << 31, most_words = 64;
  if (rows < 0 || rows > most_rows)
    throw InvalidArgument("rows", fmt::to_string(rows), fmt::format("0 to {}", most_rows));
  if (words < 1 || words > most_words)
    throw InvalidArgument("words", fmt::to_string(words), fmt::format("1 to {}", most_words));
  return ExchangeLayout{.ranks = ranks, .words = words}.bytes(rows);
}

PeerMemory::PeerMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PeerMemory::PeerMemory(PeerMemory&&) noexcept = default;
PeerMemory& PeerMemory::operator=(PeerMemory&&) noexcept = default;
/// In a child of fork() it is leaked, like its Context.
PeerMemory::~PeerMemory() {
  if (impl_ && impl_->process != ::getpid()) static_cast<void>(impl_.release());
}

std::span<const std::byte> PeerMemory::description() const noexcept { return impl_->description; }
void PeerMemory::connect(std::span<const std::byte> descriptions) { impl_->connect(descriptions); }
PeerView PeerMemory::view() const {
  if (impl_->distances.empty()) throw InvalidArgument("peers", "not connected", "connect() before view()");
  return {.memory = impl_->memory, .bytes = impl_->options.bytes, .ranks = impl_->options.ranks};
}
void PeerMemory::give_up() noexcept { impl_->give_up(); }
std::optional<std::string> PeerMemory::failure() const {
  std::string words = impl_->failure();
  return words.empty() ? std::nullopt : std::optional(std::move(words));
}

}  // namespace ce
